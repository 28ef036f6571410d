"""What a rule of expiry, another default quota or another charging policy would change."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from attrs import frozen

from mboxlist.names import OTHERS, PUBLIC
from tools import config

_RULE = re.compile(r"(?P<mailbox>.+?)(?:\s+older\s+than\s+(?P<days>[0-9]{1,6})\s+days?)?"
                   r"(?:\s+larger\s+than\s+(?P<size>[0-9.]+\s*[a-z]*))?", re.IGNORECASE)
EXAMPLE = "Trash older than 30 days; */Lists/* older than 365 days larger than 1M"


@frozen
class Rule:
    """Messages of these mailboxes go when they are older than so many days, and larger than so many octets.

    In `mailbox` * stands for anything, ? for one letter. It is the canonical name when it begins with user/ or public/;
    otherwise it is the name as its owner sees it, whoever that is. Age is counted from when the message came into the
    mailbox, or else from its internal date.
    """

    mailbox: str
    days: int | None = None
    octets: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """From "Trash older than 30 days larger than 1M", of which one condition is enough. Raises ValueError."""
        match = _RULE.fullmatch(text.strip())
        if match is None or (match["days"] is None and match["size"] is None):
            raise ValueError("not a rule such as " + " or ".join(EXAMPLE.split("; ")))
        return cls(match["mailbox"], None if match["days"] is None else int(match["days"]),
                   None if match["size"] is None else config.size(match["size"]))

    def __str__(self) -> str:
        return (self.mailbox + (f" older than {self.days} days" if self.days is not None else "")
                + (f" larger than {self.octets} octets" if self.octets is not None else ""))

    @property
    def expression(self) -> str:
        """A regular expression for canonical names, which Java and Python understand alike."""
        pattern = "".join(".*" if letter == "*" else "." if letter == "?" else _literal(letter)
                          for letter in self.mailbox)
        return f"^{pattern}$" if self.mailbox.startswith((OTHERS, PUBLIC)) else f"^user/[^/]+/{pattern}$"

    def before(self, now: datetime) -> datetime:
        """Messages from before that time are older."""
        assert self.days is not None
        try:
            return now - timedelta(days=self.days)
        except OverflowError:
            return datetime.min.replace(tzinfo=now.tzinfo)


def _literal(letter: str) -> str:
    return "\\" + letter if letter.isascii() and not letter.isalnum() and letter != " " else letter


def compared(today: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Two reports side by side: their totals, what is freed, and who would be over quota, or would not be any more."""
    names = ("messages", "logical", "fair_share", "over", "warned")
    before, after = _over(today["users"]), _over(then["users"])
    return {
        "today": {name: today["totals"][name] for name in names},
        "then": {name: then["totals"][name] for name in names},
        "freed": today["totals"]["fair_share"] - then["totals"]["fair_share"],
        "messages_gone": today["totals"]["messages"] - then["totals"]["messages"],
        "over_then": sorted(after - before),
        "over_no_more": sorted(before - after),
    }


def _over(users: Iterable[Mapping[str, Any]]) -> set[str]:
    return {user["user"] for user in users if user["over"]}
