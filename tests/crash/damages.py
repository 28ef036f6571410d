"""A large store is harmed in random ways, and started by a real `onecopy serve` each time:

    python -m tests.crash.damages FOLDER [WAYS] [SEED]

FOLDER is a store that nobody uses, as `onecopy spark generate --small` makes one; it stays as it is. Each way harms a
copy of its environments, half of the time beside a snapshot. What three users see over IMAP, and all records of the
store, must be as before; the report must name the damage. A line for each way, and a table at the end.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from attrs import define, field

from store import recovery, snapshots
from store.settings import Settings
from store.store import Store
from tests.conftest import MEMORY
from tests.crash import harm
from tests.support.imap import Imap
from tests.support.server import Server
from tests.support.stores import HASH

USERS = 3
LIMIT = 60.0                # seconds until it serves
SETTINGS = Settings(disk_reserve=0, cache=64 << 20)
Records = dict[str, str]


class Large(Server):
    """A server on a store that is there."""

    def command(self, *arguments: str, status: int = 0, octets: bytes = b"") -> str:
        return "" if arguments == ("init",) else super().command(*arguments, status=status, octets=octets)


def records(root: Path) -> Records:
    """A digest of all that is known of each mailbox's messages."""
    store = Store(root, SETTINGS)
    found = {}
    for entry in store.mailboxes.all():
        rows = store.open_mailbox(entry).rows
        digest = hashlib.blake2b(digest_size=16)
        for column in ("uid", "flags", "keywords", "received", "zone", "size", "skip", "mid"):
            digest.update(rows[column].tobytes())
        found[str(entry.name)] = digest.hexdigest()
    store.close()
    return found


def seen(port: int, user: str) -> dict[str, str]:
    """A digest of what the user sees in each mailbox."""
    found = {}
    with Imap(port, user) as imap:
        names = [response.text.rpartition(b'"/" ')[2].strip() for response in imap.ok('LIST "" "*"').untagged
                 if response.text.startswith(b"* LIST") and rb"\Noselect" not in response.text]
        for name in names:
            imap.ok("EXAMINE " + name.decode())
            answer = imap.ok("UID FETCH 1:* (UID FLAGS INTERNALDATE RFC822.SIZE BODY.PEEK[])")
            lines = sorted(re.sub(rb"^\* \d+ | ?\\\\Recent", b"", response.text) + b"".join(response.literals)
                           for response in answer.untagged if b" FETCH " in response.text)
            found[name.decode()] = hashlib.blake2b(b"\n".join(lines), digest_size=16).hexdigest()
    return found


def copy(whole: Path, root: Path, *, snapshot: bool) -> None:
    """A store with environments of its own; message files are shared."""
    place, base = root / "partitions/primary", whole / "partitions/primary"
    (place / "staging").mkdir(parents=True)
    (root / "run").mkdir()
    (place / "messages").symlink_to((base / "messages").resolve(), target_is_directory=True)
    for folder in (harm.LIST, harm.INDEX, "partitions/primary/users", *(["snapshots"] if snapshot else [])):
        subprocess.run(["cp", "-a", whole / folder, root / folder], check=True)
    if (whole / "tls").is_dir():
        shutil.copytree(whole / "tls", root / "tls")


def prepare(whole: Path) -> tuple[Records, list[str]]:
    """Users who can log in, a snapshot, and no more of the log than is needed."""
    store = Store(whole, SETTINGS)
    users = [account.user for account in store.directory.all()][:USERS]     # type: ignore[attr-defined]
    for user in users:
        store.directory.change(user, password_hash=HASH)                    # type: ignore[attr-defined]
    if not snapshots.listed(snapshots.folder(whole, SETTINGS)):
        snapshots.create(store)
    for env in (store.mailboxes.env, store.partitions["primary"].env):
        env.checkpoint()
        env.drop_logs()
    store.close()
    return records(whole), users


def main(whole: Path, ways: int, seed: int) -> int:
    """The exit status."""
    before, users = prepare(whole)
    random, results = Random(seed), Results()
    with tempfile.TemporaryDirectory(dir=MEMORY) as top:
        folder = Path(top) / "whole"
        copy(whole, folder / "store", snapshot=False)
        with Large(folder) as server:
            shown = {user: seen(server.imap, user) for user in users}
            server.stop()
        for number in range(ways):
            folder, snapshot = Path(top) / str(number), random.random() < 0.5
            way = random.choice(list(harm.WAYS))
            copy(whole, folder / "store", snapshot=snapshot)
            said = harm.WAYS[way](folder / "store", random)
            begun = time.monotonic()
            with Large(folder) as server:
                took = time.monotonic() - begun
                wrong = compare(server, shown, before, said)
            results.add(way, snapshot, took, wrong)
            print(f"{number + 1}: {way}, {'with' if snapshot else 'without'} a snapshot: {took:.1f} s {wrong}",
                  flush=True)
            shutil.rmtree(folder)
    print(results.table())
    return 1 if results.wrong else 0


def compare(server: Large, shown: dict[str, dict[str, str]], before: Records, said: dict[str, list[str]]) -> list[str]:
    """What is wrong. A page that is bad is met when it is read: then the server starts once more."""
    wrong = []
    for user, there in shown.items():
        for last in (False, False, True):
            try:
                now = seen(server.imap, user)
                break
            except (OSError, AssertionError) as error:
                if any("inactive" in what for _, report in recovery.reports(server.root)
                       for event in report["environments"] for what in event["missing"]):
                    now = there                     # nobody can log in without users.db: the report says so
                    break
                now = {"": f"{error!r:.200}"}
                if not last:
                    server.answers()
        wrong += [f"{user}: {name}" for name in there.keys() | now.keys() if there.get(name) != now.get(name)]
    server.stop()
    after: Records = {}
    for _ in range(3):
        try:
            after = records(server.root)
            break
        except harm.BROKEN:
            harm.let_go(server.root)
    wrong += [f"records of {name}" for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    if not harm.named([report for _, report in recovery.reports(server.root)], said):
        wrong.append("the report does not name it")
    return wrong[:5]


@define
class Results:
    """By kind of harm: how many ways, how long the slowest took, and what was wrong."""

    ways: Counter[str] = field(factory=Counter)
    slowest: dict[str, float] = field(factory=dict)
    sources: Counter[str] = field(factory=Counter)
    wrong: list[str] = field(factory=list)

    def add(self, way: str, snapshot: bool, took: float, wrong: list[str]) -> None:
        """One has been tried."""
        kind = re.sub(r"(\S+/)*(\w+)\.db", "a table", way)
        self.ways[kind] += 1
        self.slowest[kind] = max(took, self.slowest.get(kind, 0.0))
        self.wrong += [f"{way}: {each}" for each in wrong]
        if took > LIMIT:
            self.wrong.append(f"{way}: it took {took:.0f} s")

    def table(self) -> str:
        """For people."""
        lines = [f"{'harm':<40} {'ways':>5} {'slowest start':>14}"]
        lines += [f"{kind:<40} {count:>5} {self.slowest[kind]:>12.1f} s" for kind, count in sorted(self.ways.items())]
        return "\n".join([*lines, f"{sum(self.ways.values())} ways, {len(self.wrong)} things wrong", *self.wrong[:20]])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int((sys.argv[2:] or ["200"])[0]), int((sys.argv[3:] or ["1"])[0])))
