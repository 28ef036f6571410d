"""Load from many connections, and the look at every mailbox that must follow."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

from tests.crash.ledger import Ledger
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp, Reply
from tests.support.servers.server import PASSWORD, Server

CONNECTIONS = 8
READERS = 2
LOOKS = 100                         # of a reader into one mailbox
USERS = [f"user{number}" for number in range(10)]
MOST = 250                          # answers in a round before the kill
LIMIT = 180                          # seconds for these answers: far more than they take


def deliver(server: Server, ledger: Ledger, random: Random) -> None:
    """One connection: message after message until the server is gone."""
    try:
        with Lmtp(server.lmtp) as lmtp:
            while True:
                number, recipients = ledger.again(USERS) if random.random() < 0.1 else (-1, [])
                if not recipients:
                    big = random.random() < 0.05
                    size = random.randrange(150_000, 400_000) if big else random.randrange(1024, 30_000)
                    recipients = random.sample(USERS, random.choice([1, 1, 1, 2, 5]))
                    number = ledger.begin(size, recipients)

                def told(recipient: str, reply: Reply, number: int = number) -> None:
                    assert reply.code == 250, f"{recipient}: {reply}"
                    ledger.answered(recipient, number)

                lmtp.deliver("sender@example.org", recipients, ledger.sent[number], told=told)
    except ConnectionError:
        return


def read(server: Server, ledger: Ledger, random: Random, killed: threading.Event) -> None:
    """One reader: waits for news in some mailbox and reads it, and now and then removes the newest message.

    A connection that is made in the moment of the restart is answered by the next server: so `killed` ends it, too.
    """
    try:
        while not killed.is_set():
            user = random.choice(USERS)
            with Imap(server.imap, user, PASSWORD) as imap:
                uidvalidity, exists = imap.select()
                for _ in range(LOOKS):
                    if exists:
                        look_at_news(imap, ledger, user, uidvalidity, random)
                    exists = any(response.text.endswith(b" EXISTS") for response in imap.ok("NOOP").untagged)
    except ConnectionError:
        return


def look_at_news(imap: Imap, ledger: Ledger, user: str, uidvalidity: int, random: Random) -> None:
    """Read the newest messages of the selected mailbox."""
    found = imap.messages(f"{ledger.newest(user)}:*")
    for uid, octets in found.items():
        ledger.seen(user, uidvalidity, uid, octets)
    if found and random.random() < 0.03:
        newest = max(found)
        ledger.removing(user, newest)
        imap.ok(f"UID STORE {newest} +FLAGS.SILENT (\\Deleted)")
        imap.ok(f"UID EXPUNGE {newest}")
        ledger.removed(user, newest)


def load_until_killed(server: Server, ledger: Ledger, random: Random, kill: Callable[[], object]) -> None:
    """Load until a random answer has come, and a random moment longer; then `kill`, which ends all connections.

    Every other time the kill comes at once when a reader sees a message whose sender has no answer yet.
    """
    at_once = random.random() < 0.5
    answers = ledger.after(random.randrange(1, MOST), or_seen_early=at_once)
    moment = 0.0 if at_once else random.uniform(0, 0.03)
    killed = threading.Event()
    with ThreadPoolExecutor(CONNECTIONS + READERS) as pool:
        jobs = [pool.submit(deliver, server, ledger, Random(random.random())) for _ in range(CONNECTIONS)]
        jobs += [pool.submit(read, server, ledger, Random(random.random()), killed) for _ in range(READERS)]
        try:
            enough = answers.wait(LIMIT)
            threading.Event().wait(moment)
            kill()
        finally:
            killed.set()
    for job in jobs:
        job.result()
    assert enough, f"too few answers in {LIMIT} s\n{server.said()}"


def inspect(server: Server, ledger: Ledger, *, everything: bool = False) -> None:
    """All mailboxes as they are after a restart, against what must be in them."""
    def look(user: str) -> None:
        with Imap(server.imap, user, PASSWORD) as imap:
            uidvalidity, _ = imap.select(examine=True)
            uids = imap.uids()
            assert uids == sorted(set(uids))
            unknown = [uid for uid in uids if everything or not ledger.knows(user, uidvalidity, uid)]
            if unknown:
                found = imap.messages(",".join(map(str, unknown)))
                assert sorted(found) == unknown
                for uid, octets in found.items():
                    ledger.seen(user, uidvalidity, uid, octets)
            ledger.judge(user, uidvalidity, uids)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(look, USERS))
    ledger.judge_recipients()
