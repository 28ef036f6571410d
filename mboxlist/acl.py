"""Access control lists (RFC 4314): who may do what with a mailbox. Pure.

An ACL maps identifiers to rights, a string of letters. Identifiers are user ids, `group:NAME` and `anyone`; one with a
`-` before it takes rights away, after all that were granted (§2).
"""

from collections.abc import Collection, Mapping

RIGHTS = "lrswipkxtea"          # all there are, in the order in which they are shown (§2.1)
ALWAYS_OWNER = "la"             # what cannot be taken from the owner of a mailbox
ANYONE = "anyone"
GROUP = "group:"
NEGATIVE = "-"
MAX_ENTRIES = 1000              # of one ACL
MAX_IDENTIFIER = 255            # octets

_OBSOLETE = {"c": "kx", "d": "te"}      # §2.1.1


class AclProblem(ValueError):
    """These are no rights, or no identifier; the text says why and may be shown to a client."""


def parse_rights(text: str) -> str:
    """Rights in their order, each once; the obsolete c and d stand for those that came in their place (§2.1.1).

    Raises AclProblem.
    """
    wanted = "".join(_OBSOLETE.get(letter, letter) for letter in dict.fromkeys(text))
    unknown = set(wanted) - set(RIGHTS)
    if unknown:
        raise AclProblem(f"{min(unknown)} is not a right")
    return _in_order(wanted)


def virtual(rights: str) -> str:
    """The obsolete rights that are shown beside these, for older clients (§2.1.1)."""
    return "".join(letter for letter, members in _OBSOLETE.items() if set(members) & set(rights))


def parse_identifier(text: str) -> str:
    """The identifier, if it is one. Raises AclProblem."""
    name = text.removeprefix(NEGATIVE)
    if not name or name == GROUP or len(text.encode("utf-8", "replace")) > MAX_IDENTIFIER:
        raise AclProblem("Not an identifier")
    if not name.isprintable() or " " in name or name.startswith(NEGATIVE):
        raise AclProblem("The identifier has characters that are not allowed")
    return text


def changed(acl: Mapping[str, str], identifier: str, modification: str, owner: str = "") -> dict[str, str]:
    """The ACL after SETACL (§3.1): rights in the place of the old ones, or `+` or `-` and rights to add or take away.

    An identifier without rights goes. An owner whom the ACL does not name has all rights, so that is what is changed,
    and what is left holds at least those that cannot be taken away; "" makes it so again. Raises AclProblem.
    """
    identifier = parse_identifier(identifier)
    sign = modification[:1] if modification[:1] in ("+", "-") else ""
    is_owner = identifier == owner != ""
    rights, old = parse_rights(modification[len(sign):]), acl.get(identifier, RIGHTS if is_owner else "")
    if sign == "+":
        rights = _in_order(old + rights)
    elif sign == "-":
        rights = "".join(letter for letter in old if letter not in rights)
    if is_owner and modification:
        rights = _in_order(rights + ALWAYS_OWNER)
    after = {name: held for name, held in acl.items() if name != identifier}
    if rights and not (is_owner and rights == RIGHTS):
        after[identifier] = rights
    if len(after) > MAX_ENTRIES:
        raise AclProblem(f"An access control list has at most {MAX_ENTRIES} entries")
    return dict(sorted(after.items()))


def is_user(name: str) -> bool:
    """Whether the name means a user in an ACL, and nothing else."""
    return name not in ("", ANYONE) and not name.startswith((GROUP, NEGATIVE))


def identifiers(user: str, groups: Collection[str]) -> list[str]:
    """Those that speak of the user. A user who has the name of something else is none of them by it."""
    return [*([user] if is_user(user) else []), ANYONE, *(GROUP + group for group in groups)]


def lets(listed: Collection[str], names: Collection[str]) -> bool:
    """Whether a list of identifiers has one of these names, and none of them as a negative one."""
    return any(name in listed for name in names) and not any(NEGATIVE + name in listed for name in names)


def rights_of(acl: Mapping[str, str], user: str, groups: Collection[str], *, owner: bool) -> str:
    """What the user may do, in the order of `RIGHTS`. An owner whom the ACL does not name has all rights."""
    names = identifiers(user, groups)
    granted = "".join(acl.get(name, "") for name in names)
    if owner and user not in acl:
        granted = RIGHTS
    taken = "".join(acl.get(NEGATIVE + name, "") for name in names)
    return _in_order("".join(letter for letter in granted if letter not in taken) + (ALWAYS_OWNER if owner else ""))


def grantable(identifier: str, *, owner: bool) -> tuple[str, list[str]]:
    """What LISTRIGHTS says (§3.7): the rights that the identifier always has, and the sets that go together."""
    always = ALWAYS_OWNER if owner and not identifier.startswith(NEGATIVE) else ""
    return always, [letter for letter in RIGHTS if letter not in always]


def _in_order(letters: str) -> str:
    return "".join(letter for letter in RIGHTS if letter in letters)
