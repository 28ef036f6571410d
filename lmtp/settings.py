"""What an administrator can choose about LMTP, and every limit of a session."""

import re

from attrs import Attribute, field, frozen
from attrs.validators import ge

_SEPARATOR = re.compile(r"[!#$%&'*+/=?^_`{|}~-]?")      # what may stand in a local part without quotes


def _one_character(_settings: object, _attribute: "Attribute[str]", value: str) -> None:
    if not _SEPARATOR.fullmatch(value):
        raise ValueError("the separator must be one character that an address can have, or nothing")


@frozen
class Settings:
    """Settings of the LMTP server; sizes in octets, times in seconds."""

    hostname: str = field(default="localhost", metadata={"help": "the server's name in greetings and in Received"})
    separator: str = field(default="+", validator=_one_character, metadata={
        "help": "stands between user and mailbox in an address; empty: no such addresses"})
    command_limit: int = field(default=2048, validator=ge(512), metadata={       # RFC 5321 §4.5.3.1.4, and the paths
        "help": "octets of a command line", "type": "size"})
    recipient_limit: int = field(default=1000, validator=ge(100), metadata={     # RFC 5321 §4.5.3.1.8
        "help": "recipients of one message in one transaction"})
    error_limit: int = field(default=20, metadata={
        "help": "malformed or misplaced commands since the last message before the connection is ended"})
    swallow_limit: int = field(default=4 << 30, metadata={
        "help": "octets of a refused message that are read and dropped before the connection is ended", "type": "size"})
    command_time: int = field(default=300, metadata={                            # RFC 5321 §4.5.3.2.7
        "help": "time between two commands before the connection is ended", "type": "duration"})
    block_time: int = field(default=180, metadata={                              # RFC 5321 §4.5.3.2.5
        "help": "time between two pieces of a message", "type": "duration"})
    message_time: int = field(default=600, metadata={
        "help": "time for a whole message, and as much more as slowest_rate allows", "type": "duration"})
    slowest_rate: int = field(default=16 << 10, metadata={
        "help": "octets a second below which a message takes too long", "type": "size"})
    connections: int = field(default=2000, metadata={"help": "connections in all"})
    connections_per_address: int = field(default=1000, metadata={"help": "connections from one address"})
