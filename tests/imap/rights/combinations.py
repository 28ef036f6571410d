"""The combinations: who asks, by which identifiers the rights come, and which rights; the same for the same seed."""

import random
from collections.abc import Iterator

from attrs import frozen

from tests.imap.rights.model import GROUPS, OWNER_KEEPS, RIGHTS, USER

KINDS = ("guest", "public", "owner")        # of another user's mailbox, of a public one, of the user's own
WAYS = ("user", "anyone", "group", "divided", "negative", "beside")
SINGLE = tuple(RIGHTS)
ALL_BUT_ONE = tuple(RIGHTS.replace(letter, "") for letter in RIGHTS)
_ME = (USER, "anyone", f"group:{GROUPS[0]}")

Acl = dict[str, str]


@frozen
class Combination:
    """One of them: the access control lists of a mailbox, of its parent and its child, and what it has later."""

    number: int
    seed: int
    kind: str
    admin: bool
    parent: Acl
    mailbox: Acl
    child: Acl
    later: Acl

    def random(self) -> random.Random:
        """The source of what is not in the combination: which of several commands, and so on."""
        return random.Random(f"{self.seed} {self.number}")


def combinations(count: int, seed: int) -> Iterator[Combination]:
    """So many. First each right alone and all but one, none and all, by all ways, in any order; then random ones."""
    rng = random.Random(seed)
    wanted = [(kind, way, rights) for rights in (*SINGLE, *ALL_BUT_ONE, "", RIGHTS) for kind in KINDS for way in WAYS]
    rng.shuffle(wanted)
    for number in range(count):
        kind, way, rights = wanted[number] if number < len(wanted) else (
            rng.choice(KINDS), rng.choice(WAYS), some(rng, RIGHTS))
        if number >= len(wanted) and not rng.randrange(4):
            rights = some(rng, "swpte")                 # rights that tell of nothing (RFC 4314 §4)
        yield Combination(
            number, seed, kind, not rng.randrange(6), acl(rng, kind, rng.choice(WAYS), some(rng, RIGHTS)),
            acl(rng, kind, way, rights), acl(rng, kind, rng.choice(WAYS), some(rng, RIGHTS)),
            acl(rng, kind, rng.choice(WAYS), some(rng, RIGHTS)))


def some(rng: random.Random, letters: str) -> str:
    """Few, half or most of the letters."""
    share = rng.choice((0.15, 0.5, 0.85))
    return "".join(letter for letter in letters if rng.random() < share)


def acl(rng: random.Random, kind: str, way: str, rights: str) -> Acl:
    """A list that gives the user these rights in this way; to an owner at least what an owner has."""
    found: dict[str, set[str]] = {}

    def give(identifier: str, letters: str) -> None:
        found.setdefault(identifier, set()).update(letters)

    match way:
        case "user":
            give(USER, rights)
        case "anyone" | "beside":
            give("anyone", rights)
        case "group":
            give(_ME[2], rights)
        case "divided":
            for letter in rights:
                give(rng.choice(_ME), letter)
        case "negative":
            others = "".join(letter for letter in RIGHTS if letter not in rights)
            give(rng.choice(_ME), rights + some(rng, others))
            give("-" + rng.choice(_ME), others)
    if way == "beside":                     # others' rights, which are nothing to the user
        give("carol", RIGHTS)
        give("group:other", RIGHTS)
        give("-carol", "lr")
        give("-group:other", rights)
    if kind == "owner" and USER in found:
        give(USER, OWNER_KEEPS)
        if found[USER] == set(RIGHTS):
            del found[USER]
    return {name: in_order(letters) for name, letters in sorted(found.items()) if letters}


def in_order(letters: set[str]) -> str:
    return "".join(letter for letter in RIGHTS if letter in letters)
