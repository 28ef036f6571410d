"""For real mail clients: accounts of a server with TLS, what is put into them, and what is in them now.

What is in an account is read by `Imap`, never by the client that the test is about.
"""

import os
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from attrs import field, frozen

from tests.support.clients.imap import Imap
from tests.support.servers.certificates import Authority
from tests.support.servers.server import PASSWORD, Server
from tests.support.stores import messages

LIMIT = 300         # seconds
HOST = "127.0.0.1"
DATE = datetime(2024, 3, 5, 6, 7, 8, tzinfo=timezone(timedelta(hours=2)))

# In modified UTF-7 (RFC 3501 §5.1.3): umlauts, Chinese, a character outside the basic plane, an ampersand
NAMES = ("Gr&APwA3w-e", "Archive", "Archive/2024", "Archive/2024/&ZeVnLIqe-", "A &- B", "[x] (y) {5}", 'say "hi"',
         "back\\slash", "&2D3eAA-", "~home", "nil")

Boxes = dict[str, "Counter[Message]"]

_DATE = "%d-%b-%Y %H:%M:%S %z"
_LISTED = re.compile(rb'^\* LIST \(([^)]*)\) "/" (?:"((?:[^"\\]|\\.)*)"|(\S+))$')
_ITEMS = re.compile(rb'(?=.*\bUID (\d+))(?=.*\bFLAGS \(([^)]*)\))(?=.*\bINTERNALDATE "([^"]*)")')     # in any order


@frozen
class Message:
    """A message as a mailbox has it; `date` is its INTERNALDATE, of which the moment counts."""

    octets: bytes = field(repr=lambda octets: f"{octets[:60]!r}... of {len(octets)}")
    flags: frozenset[str] = field(default=frozenset(), converter=frozenset)
    date: datetime = DATE


class Mail:
    """A server with a certificate of `authority`, and users that nobody has had yet."""

    def __init__(self, folder: Path, how_many: int) -> None:
        self.authority = Authority(folder, "authority")
        self._users = [f"user{number:02d}" for number in range(how_many)]
        self.server = Server(folder, self._users, {"tls.certificate": str(self.authority.server())})
        self.starttls = self.server.imap
        self.tls = int(self.server.options["imap.tls_port"])

    def accounts(self, how_many: int) -> list["Account"]:
        """New ones, with an empty INBOX each."""
        return [Account(self, self._users.pop()) for _ in range(how_many)]


@frozen
class Account:
    """One user's mailboxes."""

    mail: Mail = field(repr=False)
    user: str

    def login(self) -> Imap:
        """A connection of the test's own."""
        return Imap(self.mail.server.imap, self.user, PASSWORD)

    def typed(self, name: str) -> str:
        """The name of a mailbox, as this server has it."""
        return name

    def create(self, *names: str) -> None:
        """Mailboxes, by their names in modified UTF-7."""
        with self.login() as imap:
            for name in names:
                imap.ok(b"CREATE " + quoted(name))

    def delete(self, *names: str) -> None:
        """No mailboxes any more."""
        with self.login() as imap:
            for name in names:
                imap.ok(b"DELETE " + quoted(name))

    def put(self, name: str, found: Sequence[Message]) -> None:
        """Append messages to one mailbox."""
        if not found:
            return
        with self.login() as imap:
            command = b"x APPEND " + quoted(name)
            for message in found:
                command += b' (%b) "%b" {%d+}\r\n%b' % (
                    " ".join(message.flags).encode(), message.date.strftime(_DATE).encode(), len(message.octets),
                    message.octets)
            imap.send(command + b"\r\n")
            answer = imap.answer(b"x")
            assert answer.status == "OK", answer

    def run(self, name: str, *commands: str) -> None:
        """Commands with this mailbox selected."""
        with self.login() as imap:
            imap.ok(b"SELECT " + quoted(name))
            for command in commands:
                imap.ok(command)

    def names(self) -> list[str]:
        """All mailboxes, by their names in modified UTF-7."""
        with self.login() as imap:
            return _names(imap)

    def contents(self, name: str) -> dict[int, Message]:
        """One mailbox, by UID."""
        with self.login() as imap:
            return _contents(imap, name)

    def boxes(self) -> Boxes:
        """All mailboxes, without the UIDs."""
        with self.login() as imap:
            return {name: Counter(_contents(imap, name).values()) for name in _names(imap)}

    def states(self) -> dict[str, bytes]:
        """What changes with every change of a mailbox: RFC 7162 §3.1.2, RFC 3501 §6.3.10, and what is subscribed to."""
        with self.login() as imap:
            found = {name: imap.ok(b"STATUS %b (MESSAGES UIDNEXT UIDVALIDITY UNSEEN SIZE HIGHESTMODSEQ)"
                                   % quoted(name)).untagged[-1].text for name in _names(imap)}
            return {**found, "": b"\n".join(sorted(each.text for each in imap.ok('LSUB "" "*"').untagged))}


