"""The mailboxes that a user of a generated store has."""

from collections.abc import Sequence

import numpy as np
from attrs import field, frozen

LISTS = ("announce", "devel", "users", "security", "social", "commits", "jobs", "offers")
PROJECTS = ("Alpha", "Beta", "Gamma", "Delta", "Budget", "Hiring", "Migration", "Zürich", "東京", "Reports & Plans")
PUBLIC = ("news", "news/local", "support", "support/archive/2024", "board")


@frozen
class Folder:
    """A mailbox to be: its path, what part of the owner's messages is in it, and its properties."""

    path: str
    weight: float
    special_use: str | None = None
    acl: dict[str, str] = field(factory=dict)
    keywords: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()           # who has flags of its own in it
    drafts: float = 0.0                     # part of its messages that have \Draft


def folders_of(chance: np.random.Generator, number: int, owner: str, others: Sequence[str]) -> list[Folder]:
    """Those of the owner of that number, or the public ones for owner ""; some are shared with `others`."""
    if not owner:
        return [Folder(path, 1.0 + len(path) % 3, acl={"anyone": "lrsp", **dict.fromkeys(others, "lrswipkxte")},
                       keywords=("$Important",), readers=tuple(others)) for path in PUBLIC]
    found = [Folder("INBOX", 8.0, keywords=("$NotJunk", "$Junk", "$Forwarded")),
             Folder("Sent", 2.0, "\\Sent"), Folder("Drafts", 0.05, "\\Drafts", drafts=0.95),
             Folder("Trash", 0.8, "\\Trash", keywords=("$Junk",)), Folder("Junk", 0.6, "\\Junk", keywords=("$Junk",))]
    if chance.random() < 0.7:
        found.append(Folder("Archive", 0.2, "\\Archive"))
        found += [Folder(f"Archive/{year}", float(chance.lognormal(0, 1)))
                  for year in range(2026 - int(chance.integers(1, 7)), 2026)]
    for name in LISTS[:int(chance.geometric(0.35)) - 1]:
        found.append(Folder(f"Lists/{name}", float(chance.lognormal(0.3, 1)), keywords=("later",)))
    for name in PROJECTS[:int(chance.geometric(0.4)) - 1]:
        found.append(Folder(f"Projects/{name}", float(chance.lognormal(-1, 1))))
    if number % 4 == 0:
        found.append(Folder("INBOX/old", 0.1))
    if others and number % 5 == 0:
        acl = dict.fromkeys(others, "lrswi") | ({"group:staff": "lr"} if number % 10 == 0 else {"anyone": "l"})
        found.append(Folder("Team", 1.0, acl=acl, keywords=("done", "later"), readers=tuple(others)))
        if number % 15 == 0:
            found.append(Folder("Team/Closed", 0.3, acl={others[0]: "lrs", "-" + others[-1]: "w"}))
    if number % 11 == 0:
        found.append(Folder("Empty", 0.0))
    return found
