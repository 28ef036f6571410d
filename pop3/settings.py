"""What an administrator can choose about POP3, and every limit of a session."""

from attrs import Attribute, field, frozen
from attrs.validators import ge, in_

from pop3 import uniqueids
from pop3.policy import DAY, PerUser
from store.net.admission import LoginAdmissionSettings

EXCLUSIVE, SHARED = "exclusive", "shared"
ARRIVAL, DATE = "arrival", "date"
SURROGATE, REFUSE, OFF = "surrogate", "refuse", "off"


def _a_format(settings: object, attribute: "Attribute[str]", value: str) -> None:
    uniqueids.parse(value)


def _delays(settings: object, attribute: "Attribute[str]", value: str) -> None:
    PerUser.parse(0, value)


def _expiries(settings: object, attribute: "Attribute[str]", value: str) -> None:
    if any(0 < seconds < DAY for seconds in PerUser.parse(0, value).others.values()):
        raise ValueError("must be a day at least, or 0")


def _days(settings: object, attribute: "Attribute[int]", value: int) -> None:
    if value and value < DAY:                   # EXPIRE counts in days, and 0 of them means something else
        raise ValueError("must be a day at least, or 0")


@frozen
class Settings(LoginAdmissionSettings):
    """Settings of the POP3 server; sizes in octets, times in seconds."""

    plaintext_login: bool = field(default=False, metadata={
        "help": "allow passwords without TLS from other hosts (from this host they always are)"})
    mark_seen: bool = field(default=False, metadata={
        "help": r"set \Seen on messages that were retrieved, so that IMAP clients show them as read"})
    line_limit: int = field(default=510, validator=ge(253), metadata={          # RFC 2449 §4
        "help": "octets of a command line", "type": "size"})
    response_limit: int = field(default=8 << 10, validator=ge(1024), metadata={    # a token, in base64
        "help": "octets of a client's line in an exchange that AUTH began", "type": "size"})
    login_time: int = field(default=180, metadata={"help": "time a client has to log in", "type": "duration"})
    idle_time: int = field(default=600, validator=ge(600), metadata={           # RFC 1939 §3
        "help": "time between two commands before the connection is ended", "type": "duration"})
    send_time: int = field(default=300, metadata={
        "help": "time in which a client takes nothing of an answer before the connection is ended", "type": "duration"})
    login_attempts: int = field(default=3, validator=ge(1), metadata={
        "help": "failed logins before the connection is ended"})
    bad_commands: int = field(default=20, validator=ge(1), metadata={
        "help": "bad commands in a row before the connection is ended"})
    sharing: str = field(default=EXCLUSIVE, validator=in_((EXCLUSIVE, SHARED)), metadata={
        "help": "exclusive (one session a maildrop, another one is told that it is in use) or shared (any number, each "
                "with the messages as they were when it began)"})
    order: str = field(default=ARRIVAL, validator=in_((ARRIVAL, DATE)), metadata={
        "help": "how messages are numbered: in the order of their arrival in INBOX, or by their internal date (for "
                "mail that was copied from another server in another order)"})
    uidl_format: str = field(default=uniqueids.DEFAULT, validator=_a_format, metadata={
        "help": "template of unique-ids, so that clients know those of an earlier server again: %u is the UID, %v "
                "UIDVALIDITY, %08Xu the UID as eight hexadecimal digits. What messages have brought along goes first"})
    last: bool = field(default=False, metadata={
        "help": "offer the command LAST of earlier versions of POP3 (RFC 1460)"})
    utf8: str = field(default=SURROGATE, validator=in_((SURROGATE, REFUSE, OFF)), metadata={
        "help": "messages with UTF-8 in their headers, for clients that have not said UTF8: surrogate (the headers are "
                "written as older clients know them, RFC 6858), refuse, or off (they are sent as they are; RFC 6856 "
                "then is not offered)"})
    leave_on_server: bool = field(default=True, metadata={
        "help": "no: QUIT removes all messages that were retrieved (EXPIRE 0)"})
    expire: int = field(default=0, validator=_days, metadata={
        "help": "time after which messages are no longer in the maildrop, from their arrival in INBOX; 0: never",
        "type": "duration"})
    expire_for: str = field(default="", validator=_expiries, metadata={
        "help": "users and domains with another time, such as: alice=90d @example.net=30d bob=0"})
    expire_removes: bool = field(default=False, metadata={
        "help": "yes: QUIT removes these messages from INBOX, no: they stay there for IMAP clients"})
    login_delay: int = field(default=0, validator=ge(0), metadata={
        "help": "time between two logins of a user; 0: none", "type": "duration"})
    login_delay_for: str = field(default="", validator=_delays, metadata={
        "help": "users and domains with another time, such as: alice=0 @example.net=15m"})
    login_rate: int = field(default=0, validator=ge(0), metadata={
        "help": "logins of a user in a minute; 0: no limit"})
