"""The main job: Postfix hands messages over by LMTP, once each; mbsync, fetchmail and curl read what was sent. (120
messages; MAIN_JOB=500: so many.)"""

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from attrs import define, field

from tests.support.processes import wait
from tests.support.readers import readers, trace
from tests.support.servers.postfix import DOMAIN, Postfix
from tests.support.servers.server import PASSWORD, Server
from tests.support.stores import messages
from tests.support.stores.folders import disk_folder

SEED = 20261120
HOW_MANY = int(os.environ.get("MAIN_JOB", "120"))
EVERYBODY = [f"user{number:02d}" for number in range(50)]
BUSY = EVERYBODY[:5]                # all messages go to at least one of these
SENDERS = 4                         # connections to Postfix


@define
class Job:
    """What was sent, and the server that has it now."""

    server: Server
    sent: dict[int, bytes]
    recipients: dict[int, list[str]]
    as_handed_on: dict[int, bytes] = field(factory=dict)      # number -> the octets that some client got first

    def judge(self, user: str, found: list[bytes]) -> None:
        """One client's idea of a mailbox: the right messages, each once, each with the octets that were sent."""
        numbers = [messages.number_of(octets)[1] for octets in found]
        wanted = [number for number, users in self.recipients.items() if user in users]
        assert Counter(numbers) == Counter(wanted), user
        for number, octets in zip(numbers, found, strict=True):
            content = trace.below(octets, sender(number), relayed=True)
            assert content == self.sent[number], f"{user}: message {number} is not as it was sent"
            first = self.as_handed_on.setdefault(number, octets)
            assert octets == first, f"{user}: message {number} is not what others got"


def sender(number: int) -> str:
    return f"sender{number % 7}@{DOMAIN}"


def plan() -> dict[int, list[str]]:
    """Who gets which message: every twentieth goes to all 50, every tenth to some, the rest to one."""
    random = Random(SEED)
    chosen = {}
    for number in range(HOW_MANY):
        if number % 20 == 0:
            chosen[number] = EVERYBODY
        elif number % 10 == 1:
            chosen[number] = sorted({random.choice(BUSY), *random.sample(EVERYBODY, random.randrange(1, 6))})
        else:
            chosen[number] = [random.choice(BUSY)]
    return chosen


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    sent = {number: messages.make(SEED, number, size)
            for number, size in enumerate(messages.sizes(SEED, HOW_MANY, 1024, 1024 * 1024))}
    assert len(set(sent.values())) == HOW_MANY
    recipients = plan()
    with disk_folder() as folder, Server(folder, EVERYBODY) as server:
        with Postfix(server.lmtp) as postfix:
            def send(first: int) -> None:
                with postfix.smtp() as smtp:
                    for number in range(first, HOW_MANY, SENDERS):
                        refused = smtp.sendmail(sender(number), [f"{user}@{DOMAIN}" for user in recipients[number]],
                                                sent[number], mail_options=["BODY=8BITMIME"])
                        assert refused == {}
            with ThreadPoolExecutor(SENDERS) as pool:
                list(pool.map(send, range(SENDERS)))
            postfix.empty(limit=300)
            log = postfix.log()
        assert log.count(" relay=127.0.0.1") == log.count("status=sent") == sum(map(len, recipients.values())), \
            [line for line in log.splitlines() if "status=" in line and "status=sent" not in line][:20]
        yield Job(server, sent, recipients)


def test_mbsync_gets_what_was_sent(job: Job, disk_path: Path) -> None:
    mailboxes = readers.mbsync(job.server.imap, EVERYBODY, PASSWORD, disk_path / "mbsync")
    assert set(mailboxes) == set(EVERYBODY)
    for user, found in mailboxes.items():
        job.judge(user, found)


def test_fetchmail_gets_what_was_sent(job: Job, disk_path: Path) -> None:
    maildrops = readers.fetchmail(job.server.pop3, BUSY, PASSWORD, disk_path / "fetchmail")
    assert set(maildrops) == set(BUSY)
    for user, found in maildrops.items():
        job.judge(user, found)


def test_curl_gets_what_was_sent_and_path_says_where_it_is(job: Job, disk_path: Path) -> None:
    found = readers.curl(job.server.imap, BUSY, PASSWORD, disk_path / "curl")
    for user, octets in found.items():
        job.judge(user, list(octets.values()))
    random = Random(SEED)
    for user in BUSY:
        for uid in random.sample(sorted(found[user]), 4):
            path = Path(job.server.command("path", user, "INBOX", str(uid)).strip())
            assert path in job.server.messages
            assert path.read_bytes() == found[user][uid]


def test_each_message_is_there_once(job: Job) -> None:
    """One file for each distinct message, whoever it is for; nothing else, and nothing wrong anywhere."""
    files = job.server.messages
    assert len(files) == HOW_MANY
    numbers = set()
    for path in files:
        octets = path.read_bytes()
        number = messages.number_of(octets)[1]
        assert trace.below(octets, sender(number), relayed=True) == job.sent[number]
        numbers.add(number)
    assert len(numbers) == HOW_MANY
    wait.until(lambda: job.server.staged == [], "messages have their places", pid=job.server.pid, limit=180)
    job.server.check()