def quoted(name: str) -> bytes:
    """RFC 3501 §9 quoted"""
    return b'"%b"' % re.sub(r'(["\\])', r"\\\1", name).encode()


def same(found: Boxes, wanted: Boxes) -> None:
    """Mailboxes have the same messages. Raises AssertionError with those that differ."""
    assert sorted(found) == sorted(wanted)
    for name in wanted:
        missing, unknown = wanted[name] - found[name], found[name] - wanted[name]
        assert not missing and not unknown, f"{name}: not there:\n{missing}\nand in their place:\n{unknown}"


def _names(imap: Imap) -> list[str]:
    names = []
    for response in imap.ok('LIST "" "*"').untagged:
        if response.literals:
            names.append(response.literals[0].decode())
            continue
        found = _LISTED.match(response.text)
        assert found, response
        if b"\\noselect" not in found[1].lower() and b"\\nonexistent" not in found[1].lower():
            names.append((found[3] or re.sub(rb"\\(.)", rb"\1", found[2])).decode())
    return sorted(names)


def _contents(imap: Imap, name: str) -> dict[int, Message]:
    imap.ok(b"EXAMINE " + quoted(name))
    found = {}
    for response in imap.ok("UID FETCH 1:* (UID FLAGS INTERNALDATE BODY.PEEK[])").untagged:
        if response.literals:
            item = _ITEMS.match(response.text)
            assert item, response
            flags, date = frozenset(item[2].decode().split()), datetime.strptime(item[3].decode().strip(), _DATE)
            found[int(item[1])] = Message(response.literals[0], flags - {r"\Recent"}, date)
    return found


def run(command: Sequence[str | Path], folder: Path, octets: bytes = b"", status: int = 0, **more: str) -> str:
    """What a client prints, in a home and an environment of its own."""
    done = subprocess.run(command, cwd=folder, input=octets, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=LIMIT, check=False, env=environment(folder, **more))
    said = done.stdout.decode(errors="replace")
    assert done.returncode == status, f"{shlex.join(map(str, command))}: status {done.returncode}\n{said}"
    return said


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Nothing of who runs the tests."""
    return {"PATH": os.environ["PATH"] + ":/usr/bin:/usr/sbin", "HOME": str(folder), "LC_ALL": "C.UTF-8",
            "TERM": "screen", "TZ": "UTC", "USER": "tester", **more}


SEED = 20240305


def ordinary(count: int, flags: Sequence[str], *, first: int = 0, largest: int = 8000) -> list[Message]:
    """Messages as relays hand them on; each has some of these flags, all their combinations in turn."""
    sizes = messages.sizes(SEED + first, max(count, 2), largest=largest)
    return [Message(messages.make(SEED, number, size),
                    [flag for bit, flag in enumerate(flags) if (number * 7 + 3) >> bit & 1],
                    DATE + number * timedelta(hours=7))
            for number, size in enumerate(sizes[:count], first)]


def odd() -> list[Message]:
    """What APPEND can bring and no relay would."""
    everything = bytes(octet for octet in range(1, 256) if octet not in b"\r\n")
    there = timezone(timedelta(hours=3, minutes=30))        # to the west of Greenwich mbsync gets half hours wrong
    first = datetime(2001, 2, 1, 23, 30, 45, tzinfo=there)
    return [Message(octets, date=first + number * timedelta(days=1)) for number, octets in enumerate([
        b"\r\n",                                                            # neither a header nor a text
        b"\r\nno header\r\n",
        b"Subject: no text\r\n\r\n",
        b"Subject: all octets\r\n\r\n" + (everything + b"\r\n") * 3,
        b"Subject: raw \xe4\xf6\xfc \xff\r\nFrom: \xc3\xa4@example.org\r\n\r\n\xe4\xf6\r\n",
        b"Subject: one long line\r\n\r\n" + b"long " * 30_000 + b"\r\n",
        b"Subject: " + b"folded\r\n " * 5000 + b"end\r\n\r\na long header\r\n",
        b"Subject: no end of line\r\n\r\nlast",
        b"Subject: {12}\r\n\r\n* 1 FETCH (BODY[] {12}\r\n)\r\nx OK done\r\n.\r\n..\r\nFrom here\r\n",
        b"Subject: broken\r\nContent-Type: multipart/mixed; boundary=\"x\r\n\r\n--x\r\n--x--\r\n--x\r\n\r\n",
        b"Not a field\r\n: empty name\r\nSubject : space\r\n\r\ntext\r\n",
    ])]


def huge(size: int = 5 << 20) -> Message:
    """One of 5 MiB."""
    return Message(messages.make(SEED, 999_999, size), [r"\Flagged"])
