"""What goes on in the two tiers: clients that fetch mail, and a load of mail and readers while parts stop."""

import imaplib
import re
import smtplib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from random import Random
from threading import Condition, Event, Thread

from tests.support.clients import clients
from tests.support.servers.server import PASSWORD
from tests.support.servers.two_tiers import OUTSIDE, TwoTiers

WAIT = 180
MESSAGE = b"Subject: load\r\nMessage-ID: <%d@elsewhere.example>\r\nX-Number: %d\r\n\r\nText of %d.\r\n"
STRANGER = "eve@elsewhere.example"

# By whom a login may be refused while something is away; nginx itself says "internal server error".
FOR_NOW = re.compile(r"\[UNAVAILABLE\]|internal server error|\[LIMIT\]", re.IGNORECASE)


def mbsync(tiers: TwoTiers, who: str) -> list[bytes]:
    """What it has in INBOX after it has run once."""
    home = tiers.folder / f"mbsync-{who}"
    for name in ("mail/INBOX/new", "mail/INBOX/cur", "mail/INBOX/tmp", "state"):
        (home / name).mkdir(parents=True, exist_ok=True)
    (home / "rc").write_text(f"""\
IMAPStore far
Host localhost
Port {tiers.nginx.imaps}
User {who}
Pass {PASSWORD}
SSLType IMAPS
SystemCertificates no
CertificateFile {tiers.authority.file}
AuthMechs *

MaildirStore near
Path {home}/mail/
Inbox {home}/mail/INBOX

Channel both
Far :far:
Near :near:
Patterns INBOX
Sync Pull
SyncState {home}/state/
""")
    clients.run(["mbsync", "--config", home / "rc", "both"], home)
    return [re.sub(rb"^X-TUID: .*\n", b"", path.read_bytes(), count=1, flags=re.MULTILINE).replace(b"\n", b"\r\n")
            for folder in ("new", "cur") for path in (home / "mail/INBOX" / folder).iterdir()]


def fetchmail(tiers: TwoTiers, who: str) -> list[bytes]:
    """What it fetches by POP3 under TLS, without what it puts before it."""
    home = tiers.folder / f"fetchmail-{who}"
    (home / "new").mkdir(parents=True)
    (home / "mda").write_text('#!/bin/sh\nexec cat >"$(mktemp "$1/XXXXXXXXXX")"\n')
    (home / "mda").chmod(0o755)
    (home / "rc").touch(0o600)
    (home / "rc").write_text(f"""\
set invisible
poll localhost service {tiers.nginx.pop3s} protocol POP3 auth password uidl no dns
    user "{who}" password "{PASSWORD}" ssl sslcertck sslcertfile "{tiers.authority.file}" sslcommonname localhost
    no keep no rewrite pass8bits no mimedecode mda "{home}/mda {home}/new"
""")
    clients.run(["fetchmail", "--nodetach", "--fetchmailrc", home / "rc", "--idfile", home / "ids", "--pidfile",
                 home / "pid"], home, FETCHMAILHOME=str(home))
    return [path.read_bytes().replace(b"\n", b"\r\n") for path in (home / "new").iterdir()]


def contents(tiers: TwoTiers, who: str) -> dict[str, tuple[bytes, dict[int, tuple[bytes, bytes]]]]:
    """All of a user's mailboxes: UIDVALIDITY; and by UID flags, internal date and MODSEQ, and octets."""
    client, found = tiers.imap(who), {}
    for line in client.list()[1]:
        name = line.decode().rpartition(' "/" ')[2].strip('"')          # type: ignore[union-attr]
        client.select(name, readonly=True)
        validity = client.response("UIDVALIDITY")[1][0]
        messages = {}
        for part in client.uid("FETCH", "1:*", "(FLAGS INTERNALDATE MODSEQ BODY.PEEK[])")[1]:
            if isinstance(part, tuple):
                said = re.sub(rb" \\Recent|\\Recent ?", b"", part[0].partition(b" ")[2])
                messages[int(re.search(rb"UID (\d+)", said)[1])] = said, part[1]       # type: ignore[index]
        found[name] = validity, messages
    client.logout()
    return found


