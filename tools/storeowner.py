"""A command that root runs acts as the owner of the store's folder: what it makes belongs to the user that the server
runs as, and what that user may not do the command does not do either.

`act` is called once, before the command begins (`tools/cli/program.py`); what some commands do as root before, or
beside that, the registry of commands says.
"""

import grp
import os
import pwd
from pathlib import Path

from attrs import frozen

from mboxlist import privatefiles
from tools.exits import Failure

ROOT = 0
_MODULE = Path(__file__)


@frozen
class Owner:
    """A user and a group of the system."""

    user: int
    group: int

    @classmethod
    def of(cls, folder: Path) -> "Owner | None":
        """Whose that folder is; None when there is none."""
        try:
            status = folder.stat()
        except FileNotFoundError:
            return None
        return cls(status.st_uid, status.st_gid)

    @classmethod
    def named(cls, user: str, group: str = "") -> "Owner":
        """The user of that name with that group, or its own one. Raises Failure."""
        try:
            found = pwd.getpwnam(user)
            return cls(found.pw_uid, grp.getgrnam(group).gr_gid if group else found.pw_gid)
        except KeyError as error:
            raise Failure(f"[workers] {error.args[0]}") from None

    @property
    def name(self) -> str:
        """That of the user, or its number where it has none."""
        try:
            return pwd.getpwuid(self.user).pw_name
        except KeyError:
            return f"user {self.user}"

    def become(self) -> None:
        """Be that user for good, with its groups. Raises Failure."""
        self._take_groups()
        os.setresgid(self.group, self.group, self.group)
        os.setresuid(self.user, self.user, self.user)
        if os.getresuid() != (self.user,) * 3 or os.getresgid() != (self.group,) * 3:
            raise Failure(f"cannot become {self.name}", 1)
        self._settle()

    def become_but_read_as_root(self) -> None:
        """Be that user, and let a thread open files as root for a moment (`tools/transfer/mailofothers.py`).
        Raises Failure."""
        self._take_groups()
        os.setresgid(ROOT, self.group, ROOT)
        os.setresuid(ROOT, self.user, ROOT)
        self._settle()

    def _take_groups(self) -> None:
        try:
            os.initgroups(pwd.getpwuid(self.user).pw_name, self.group)
        except KeyError:
            os.setgroups([self.group])

    def _settle(self) -> None:
        for name in ("HOME", "USER", "LOGNAME"):
            os.environ.pop(name, None)
        if not os.access(_MODULE, os.R_OK, effective_ids=True):
            raise Failure(f"{self.name}, the owner of the store, may not read {_MODULE.parents[1]}: onecopy must be "
                          "where that user can read it", 1)


def act(root: Path, user: str, *, reads_as_root: bool = False) -> None:
    """Act as the owner of the store in that folder, if root runs this; `user` is that of the server's processes, where
    one is configured. Raises Failure."""
    owner = Owner.of(root) if os.geteuid() == ROOT else None
    if owner is None:
        return
    if owner.user == ROOT:
        if user and Owner.named(user).user != ROOT and any(root.iterdir()):
            raise Failure(f"{root} belongs to root, and the server runs as {user}: `onecopy check --repair` gives the "
                          "store to that user", 1)
        return
    if reads_as_root:
        owner.become_but_read_as_root()
    else:
        owner.become()


def give_new_folder(root: Path, user: str, group: str) -> None:
    """Where root makes a store for another user: have its folder there, and that user's. Raises Failure."""
    if os.geteuid() != ROOT or not user:
        return
    owner, there = Owner.named(user, group), Owner.of(root)
    if there is not None and (there.user != ROOT or any(root.iterdir())):
        return
    try:
        privatefiles.make_folder(root, exist_ok=True)
        privatefiles.make_private(root, (owner.user, owner.group))
    except OSError as error:
        raise Failure(f"cannot make {root} for {user}: {error.strerror}") from None


def why_refused(root: Path) -> str:
    """As whom this process is not let do something, in words; "" for root."""
    owner, own = Owner.of(root), Owner(os.geteuid(), os.getegid())
    if own.user == ROOT or owner is None:
        return ""
    if own.user == owner.user:
        return f"this command acts as {own.name}, the owner of the store"
    return f"{root} belongs to {owner.name}: let root or that user do it"
