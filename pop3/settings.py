"""What an administrator can choose about POP3, and every limit of a session."""

from attrs import frozen
from attrs.validators import ge, in_

from pop3 import uniqueids
from pop3.policy import DAY, PerUser
from store.net.admission import LoginAdmissionSettings
from store.values import setting

EXCLUSIVE, SHARED = "exclusive", "shared"
ARRIVAL, DATE = "arrival", "date"
SURROGATE, REFUSE, OFF = "surrogate", "refuse", "off"


def _delays(value: str) -> None:
    PerUser.parse(0, value)


def _expiries(value: str) -> None:
    if any(0 < seconds < DAY for seconds in PerUser.parse(0, value).others.values()):
        raise ValueError("must be a day at least, or 0")


def _days(value: int) -> None:
    if value and value < DAY:                   # EXPIRE counts in days, and 0 of them means something else
        raise ValueError("must be a day at least, or 0")


@frozen
class Settings(LoginAdmissionSettings):
    """Settings of the POP3 server; sizes in octets, times in seconds."""

    mark_seen: bool = setting(False, r"set \Seen on messages that were retrieved, so that IMAP clients show them as "
                              r"read")
    line_limit: int = setting(510, "octets of a command line", type="size", validator=ge(253))    # RFC 2449 §4
    response_limit: int = setting(   # a token, in base64
        8 << 10, "octets of a client's line in an exchange that AUTH began", type="size", validator=ge(1024))
    idle_time: int = setting(   # RFC 1939 §3
        600, "time between two commands before the connection is ended", type="duration", validator=ge(600))
    send_time: int = setting(300, "time in which a client takes nothing of an answer before the connection is ended",
                             type="duration")
    login_attempts: int = setting(3, "failed logins before the connection is ended", validator=ge(1))
    bad_commands: int = setting(20, "bad commands in a row before the connection is ended", validator=ge(1))
    sharing: str = setting(EXCLUSIVE, "exclusive (one session a maildrop, another one is told that it is in use) or "
                           "shared (any number, each with the messages as they were when it began)",
                           validator=in_((EXCLUSIVE, SHARED)))
    order: str = setting(ARRIVAL, "how messages are numbered: in the order of their arrival in INBOX, or by their "
                         "internal date (for mail that was copied from another server in another order)",
                         validator=in_((ARRIVAL, DATE)))
    uidl_format: str = setting(uniqueids.DEFAULT, "template of unique-ids, so that clients know those of an earlier "
                               "server again: %u is the UID, %v UIDVALIDITY, %08Xu the UID as eight hexadecimal "
                               "digits. What messages have brought along goes first", check=uniqueids.parse)
    last: bool = setting(False, "offer the command LAST of earlier versions of POP3 (RFC 1460)")
    utf8: str = setting(SURROGATE, "messages with UTF-8 in their headers, for clients that have not said UTF8: "
                        "surrogate (the headers are written as older clients know them, RFC 6858), refuse, or off "
                        "(they are sent as they are; RFC 6856 then is not offered)",
                        validator=in_((SURROGATE, REFUSE, OFF)))
    leave_on_server: bool = setting(True, "no: QUIT removes all messages that were retrieved (EXPIRE 0)")
    expire: int = setting(0, "time after which messages are no longer in the maildrop, from their arrival in INBOX; 0: "
                          "never", type="duration", check=_days)
    expire_for: str = setting("", "users and domains with another time, such as: alice=90d @example.net=30d bob=0",
                              check=_expiries)
    expire_removes: bool = setting(False, "yes: QUIT removes these messages from INBOX, no: they stay there for IMAP "
                                   "clients")
    login_delay: int = setting(0, "time between two logins of a user; 0: none", type="duration", validator=ge(0))
    login_delay_for: str = setting("", "users and domains with another time, such as: alice=0 @example.net=15m",
                                   check=_delays)
    login_rate: int = setting(0, "logins of a user in a minute; 0: no limit", validator=ge(0))