class Load:
    """Mail that is sent, and clients that read, from threads; `wrong` is what must not happen."""

    def __init__(self, tiers: TwoTiers, crowd: Sequence[str], *, gentle: bool = False) -> None:
        self.tiers = tiers
        self.crowd = crowd          # by turns on the first back end and on the second
        self.taken: dict[str, set[int]] = {name: set() for name in crowd}      # by whom, messages that were accepted
        self.wrong: list[str] = []
        self.counted: Counter[str] = Counter()
        self._numbers = count(1)
        self._changed = Condition()
        self._stop = Event()
        self._seen: dict[str, dict[int, bytes]] = {name: {} for name in crowd}
        self._threads = [Thread(target=self._forever, args=(work, Random(number)), daemon=True)
                         for number, work in enumerate([self._send, self._read] * (1 if gentle else 2))]
        self._pause = 0.1 if gentle else 0.0

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT)
            assert not thread.is_alive()

    def more(self, **wanted: int) -> None:
        """Wait until so many more of each has been counted. Raises AssertionError when for WAIT seconds none has."""
        with self._changed:
            goal = {what: self.counted[what] + number for what, number in wanted.items()}
            while any(left := self._left(goal)):
                assert self._changed.wait_for(lambda: self._left(goal) != left, WAIT), (   # noqa: B023
                    f"waited for {goal}, got {self.counted}; {self.wrong}")

    def _left(self, goal: Mapping[str, int]) -> list[int]:
        return [max(0, number - self.counted[what]) for what, number in goal.items()]

    def _count(self, *what: str) -> None:
        with self._changed:
            self.counted.update(what)
            self._changed.notify_all()

    def _forever(self, work: Callable[[Random], None], random: Random) -> None:
        while not self._stop.is_set():
            try:
                work(random)
                self._stop.wait(self._pause)
            except Exception as error:
                self.wrong.append(f"{work.__name__}: {error!r}")
                self._count("tried to send", "tried to read")
                return

    def _send(self, random: Random) -> None:
        crowd = random.sample(self.crowd, 3)
        with self._changed:
            number = next(self._numbers)
        try:
            refused = self.tiers.submit(STRANGER, [f"{name}@example.org" for name in crowd],
                                        MESSAGE % (number, number, number),
                                        source=OUTSIDE)
        except (OSError, smtplib.SMTPException):
            self._count("tried to send")
            self._stop.wait(0.05)
            return
        for code, text in refused.values():
            if code // 100 != 4:                # a user that there is, refused for good
                self.wrong.append(f"{code} {text!r}")
        for name in crowd:
            if f"{name}@example.org" not in refused:
                self.taken[name].add(number)
        self._count("tried to send", *(f"sent to {self.crowd.index(name) % 2}" for name in crowd
                                       if f"{name}@example.org" not in refused))

    def _read(self, random: Random) -> None:
        name = random.choice(self.crowd)
        before = self._seen[name]               # what had been seen when this look began: others look meanwhile
        try:
            found = self.numbers(name)
        except imaplib.IMAP4.abort:             # the connection was dropped
            self._count("tried to read")
            self._stop.wait(0.05)
        except imaplib.IMAP4.error as error:
            if not FOR_NOW.search(str(error)):
                self.wrong.append(f"{name}: {error}")
            self._count("tried to read")
            self._stop.wait(0.05)
        except OSError:
            self._count("tried to read")
            self._stop.wait(0.05)
        else:
            for uid, text in before.items():
                if found.get(uid) != text:
                    self.wrong.append(f"{name}: UID {uid} was {text!r} and is {found.get(uid)!r}")
            with self._changed:
                self._seen[name] = self._seen[name] | found
            self._count("tried to read", f"read from {self.crowd.index(name) % 2}")

    def numbers(self, name: str) -> dict[int, bytes]:
        """The messages of a user, by UID. Raises OSError, imaplib.IMAP4.error."""
        client = self.tiers.imap(name)
        try:
            client.select(readonly=True)
            done, said = client.uid("FETCH", "1:*", "(UID BODY.PEEK[HEADER.FIELDS (X-Number)])")
            if done != "OK":
                raise imaplib.IMAP4.error(repr(said))
        finally:
            client.shutdown()
        return {int(re.search(rb"UID (\d+)", part[0])[1]): part[1].partition(b":")[2].strip()     # type: ignore[index]
                for part in said if isinstance(part, tuple)}
