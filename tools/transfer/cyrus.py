"""A Cyrus spool on this machine, through the tools that come with Cyrus: ctl_mboxlist lists mailboxes, mbexamine says
what each message has. Message files are read as they lie there. Subscriptions and special use are not had."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from attrs import define, evolve, field

from imap.wire import utf7
from imap.wire.grammar import SyntaxProblem
from store.values import InternalDate
from tools.transfer.mailofothers import MailTree, program_user
from tools.transfer.mbox import is_keyword
from tools.transfer.sourcevalues import Box, Content, Mail, Source, Unreadable, Warn, chosen, flags_of, with_crlf

SYSTEM = {"FLAG_SEEN": "\\Seen", "FLAG_ANSWERED": "\\Answered", "FLAG_FLAGGED": "\\Flagged",
          "FLAG_DELETED": "\\Deleted", "FLAG_DRAFT": "\\Draft"}

_UID = re.compile(r"UID:0*([0-9]+)\s+INT_DATE:([0-9]+).*?SIZE:([0-9]+)")
_USER_FLAGS = re.compile(r"USERFLAGS:((?: [0-9a-fA-F]{8})+)")
_GONE = ("EXPUNGED", "UNLINKED")


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

    def boxes(self) -> Iterator[Box]:
        listed = "\n".join(self._lines("ctl_mboxlist", "-d"))
        try:
            rows = json.loads(listed)
        except ValueError as error:
            raise Unreadable(f"ctl_mboxlist says nothing that can be read: {error}") from error
        owner, at, domain = self.user.partition("@")
        root = (f"{domain}!" if at else "") + "user." + owner.replace(".", "^")
        for internal, row in sorted(rows.items()):
            if internal != root and not internal.startswith(root + ".") or row.get("mbtype", "").strip("e") != "":
                continue
            levels = [level.replace("^", ".") for level in internal[len(root):].split(".")[1:]]
            name = self._name(levels)
            if name is not None:
                external = "/".join(["user", owner, *levels]) + (f"@{domain}" if at else "")
                yield Box(name, external, int(row.get("uidvalidity", 0)), acl=dict(row.get("acl", {})))

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
