"""A message of 128 MiB (HUGE_MESSAGE=1024: of 1 GiB) in by LMTP (DATA, BDAT) and APPEND and out by FETCH and RETR,
while the server's memory stays where it is."""

import base64
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.pop3 import Pop3
from tests.support.processes import wait
from tests.support.readers import trace
from tests.support.servers.server import PASSWORD, Server

PIECE = 1024 * 1024
HUGE = int(os.environ.get("HUGE_MESSAGE", "128")) * PIECE
GROWTH = 64 * PIECE     # of the server's memory, whatever the protocols
LMTP_GROWTH = 32 * PIECE
SENDER = "sender@example.org"
SLOWEST = 300           # seconds between two octets: a whole message may have to reach the disk


def pieces(size: int) -> Iterator[bytes]:
    """A message of `size` octets in pieces of 1 MiB, all different, each ending with CRLF."""
    coded = base64.b64encode(Random(size).randbytes(PIECE))
    lines = b"\r\n".join(b".dots" if place % 76_000 == 0 else coded[place:place + 76]
                         for place in range(0, len(coded), 76))
    head = b"From: <sender@example.org>\r\nSubject: huge\r\nContent-Type: text/plain\r\n\r\n"
    for number in range(size // PIECE):
        start = head + b".piece %d\r\n" % number
        yield start + lines[:PIECE - len(start) - 2] + b"\r\n"
        head = b""


class Below:
    """Takes a message as it comes: its size as a whole, and the digest of what is below the trace header."""

    def __init__(self, *, traced: bool) -> None:
        self.size = 0
        self._digest = hashlib.sha256()
        self._held: bytes | None = b"" if traced else None

    def __call__(self, octets: bytes) -> None:
        self.size += len(octets)
        if self._held is not None:
            self._held += octets
            if len(self._held) < 4096:
                return
            octets, self._held = trace.below(self._held, SENDER), None
        self._digest.update(octets)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()


def relayed(server: Server, user: str, size: int) -> None:
    """By DATA to INBOX; by BDAT (RFC 3030) in chunks of 1 MiB and as one chunk to two others."""
    with Lmtp(server.lmtp, timeout=SLOWEST) as lmtp:
        reply, = lmtp.deliver(SENDER, [user], pieces(size), parameters=f" SIZE={size}")
        assert reply.code == 250, reply
        for other, chunk in (("chunks", PIECE), ("chunk", size)):
            for line in (f"MAIL FROM:<{SENDER}> SIZE={size}", f"RCPT TO:<{other}>"):
                assert lmtp.command(line).code == 250
            for number, piece in enumerate(pieces(size)):
                start = number * PIECE
                if start % chunk == 0:
                    lmtp.send(b"BDAT %d%b\r\n" % (chunk, b" LAST" if start + chunk == size else b""))
                lmtp.send(piece)
                if (start + PIECE) % chunk == 0:
                    reply = lmtp.reply()
                    assert reply.code == 250, reply


def in_and_out(server: Server, user: str, size: int) -> None:
    """The same message by APPEND, and out by both protocols."""
    sent = hashlib.sha256()
    for piece in pieces(size):
        sent.update(piece)
    with Imap(server.imap, user, PASSWORD, timeout=SLOWEST) as imap:
        imap.ok("CREATE Appended")
        answer = imap.append("Appended", pieces(size), size)
        assert answer.status == "OK", answer
        _, exists = imap.select("Appended")
        assert exists == 1
        assert imap.ok("FETCH 1 (RFC822.SIZE)").find(rb"RFC822\.SIZE (\d+)")[1] == b"%d" % size
        appended = Below(traced=False)
        imap.ok("FETCH 1 (BODY.PEEK[])", appended)
        assert (appended.size, appended.digest) == (size, sent.hexdigest())
        _, exists = imap.select("INBOX")
        assert exists == 1
        octets = int(imap.ok("FETCH 1 (RFC822.SIZE)").find(rb"RFC822\.SIZE (\d+)")[1])
        delivered = Below(traced=True)
        imap.ok("FETCH 1 (BODY.PEEK[])", delivered)
        assert (delivered.size, delivered.digest) == (octets, sent.hexdigest())
    with Pop3(server.pop3, user, PASSWORD, timeout=SLOWEST) as pop3:
        assert pop3.ok("STAT").split()[1:3] == ["1", str(octets)]
        retrieved = Below(traced=True)
        pop3.retrieve(1, retrieved)
        assert (retrieved.size, retrieved.digest) == (octets, sent.hexdigest())


def fresh_peak(server: Server) -> int:
    """What `peak` says when it starts from what is in use now (proc(5), clear_refs)."""
    for pid in wait.tree(server.pid):
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    return server.peak()


def test_a_huge_message(disk_path: Path) -> None:
    users = ["small", "huge", "chunks", "chunk"]
    with Server(disk_path, users, {"store.message_limit": "2G"}) as server:
        relayed(server, "small", PIECE)             # whatever is loaded at first use is loaded now
        before = fresh_peak(server)
        relayed(server, "huge", HUGE)
        growth = server.peak() - before
        assert growth < LMTP_GROWTH, f"{growth >> 20} MiB more than before"
        in_and_out(server, "small", PIECE)
        before = fresh_peak(server)
        in_and_out(server, "huge", HUGE)
        growth = server.peak() - before
        assert growth < GROWTH, f"{growth >> 20} MiB more than before"
        assert len(server.messages) == 2            # the same content, however it came, is one file
        server.check()
