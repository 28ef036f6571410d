"""What an administrator can choose about a receiver of events: [outbox.NAME]."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

from attrs import frozen
from attrs.validators import gt

from store.events.eventvalues import EVENT, MAIL, TYPES
from store.events.receivers import Receiver
from store.values import setting

KINDS = ("file", "unix", "https", "http", "amqp", "amqps", "smtp", "smtps")
RELAYS = ("smtp", "smtps")          # which take mail, and no events
DEFAULT_DOMAIN = "."        # as which the default domain is written, whose users go without one


def _destination(value: str) -> None:
    kind, separator, rest = value.partition(":")
    if value and (not separator or kind not in KINDS or not rest):
        raise ValueError(f"must begin with one of {', '.join(f'{kind}:' for kind in KINDS)}")


def _types(values: tuple[str, ...]) -> None:
    for value in values:
        if not any(fnmatchcase(each.lower(), value.lower()) for each in TYPES):
            raise ValueError(f"{value} is none of {', '.join(TYPES)}")


def _at_least_one(value: int) -> None:
    if not 1 <= value <= 10_000_000:
        raise ValueError("must be between 1 and 10000000")


@frozen
class Settings:
    """A receiver, and how much it gets at a time."""

    to: str = setting("", "where events go: file:/path, unix:/path, https://host/path, amqps://user@host/vhost; "
                      "smtp://host:port is a relay, which gets mail instead; empty: nowhere, the receiver is off",
                      check=_destination)
    types: tuple[str, ...] = setting((), "events that it gets, by their names in RFC 5423: MessageNew, Mailbox*; "
                                     "empty: all", check=_types)
    users: tuple[str, ...] = setting((), "users whose events it gets: alice, *@example.org; empty: all")
    domains: tuple[str, ...] = setting((), "domains whose users' events it gets; . is the default one; empty: all")
    mailboxes: tuple[str, ...] = setting((), "mailboxes whose events it gets: user/*/INBOX; empty: all, and events of "
                                         "no mailbox")
    batch: int = setting(500, "events that are sent together, at most", check=_at_least_one)
    gather: float = setting(0.5, "time for which events are gathered before they are sent; a batch that is full goes "
                            "at once", type="duration", validator=gt(0))
    rate: int = setting(0, "events a second that it gets at most; 0: no limit")
    timeout: float = setting(30.0, "how long it has to say that it has a batch", type="duration", validator=gt(0))
    retry: float = setting(1.0, "time until the next attempt when it is down; twice as long each time", type="duration",
                           validator=gt(0))
    retry_longest: float = setting(600.0, "the longest such time", type="duration", validator=gt(0))
    attempts: int = setting(10, "how often an event is sent that it refuses, before it is a dead letter",
                            check=_at_least_one)
    give_up: float = setting(7 * 86400.0, "age at which an event of a receiver that is down is a dead letter",
                             type="duration", validator=gt(0))
    backlog: int = setting(1_000_000, "events that may wait for it; with more it gets no new ones, until half of them "
                           "have left", check=_at_least_one)
    secret: Path | None = setting(None, "file with what requests of a web hook are signed with (HMAC, SHA-256), or the "
                                  "password for a broker")
    authorities: Path | None = setting(None, "PEM file of the authorities that its certificate is known by; default: "
                                       "those of the system")
    exchange: str = setting("", "the broker's exchange; the routing key is the name of the event. Empty: the default "
                            "one, and the routing key is the queue")
    queue: str = setting("", "the broker's queue for the default exchange")

    @property
    def kind(self) -> str:
        """What its destination is."""
        return self.to.partition(":")[0]

    @property
    def is_relay(self) -> bool:
        """Whether it gets mail."""
        return self.kind in RELAYS

    @property
    def gets(self) -> str:
        """What it gets, in a word."""
        return "mails" if self.is_relay else "events"

    @property
    def path(self) -> Path:
        """The file or the socket."""
        return Path(re.sub("^[a-z]+:(//)?", "", self.to))

    def receiver(self, name: str) -> Receiver:
        """What is written down for those who record."""
        return Receiver(name, self.types, self.users, ["" if each == DEFAULT_DOMAIN else each for each in self.domains],
                        self.mailboxes, kind=MAIL if self.is_relay else EVENT)
