"""What an administrator can choose about LMTP, and every limit of a session."""

import re
from pathlib import Path

from attrs import frozen
from attrs.validators import ge, in_

from store.accounts.networks import Networks
from store.net.admission import AdmissionSettings
from store.values import setting

_SEPARATOR = re.compile(r"[!#$%&'*+/=?^_`{|}~-]?")      # what may stand in a local part without quotes


def _one_character(value: str) -> None:
    if not _SEPARATOR.fullmatch(value):
        raise ValueError("the separator must be one character that an address can have, or nothing")


CREATE = ("no", "yes", "subscribed")


@frozen
class Settings(AdmissionSettings):
    """Settings of the LMTP server; sizes in octets, times in seconds."""

    hostname: str = setting("localhost", "the server's name in greetings and in Received")
    separator: str = setting("+", "stands between user and mailbox in an address; empty: no such addresses",
                             check=_one_character)
    create_mailbox: str = setting("no", "whether the mailbox that a sub-address names is made when it is missing: no "
                                  "(the mail goes to INBOX), yes, subscribed", validator=in_(CREATE))
    delivered_to: bool = setting(False, "whether a message has a field Delivered-To with the address that it was for; "
                                 "it is kept beside the message, which is still stored once")
    duplicate_window: int = setting(0, "time in which a message with the same Message-ID and sender is not put into "
                                    "the same mailbox again; 0: it is", type="duration")
    repeat_window: int = setting(3600, "time in which a delivery that ended without an answer is recognised when the "
                                 "relay tries again: the message is not put into the mailbox twice; 0: it is",
                                 type="duration")
    networks: tuple[str, ...] = setting(("local", "127.0.0.0/8", "::1"),
        "addresses and networks of relays that may deliver; local: UNIX sockets", check=Networks.parse)
    trusted_networks: tuple[str, ...] = setting((), "those of them whose XCLIENT, IGNOREQUOTA and XQUOTA are obeyed",
        check=Networks.parse)
    client_ca: Path | None = setting(None, "PEM file of the authorities whose client certificates admit a relay from "
                                     "anywhere")
    client_names: tuple[str, ...] = setting((), "the names (common name or DNS) that a client certificate must have "
                                            "one of; none: any will do")
    auth_users: tuple[str, ...] = setting((), "users as whom relays from anywhere may log in (AUTH, under TLS); none: "
                                          "AUTH is not offered")
    command_limit: int = setting(   # RFC 5321 §4.5.3.1.4, and the paths
        2048, "octets of a command line", type="size", validator=ge(512))
    recipient_limit: int = setting(   # RFC 5321 §4.5.3.1.8
        1000, "recipients of one message in one transaction", validator=ge(100))
    error_limit: int = setting(20, "malformed or misplaced commands since the last message before the connection is "
                               "ended")
    idle_commands: int = setting(1000, "commands since the last message before the connection is ended; recipients and "
                                 "chunks that are accepted do not count", validator=ge(100))
    swallow_limit: int = setting(4 << 30, "octets of a refused message that are read and dropped before the connection "
                                 "is ended", type="size")
    early_connections: int = setting(10, "connections at a time from one address, which is not in networks, that have "
                                     "not shown yet that they may deliver; 0: as many as connections_per_address",
                                     validator=ge(0))
    login_time: int = setting(60, "time that a client has to show that it may deliver, if its address does not",
                              type="duration")
    command_time: int = setting(   # RFC 5321 §4.5.3.2.7
        300, "time between two commands before the connection is ended", type="duration")
    block_time: int = setting(180, "time between two pieces of a message", type="duration")    # RFC 5321 §4.5.3.2.5
    message_time: int = setting(600, "time for a whole message, and as much more as slowest_rate allows",
                                type="duration")
    slowest_rate: int = setting(16 << 10, "octets a second below which a message takes too long", type="size")
    connections: int = setting(2000, "connections at a time, over all processes", validator=ge(1))
