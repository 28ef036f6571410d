"""A Cyrus spool on this machine, through the tools that come with Cyrus: ctl_mboxlist lists mailboxes, mbexamine says
what each message has, cyr_dbtool what the user is subscribed to, quota how much may be kept. Message files and Sieve
scripts are read as they lie there. Special use and annotations are not had.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from email import message_from_bytes, policy
from pathlib import Path

from attrs import define, evolve, field

from imap.wire import utf7
from imap.wire.grammar import SyntaxProblem
from store.values import Flag, InternalDate
from tools.transfer.mailofothers import MailTree, program_user, reading
from tools.transfer.mbox import is_keyword
from tools.transfer.sourcevalues import (
    Box,
    Content,
    Limits,
    Mail,
    OldScript,
    Source,
    Unreadable,
    Warn,
    chosen,
    flags_of,
    with_crlf,
)

SYSTEM = {"FLAG_SEEN": "\\Seen", "FLAG_ANSWERED": "\\Answered", "FLAG_FLAGGED": "\\Flagged",
          "FLAG_DELETED": "\\Deleted", "FLAG_DRAFT": "\\Draft"}

_UID = re.compile(r"UID:0*([0-9]+)\s+INT_DATE:([0-9]+).*?SIZE:([0-9]+)")
_USER_FLAGS = re.compile(r"USERFLAGS:((?: [0-9a-fA-F]{8})+)")
_GONE = ("EXPUNGED", "UNLINKED")
_SCRIPTS = "#sieve"
_BETWEEN, _OF_NAME_SPACES = "\x1f", "N"     # levels of a subscription, and the letter that it begins with


@define(eq=False)
class Spool(Source):
    """The mailboxes of one user; see `imapsource.ImapServer` for what is chosen of them."""

    user: str
    config: Path
    programs: Path
    warn: Warn
    patterns: Sequence[str] = ()
    renamed: Mapping[str, str] = field(factory=dict)
    prefix: str = ""
    _folder: Path = field(factory=Path, init=False)
    _mails: list[Mail] = field(factory=list, init=False)
    _scripts: Box | None = field(default=None, init=False)

    def boxes(self) -> Iterator[Box]:
        listed = "\n".join(self._lines("ctl_mboxlist", "-d"))
        try:
            rows = json.loads(listed)
        except ValueError as error:
            raise Unreadable(f"ctl_mboxlist says nothing that can be read: {error}") from error
        owner, at, domain = self.user.partition("@")
        for internal, row in sorted(rows.items()):
            levels = self._levels(internal)
            if levels is None:
                continue
            external = "/".join(["user", owner, *levels]) + (f"@{domain}" if at else "")
            if levels == [_SCRIPTS]:
                self._scripts = Box(_SCRIPTS, external)
            if row.get("mbtype", "").strip("e") != "":
                continue
            name = self._name(levels)
            if name is not None:
                yield Box(name, external, int(row.get("uidvalidity", 0)), acl=dict(row.get("acl", {})))

    @property
    def _root(self) -> str:
        """The name of INBOX within Cyrus."""
        owner, at, domain = self.user.partition("@")
        return (f"{domain}!" if at else "") + "user." + owner.replace(".", "^")

    def _levels(self, internal: str) -> list[str] | None:
        """The levels of such a name below INBOX; None for what is another's."""
        if internal != self._root and not internal.startswith(self._root + "."):
            return None
        return [level.replace("^", ".") for level in internal[len(self._root):].split(".")[1:]]

    def _name(self, levels: Sequence[str]) -> str | None:
        try:
            text = "/".join(utf7.decode(level.encode("utf-8")) for level in levels) or "INBOX"
        except SyntaxProblem:
            self.warn(f"{'/'.join(levels)}: its name is not in modified UTF-7")
            return None
        return chosen(text, self.patterns, self.renamed, self.prefix)

    def opened(self, box: Box) -> Box:
        self._folder, self._mails, following = Path(), [], 0
        keywords: list[str] = []
        about: list[str] = []
        for line in self._lines("mbexamine", str(box.key)):
            text = line.strip()
            if text.startswith("Path to mailbox:"):
                self._folder = Path(text.partition(":")[2].strip())
            elif text.startswith("User Flags:"):
                keywords = text.partition(":")[2].split()
            elif (found := re.match(r"UIDValidity: ([0-9]+)\s+Last UID: ([0-9]+)", text)) is not None:
                box, following = evolve(box, uidvalidity=int(found[1])), int(found[2]) + 1
            elif re.match(r"[0-9]{6}> UID:", text):
                self._take(box, about, keywords)
                about = [text]
            elif about and text.startswith(">"):
                about.append(text)
        self._take(box, about, keywords)
        if not self._folder.parts:
            raise Unreadable(f"{box.key}: mbexamine does not say where it is")
        return evolve(box, uidnext=following)

    def _take(self, box: Box, lines: Sequence[str], keywords: Sequence[str]) -> None:
        """A message, of the lines about it."""
        text = " ".join(lines)
        found = _UID.search(text)
        if found is None:
            return
        internal = re.search(r"INTERNALFLAGS:(.*?)(?:> SYSTEMFLAGS|$)", text)
        if internal is not None and any(word in internal[1] for word in _GONE):
            return
        system = re.search(r"SYSTEMFLAGS:(.*?)(?:> USERFLAGS|$)", text)
        names = [SYSTEM[word] for word in (system[1].split() if system else ()) if word in SYSTEM]
        bits = _USER_FLAGS.search(text)
        if bits is not None:        # the last word has the first 32
            number = int("".join(bits[1].split()), 16)
            names += [word for at, word in enumerate(keywords) if number >> at & 1 and is_keyword(word)]
        uid = int(found[1])
        self._mails.append(Mail(f"{box.name}: UID {uid}", InternalDate(int(found[2])), flags_of(names), int(found[3]),
                                uid))

    def mails(self, box: Box, warn: Warn) -> Sequence[Mail]:
        return self._mails

    def read(self, box: Box, mails: Sequence[Mail], warn: Warn) -> Iterator[Content]:
        with closing(MailTree.at(self._folder)) as tree:
            for mail in mails:
                name = f"{mail.uid}."
                try:
                    file = tree.open(name)
                except OSError as error:
                    warn(f"{mail.where}: {tree.shown(name)}: {error.strerror}")
                    continue
                with file:
                    yield mail, with_crlf(file)

    # What is no mailbox's

    def subscriptions(self) -> Sequence[str]:
        try:
            path = self._subscription_file()
            with reading():
                if not os.path.exists(path):
                    return []
            form = next((line.partition(":")[2].strip() for line in self._lines("cyr_info", "conf-all")
                         if line.startswith("subscription_db:")), "twoskip")
            found = [self._subscribed(line.partition("\t")[0])
                     for line in self._lines("cyr_dbtool", path, form, "show")]
        except Unreadable as problem:
            self.warn(f"subscriptions: {problem}")
            return []
        return [name for levels in found if levels is not None and (name := self._name(levels)) is not None]

    def _subscribed(self, key: str) -> list[str] | None:
        """The levels below INBOX of a subscription, None for another's mailbox: "NINBOX", and a unit separator before
        each level; in Cyrus up to 3.0 the name of the list."""
        first, *levels = key.split(_BETWEEN)
        if first.startswith(_OF_NAME_SPACES):
            return levels if first == f"{_OF_NAME_SPACES}INBOX" else None
        return self._levels(key)

    def scripts(self) -> Sequence[OldScript]:
        """The messages of the mailbox #sieve, in which Cyrus keeps scripts since 3.6: the subject is the name, and the
        active one is flagged."""
        if self._scripts is None:
            return []
        box = self.opened(self._scripts)
        return [OldScript(*_script(b"".join(octets)), Flag.FLAGGED in mail.flags.system)
                for mail, octets in self.read(box, self.mails(box, self.warn), self.warn)]

    def limits(self) -> Limits:
        """Of INBOX: quota prints a line for each resource, storage in KiB."""
        owner, at, domain = self.user.partition("@")
        root = f"user/{owner}" + (f"@{domain}" if at else "")
        found = {words[3]: int(words[0]) for line in self._lines("quota", root)
                 if len(words := line.split()) == 5 and words[4] == root and words[0].isdigit()}
        kibibytes = found.get("STORAGE")
        return Limits(None if kibibytes is None else kibibytes * 1024, found.get("MESSAGE"))

    def _subscription_file(self) -> str:
        """Raises Unreadable."""
        said = "".join(self._lines("mbpath", "-u", "-j", self.user))
        try:
            return str(json.loads(said)["user"]["sub"])
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable(f"mbpath does not say where the files of {self.user} are: {error}") from error

    def _lines(self, program: str, *words: str) -> Iterator[str]:
        """What it prints. Raises Unreadable."""
        try:
            command = [str(self.programs / program), "-C", str(self.config), *words]
            with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, errors="replace", cwd=os.sep,
                                  user=program_user(), group=program_user()) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    yield line.rstrip("\n")
        except OSError as error:
            raise Unreadable(f"{self.programs / program}: {error.strerror}") from error
        if process.returncode:
            raise Unreadable(f"{program} has failed with status {process.returncode}")


def _script(message: bytes) -> tuple[str, bytes]:
    """Name and text of a script that is kept as a message."""
    parsed = message_from_bytes(message, policy=policy.default)
    text = parsed.get_payload(decode=True)
    return str(parsed["subject"] or ""), text if isinstance(text, bytes) else b""
