"""Postfix, Exim and OpenSMTPD with the configuration that we ship: everything arrives once for each recipient, as it
was sent, and is stored once, however a relay splits the recipients. (One message has 16 MiB; LARGEST_RELAYED=50: so
many.)
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from attrs import define, field

from mboxlist.names import MailboxName
from store.opening import open_store
from store.settings import Settings
from tests.support.processes import wait
from tests.support.readers import trace
from tests.support.servers.relay import DOMAIN, memory
from tests.support.servers.relays import RelayFor, exim, make_server, opensmtpd, postfix_with_policy
from tests.support.servers.server import Server
from tests.support.stores import messages

RELAYS = [postfix_with_policy, exim, opensmtpd]
EVERYBODY = [f"user{number:03d}" for number in range(200)]
# Recipients of each message: the limits that relays have for one transaction as they come (50, 100) among them.
CROWDS = [1] * 16 + [2, 3, 5, 10, 20, 49, 50, 51, 100, 101, 200]
LARGEST = int(os.environ.get("LARGEST_RELAYED", "16")) * 1024 * 1024
BINARY = [(70_000, 30), (3_000_000, 10), (LARGEST, 3)]      # octets of a message, and for how many it is


@define
class Job:
    """The server, and up to where each user's INBOX has been read."""

    server: Server
    read: dict[str, int] = field(factory=dict)

    def duplicates(self) -> Iterator[tuple[str, list[bytes]]]:
        """What has come into each user's INBOX since the last time."""
        store = open_store(self.server.root, Settings())
        try:
            for user in EVERYBODY:
                entry = store.entry(MailboxName.parse(f"user/{user}/INBOX"))
                rows = store.open_mailbox(entry).rows
                rows = rows[rows["uid"] > self.read.get(user, 0)]
                found = []
                for row in rows:
                    with store.open_message(entry, row) as message:
                        found.append(message.read(0, message.size))
                    self.read[user] = int(row["uid"])
                yield user, found
        finally:
            store.close()


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    with TemporaryDirectory(prefix="onecopy-", dir=memory()) as folder:
        with make_server(Path(folder), EVERYBODY) as server:
            yield Job(server)


def sender(number: int) -> str:
    return f"sender{number % 7}@{DOMAIN}"


def binary(seed: int, number: int, size: int, *, nul: bool) -> bytes:
    """All octets but CR and LF, and perhaps not NUL, in lines of up to 4,990."""
    head = b"\r\n".join([
        b"Date: 9 Nov 2026 03:13:00 +0100", b"From: sender@example.org", b"Message-ID: <%d.%d@binary>" % (seed, number),
        messages.mark(seed, number), b"MIME-Version: 1.0", b"Content-Type: application/octet-stream",
        b"Content-Transfer-Encoding: 8bit", b"", b""])
    octets = Random(f"binary/{seed}/{number}").randbytes(size - len(head)).replace(b"\r", b"R").replace(b"\n", b"N")
    if not nul:
        octets = octets.replace(b"\0", b"0")
    return head + b"\r\n".join(re.findall(rb"(?s).{1,4990}", octets)) + b"\r\n"


def plan(seed: int, *, nul: bool) -> tuple[dict[int, bytes], dict[int, list[str]]]:
    """What is sent, and who gets it."""
    random = Random(seed)
    sizes = messages.sizes(seed, len(CROWDS), 1024, 512 * 1024)
    sent = {number: messages.make(seed, number, size) for number, size in enumerate(sizes)}
    for number, (size, _) in enumerate(BINARY, len(CROWDS)):
        sent[number] = binary(seed, number, size, nul=nul)
    return sent, {number: random.sample(EVERYBODY, how_many)
                  for number, how_many in enumerate(CROWDS + [how_many for _, how_many in BINARY])}


@pytest.mark.parametrize("relay_for", RELAYS)
def test_everything_arrives_as_it_was_sent_and_is_stored_once(job: Job, relay_for: RelayFor) -> None:
    before = len(job.server.messages)
    # No relay hands on a CR or LF alone as it came (RFC 5321 §2.3.8), and OpenSMTPD drops what follows a NUL in a line.
    sent, crowds = plan(RELAYS.index(relay_for), nul=relay_for is not opensmtpd)
    with relay_for(job.server) as relay:
        with relay.smtp() as smtp:
            for number, crowd in crowds.items():
                refused = smtp.sendmail(sender(number), [f"{user}@{DOMAIN}" for user in crowd], sent[number],
                                        mail_options=["BODY=8BITMIME"])
                assert refused == {}
        relay.empty(limit=300)
    assert len(job.server.messages) - before == len(sent)
    for user, found in job.duplicates():
        numbers = [messages.number_of(octets)[1] for octets in found]
        assert Counter(numbers) == Counter(number for number, crowd in crowds.items() if user in crowd), user
        for number, octets in zip(numbers, found, strict=True):
            assert trace.below(octets, sender(number), relayed=True) == sent[number], f"{user}: {number} has changed"
    wait.until(lambda: job.server.staged == [], "messages have their places", pid=job.server.pid, limit=180)
    job.server.check()
