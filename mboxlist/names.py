"""Mailbox names: the hierarchy, INBOX, and the three name spaces (RFC 3501 §5.1, RFC 2342).

Inside, a mailbox is named by its owner and its path; the canonical text is "user/alice/Archive/2026" or
"public/news". A client sees its own mailboxes without the prefix.
"""

import re
from functools import lru_cache

from attrs import frozen

from mboxlist.acl import is_user

SEPARATOR = "/"
OTHERS = "user/"
PUBLIC = "public/"
INBOX = "INBOX"

MAX_PATH = 900          # octets of a path in UTF-8, so that a canonical name fits any key and any path on disk
MAX_COMPONENT = 240     # octets of one level: it becomes the name of a folder
MAX_DEPTH = 40          # levels
REMEMBERED = 10_000     # paths that were found legal

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029%*\ud800-\udfff]")       # RFC 6855 §3, RFC 9051 §5.1
# What is not seen, or has a reader see something else: controls, line ends, direction and format (RFC 5198 §2, RFC 8264
# §9.12 to §9.14); not the joiners U+200C and U+200D, which some scripts need, nor what a later Unicode may define.
DECEIVING = re.compile("[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
                       "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]")
_OWNER = re.compile(r"[^\x00-\x20\x7f/%*\"\\]{1,200}")
_IGNORABLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_RESERVED = frozenset({"", ".", ".."})
_FILE = "store.idx"     # a level that begins with it could not be told from a mailbox's file, and what it is made of


class NameProblem(ValueError):
    """The name is not legal; the text says why and may be shown to a client."""


@frozen(order=True)
class MailboxName:
    """A legal mailbox name. `owner` is a user id, or "" for a public mailbox."""

    owner: str
    path: str

    def __str__(self) -> str:
        return f"{OTHERS}{self.owner}/{self.path}" if self.owner else PUBLIC + self.path

    @classmethod
    def parse(cls, text: str) -> "MailboxName":
        """From the canonical text. Raises NameProblem."""
        if text.startswith(OTHERS):
            owner, separator, path = text[len(OTHERS):].partition(SEPARATOR)
            if not separator:
                raise NameProblem("A mailbox name is needed after the user")
            return cls(legal_owner(owner), legal_path(path))
        if text.startswith(PUBLIC):
            return cls("", legal_path(text[len(PUBLIC):]))
        raise NameProblem("The name must begin with user/ or public/")

    @classmethod
    def from_client(cls, user: str, text: str) -> "MailboxName":
        """From the name as `user`'s client writes it, UTF-7 already decoded. Raises NameProblem."""
        if text.startswith((OTHERS, PUBLIC)):
            return cls.parse(text)
        return cls(user, legal_path(text))

    def to_client(self, user: str) -> str:
        """The name as `user`'s client sees it."""
        return self.path if self.owner == user and self.owner else str(self)

    def child(self, tail: str) -> "MailboxName":
        """The mailbox `tail` below this one. Raises NameProblem."""
        return MailboxName(self.owner, legal_path(self.path + SEPARATOR + tail))

    def is_inbox(self) -> bool:
        """Whether this is somebody's INBOX itself."""
        return self.path == INBOX and bool(self.owner)

    def is_below(self, other: "MailboxName") -> bool:
        """Whether this lies under `other` in the hierarchy."""
        return self.owner == other.owner and self.path.startswith(other.path + SEPARATOR)


def legal_owner(owner: str) -> str:
    """The user id, if it can own mailboxes, and be given rights to those of others. Raises NameProblem."""
    if (not _OWNER.fullmatch(owner) or owner in _RESERVED or owner.startswith((_FILE, "@")) or not is_user(owner)
            or not is_visible(owner) or len(owner.encode("utf-8", "replace")) > MAX_COMPONENT):
        raise NameProblem("Not a legal user name")
    return owner


def is_visible(text: str) -> bool:
    """Whether nothing in it controls, formats or turns round text, or shows as nothing (RFC 8264 §9.12 to §9.14)."""
    return text.isprintable() and not _IGNORABLE.search(text)


def new_name(name: MailboxName) -> MailboxName:
    """The name, if a mailbox that is made now may have it; those that there are may have more. Raises NameProblem."""
    if DECEIVING.search(name.path):
        raise NameProblem("The name has characters that are not seen, or that have a reader see something else")
    return name


@lru_cache(maxsize=REMEMBERED)
def legal_path(path: str) -> str:
    """The path with INBOX in its canonical case (RFC 3501 §5.1). Raises NameProblem."""
    if _FORBIDDEN.search(path):
        raise NameProblem("The name has characters that are not allowed")
    first, separator, rest = path.partition(SEPARATOR)
    if first.upper() == INBOX:
        path = INBOX + separator + rest
    levels = path.split(SEPARATOR)
    for level in levels:
        if level in _RESERVED or level.startswith(_FILE):
            raise NameProblem("The name has an empty or reserved level")
    if len(levels) > MAX_DEPTH:
        raise NameProblem("The name has too many levels")
    if len(path.encode()) > MAX_PATH or max([len(level.encode()) for level in levels]) > MAX_COMPONENT:
        raise NameProblem("The name is too long")
    return path
