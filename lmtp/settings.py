"""What an administrator can choose about LMTP, and every limit of a session."""

import re
from pathlib import Path

from attrs import Attribute, field, frozen
from attrs.validators import ge, in_

from store.net.admission import AdmissionSettings, are_networks

_SEPARATOR = re.compile(r"[!#$%&'*+/=?^_`{|}~-]?")      # what may stand in a local part without quotes


def _one_character(_settings: object, _attribute: "Attribute[str]", value: str) -> None:
    if not _SEPARATOR.fullmatch(value):
        raise ValueError("the separator must be one character that an address can have, or nothing")


CREATE = ("no", "yes", "subscribed")


@frozen
class Settings(AdmissionSettings):
    """Settings of the LMTP server; sizes in octets, times in seconds."""

    hostname: str = field(default="localhost", metadata={"help": "the server's name in greetings and in Received"})
    separator: str = field(default="+", validator=_one_character, metadata={
        "help": "stands between user and mailbox in an address; empty: no such addresses"})
    create_mailbox: str = field(default="no", validator=in_(CREATE), metadata={
        "help": "whether the mailbox that a sub-address names is made when it is missing: no (the mail goes to INBOX), "
                "yes, subscribed"})
    delivered_to: bool = field(default=False, metadata={
        "help": "whether a message has a field Delivered-To with the address that it was for; it is kept beside the "
                "message, which is still stored once"})
    duplicate_window: int = field(default=0, metadata={
        "help": "time in which a message with the same Message-ID and sender is not put into the same mailbox again; "
                "0: it is", "type": "duration"})
    networks: tuple[str, ...] = field(default=("local", "127.0.0.0/8", "::1"), validator=are_networks, metadata={
        "help": "addresses and networks of relays that may deliver; local: UNIX sockets"})
    trusted_networks: tuple[str, ...] = field(default=(), validator=are_networks, metadata={
        "help": "those of them whose XCLIENT, IGNOREQUOTA and XQUOTA are obeyed"})
    client_ca: Path | None = field(default=None, metadata={
        "help": "PEM file of the authorities whose client certificates admit a relay from anywhere"})
    client_names: tuple[str, ...] = field(default=(), metadata={
        "help": "the names (common name or DNS) that a client certificate must have one of; none: any will do"})
    auth_users: tuple[str, ...] = field(default=(), metadata={
        "help": "users as whom relays from anywhere may log in (AUTH, under TLS); none: AUTH is not offered"})
    command_limit: int = field(default=2048, validator=ge(512), metadata={       # RFC 5321 §4.5.3.1.4, and the paths
        "help": "octets of a command line", "type": "size"})
    recipient_limit: int = field(default=1000, validator=ge(100), metadata={     # RFC 5321 §4.5.3.1.8
        "help": "recipients of one message in one transaction"})
    error_limit: int = field(default=20, metadata={
        "help": "malformed or misplaced commands since the last message before the connection is ended"})
    idle_commands: int = field(default=1000, validator=ge(100), metadata={
        "help": "commands since the last message before the connection is ended; recipients and chunks that are "
                "accepted do not count"})
    swallow_limit: int = field(default=4 << 30, metadata={
        "help": "octets of a refused message that are read and dropped before the connection is ended", "type": "size"})
    login_time: int = field(default=120, metadata={
        "help": "time that a client has to show that it may deliver, if its address does not", "type": "duration"})
    command_time: int = field(default=300, metadata={                            # RFC 5321 §4.5.3.2.7
        "help": "time between two commands before the connection is ended", "type": "duration"})
    block_time: int = field(default=180, metadata={                              # RFC 5321 §4.5.3.2.5
        "help": "time between two pieces of a message", "type": "duration"})
    message_time: int = field(default=600, metadata={
        "help": "time for a whole message, and as much more as slowest_rate allows", "type": "duration"})
    slowest_rate: int = field(default=16 << 10, metadata={
        "help": "octets a second below which a message takes too long", "type": "size"})
    connections: int = field(default=2000, validator=ge(1), metadata={
        "help": "connections at a time, over all processes"})
