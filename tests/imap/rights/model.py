r"""What RFC 4314 grants: mailboxes in dictionaries, and what one user may be answered about them. It knows no server.

Everything that nobody may see without a right carries a mark of its own. A level of a name is Qp and a number. Texts of
messages hold Qm and the number of their mailbox, keywords are Qk and that; UIDs are 7nnxxxx, MODSEQs 8nnxxxx, limits of
quota 9nnxxxx where nn is that number; and every UIDVALIDITY is another.
"""

import re

from attrs import define, field

RIGHTS = "lrswipkxtea"                  # RFC 4314 §2.1
KNOWN_BY = frozenset("lrikxa")          # §4, MYRIGHTS: who has one of these may know of the mailbox
FLAG_RIGHT = {"\\Seen": "s", "\\Deleted": "t"}      # §4, STORE; all others are w
OWNER_KEEPS = "la"                      # what nobody can take from an owner (§3.7 lets a server have such rights)
USER, GROUPS = "alice", ("staff",)
QUOTA_LIMIT = {"bob": 9990001}          # of other users' roots
_MARK = re.compile(rb"Q[pmk]\d+|(?<!\w)[789]\d{6}(?!\w)|(?<!\w)1\d{9}(?!\w)")
_LEVEL = re.compile(r"Qp\d+")


def held_by(acl: dict[str, str], owner: str, user: str, groups: tuple[str, ...]) -> frozenset[str]:
    """§2: what all identifiers that speak of the user grant, without what their negative rights take away."""
    names = [*([user] if user else []), "anyone", *(f"group:{group}" for group in groups)]
    granted = {letter for name in names for letter in acl.get(name, "")}
    is_owner = owner == user != ""
    if is_owner and user not in acl:
        granted = set(RIGHTS)
    granted -= {letter for name in names for letter in acl.get("-" + name, "")}
    return frozenset(granted | set(OWNER_KEEPS if is_owner else ""))


def allowed(rights: frozenset[str], flags: set[str]) -> set[str]:
    """§4: those of the flags that these rights let a user change."""
    return {flag for flag in flags if FLAG_RIGHT.get(flag, "w") in rights}


def shown_rights(rights: frozenset[str]) -> set[str]:
    """§2.1.1: with the obsolete rights that stand for some of them."""
    return {*rights, *("c" if rights & set("kx") else ""), *("d" if rights & set("te") else "")}


def above(name: str) -> list[str]:
    """All names above a name, the nearest first."""
    levels = name.split("/")
    return ["/".join(levels[:count]) for count in range(len(levels) - 1, 0, -1)]


@define(eq=False)
class Box:
    """A mailbox. `messages`: UID -> flags as the user sees them (its own \\Seen is the only one that is private)."""

    number: int
    owner: str
    acl: dict[str, str]
    validity: int
    messages: dict[int, set[str]] = field(factory=dict)
    next_uid: int = 0
    dirty: bool = False             # whether it is to be made anew before the next combination


@define(eq=False)
class Truth:
    """All mailboxes by the names that the user has for them, and what the user may know of them."""

    boxes: dict[str, Box] = field(factory=dict)
    subscribed: set[str] = field(factory=set)
    admin: bool = False
    validities: dict[int, int] = field(factory=dict)            # UIDVALIDITY -> number of the mailbox
    _held: dict[str, frozenset[str]] = field(init=False, factory=dict)
    _marks: set[bytes] | None = field(init=False, default=None)

    def changed(self) -> None:
        """Names or access control lists are different now."""
        self._held.clear()
        self._marks = None

    def held(self, name: str) -> frozenset[str]:
        """The user's rights on a mailbox; none on one that is not there."""
        found = self._held.get(name)
        if found is None:
            box = self.boxes.get(name)
            found = frozenset[str]() if box is None else held_by(box.acl, box.owner, USER, GROUPS)
            self._held[name] = found
        return found

    def own(self, name: str) -> bool:
        return not name.startswith(("user/", "public/"))

    # Names

    def listed(self) -> set[str]:
        """§4, LIST: the mailboxes with `l`. One's own always have it."""
        return {name for name in self.boxes if "l" in self.held(name)}

    def levels(self) -> set[str]:
        """Names above those, which a LIST that goes level by level must show (RFC 3501 §6.3.8)."""
        return {level for name in self.listed() for level in above(name)}

    def has_listed_below(self, name: str) -> bool:
        return any(other.startswith(name + "/") for other in self.listed())

    def below(self, name: str) -> list[str]:
        return [other for other in self.boxes if other.startswith(name + "/")]

    def may_create(self, name: str) -> bool:
        """§4, CREATE: `k` on the nearest parent that there is; at the top of one's own name space all is allowed."""
        for parent in above(name):
            if parent in self.boxes:
                return "k" in self.held(parent)
        return self.own(name)

    def refusal(self, name: str, missing: str = "NONEXISTENT") -> str:
        """§6: the code for who lacks a right. Without `l` a mailbox is answered like one that is not there."""
        return "NOPERM" if "l" in self.held(name) else missing

    # Marks

    def strange(self, data: bytes) -> list[bytes]:
        """The marks in these octets that the user may not see."""
        found = _MARK.findall(data)
        if not found:
            return []
        if self._marks is None:
            self._marks = self._granted()
        return [mark for mark in found if not self._is_granted(mark)]

    def _granted(self) -> set[bytes]:
        """Levels of names (RFC 4314 §4: LIST, MYRIGHTS) and what `r` shows (§4: SELECT, STATUS, FETCH)."""
        marks: set[str] = set()
        for name, box in self.boxes.items():
            rights = self.held(name)
            if rights & KNOWN_BY:
                marks |= set(_LEVEL.findall(name))
            if "r" in rights:
                marks |= {f"Qm{box.number}", f"Qk{box.number}", f"7{box.number:02}", f"8{box.number:02}",
                          str(box.validity)}
                if name.startswith("public/"):          # RFC 9208 §6: what `r` shows of a quota root
                    marks |= {f"9{other.number:02}" for other in map(self.boxes.get, [name, *above(name)]) if other}
        if self.admin:
            marks.add("999")
        return {mark.encode() for mark in marks}

    def _is_granted(self, mark: bytes) -> bool:
        assert self._marks is not None
        if mark[:1] in b"789":
            mark = mark[:3]
        elif mark[:1] == b"1" and int(mark) not in self.validities:
            return True                                 # some other number of ten digits
        return mark in self._marks
