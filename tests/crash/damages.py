"""A large store is harmed in random ways, and started by a real `onecopy serve` each time:

    python -m tests.crash.damages FOLDER [WAYS] [SEED] [FIRST]      # ways FIRST to FIRST + WAYS of that seed
    python -m tests.crash.damages FOLDER 40 --only "bits of message files"      # of the kinds with that in their names
    python -m tests.crash.damages table FILE...                     # of what several runs have printed

FOLDER is a store that nobody uses, as `onecopy spark generate --small` makes one; it gets a second partition, users who
can log in, and a snapshot, and stays so. Each way harms a copy of its environments, half of the time beside a snapshot.
What three users see over IMAP, and all records of the store, must be as before; the report must name the damage. A line
of JSON for each way, and a table at the end.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from attrs import asdict, define, field

from mboxlist.engine.transact import transact
from store.opening import open_store
from store.partitions import partitionmove, volumes
from store.recovery import environments
from store.recovery.userareacheck import reconcile
from store.settings import Settings
from store.snapshots import taking
from tests.conftest import MEMORY
from tests.crash import harm
from tests.crash.harm import SECOND, Way
from tests.support.clients.imap import Imap
from tests.support.faults.volume import Volume
from tests.support.processes import command, wait
from tests.support.servers.server import GREETINGS, Server, _greets
from tests.support.stores.stores import HASH

USERS = 3
LIMIT = 60.0                # seconds until it serves
PATIENCE = 600.0            # seconds until that is given up
SHOWN = 40                  # messages at either end of each mailbox that are read
SPOILT = 5                  # message files that are harmed
SETTINGS = Settings(disk_reserve=0, cache=64 << 20)
MOST = 4 << 30              # octets of a volume that is filled up
Records = dict[str, str]
#: By mailbox: UID -> a digest of what the user sees of the message.
Shown = dict[str, dict[int, str]]


class Large(Server):
    """A server on a store that is there."""

    def command(self, *arguments: str, status: int = 0, octets: bytes = b"") -> str:
        return "" if arguments == ("init",) else super().command(*arguments, status=status, octets=octets)

    def answers(self) -> None:
        for name, greeting in GREETINGS.items():
            port = getattr(self, name)
            wait.until(lambda port=port, greeting=greeting: self._greets(port, greeting), f"{name} greets",
                       pid=self.pid, limit=PATIENCE)

    @staticmethod
    def _greets(port: int, greeting: bytes) -> bool:
        try:
            return _greets(port, greeting, b"")
        except TimeoutError:                        # it listens, and is not ready yet
            return False


    def wait_long(self) -> int:
        """Its exit status; the supervisor may try some times."""
        assert self._process is not None
        status = self._process.wait(PATIENCE)
        self._process = None
        return status

    def kill_after(self, seconds: float) -> None:
        """SIGKILL some moment from now."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            self._process = None

    def command_ended(self, *arguments: str) -> str:
        """What `onecopy` prints, whatever its exit status is."""
        _, out, error = command.run(arguments, self.environment(), b"", PATIENCE)
        return out + error


# What is known

@define
class Known:
    """What was in the store: all records, what some users see, and where some messages are: by their digests the user,
    mailbox and UID."""

    records: Records
    shown: dict[str, Shown]
    places: dict[str, list[tuple[str, str, int]]]


def records(root: Path) -> Records:
    """A digest of all that is known of each mailbox's messages."""
    store = open_store(root, SETTINGS)
    found = {}
    for entry in store.mailboxes.all():
        rows = store.open_mailbox(entry).rows
        digest = hashlib.blake2b(digest_size=16)
        for column in ("uid", "flags", "keywords", "received", "zone", "size", "header_length", "digest"):
            digest.update(rows[column].tobytes())
        found[str(entry.name)] = digest.hexdigest()
    store.close()
    return found


def places(root: Path, shown: dict[str, Shown]) -> dict[str, list[tuple[str, str, int]]]:
    """Where the messages are that some users see."""
    store = open_store(root, SETTINGS)
    found: dict[str, list[tuple[str, str, int]]] = {}
    for user, there in shown.items():
        for entry in [entry for entry in store.mailboxes.all() if entry.name.to_client(user) in there]:
            rows = store.open_mailbox(entry).rows
            for uid, digest in zip(rows["uid"].tolist(), rows["digest"].tolist(), strict=True):
                if uid in there[entry.name.to_client(user)]:
                    found.setdefault(digest.hex(), []).append((user, entry.name.to_client(user), uid))
    store.close()
    return found


def seen(port: int, user: str) -> Shown:
    """A digest of what the user sees of the first and last messages; "" of one that cannot be read."""
    found: Shown = {}
    with Imap(port, user) as imap:
        names = [response.text.rpartition(b'"/" ')[2].strip() for response in imap.ok('LIST "" "*"').untagged
                 if response.text.startswith(b"* LIST") and rb"\Noselect" not in response.text]
        for name in names:
            opened = imap.ok("EXAMINE " + name.decode())
            last = next(int(text.split()[1]) for text in (each.text for each in opened.untagged) if b" EXISTS" in text)
            wanted = f"1:{min(SHOWN, last)},{max(1, last - SHOWN)}:{last}" if last else ""
            what = "(UID FLAGS INTERNALDATE RFC822.SIZE BODY.PEEK[])"
            answer = imap.command(f"FETCH {wanted} {what}" if last else "NOOP")
            there = found[name.decode().strip('"')] = {}
            for response in answer.untagged:
                if b" FETCH " in response.text:
                    text = re.sub(rb"^\* \d+ | ?\\Recent", b"", response.text) + b"".join(response.literals)
                    uid = int(re.search(rb"UID (\d+)", text)[1])        # type: ignore[index]
                    there[uid] = "" if not response.literals else hashlib.blake2b(text, digest_size=8).hexdigest()
    return found


# The store

def places_of(root: Path) -> list[Path]:
    """Its partitions."""
    return sorted(path for path in (root / "partitions").iterdir() if path.is_dir())


def copy(whole: Path, root: Path, *, snapshot: bool, messages: bool) -> None:
    """A store with environments of its own, as they are after a clean end. What is never modified in place gets a
    second name there; message files do if they are to be harmed, else they are shared."""
    (root / "run").mkdir(parents=True)
    for base in places_of(whole):
        place = root / "partitions" / base.name
        (place / "staging").mkdir(parents=True)
        if messages:
            subprocess.run(["cp", "-a", base / "messages", place / "messages"], check=True)
        else:
            (place / "messages").symlink_to((base / "messages").resolve(), target_is_directory=True)
        _tables(base / "index", place / "index")
        subprocess.run(["cp", "-a", base / "users", place / "users"], check=True)
    _tables(whole / harm.LIST, root / harm.LIST)
    if snapshot:
        subprocess.run(["cp", "-a", whole / "snapshots", root / "snapshots"], check=True)
    if (whole / "tls").is_dir():
        shutil.copytree(whole / "tls", root / "tls")


def _tables(whole: Path, copy: Path) -> None:
    copy.mkdir(mode=0o700)
    for path in whole.iterdir():
        if not path.name.startswith("__db."):
            shutil.copy2(path, copy / path.name)


def prepare(whole: Path) -> list[str]:
    """Two partitions, users who can log in, a snapshot, and no more of the log than is needed; the users."""
    store = open_store(whole, SETTINGS)
    users = [account.user for account in store.directory.all()][:USERS]     # type: ignore[attr-defined]
    for user in users:
        store.directory.change(user, password_hash=HASH)                    # type: ignore[attr-defined]
    if SECOND not in store.partitions:
        volumes.add(store, SECOND)
        partitionmove.move_owner(store, users[-1], SECOND)
    if not taking.listed(taking.folder(whole, SETTINGS)):
        taking.create(store)
    reconcile(store)            # or a store.idx that is missing would be one that is still to be written
    for env in (store.mailboxes.env, *(partition.env for partition in store.partitions.values())):
        transact(env, lambda txn: None)
        env.checkpoint()
        env.drop_logs()
    store.close()
    return users


# Ways

@define
class Tried:
    """What came of one way. `up`: seconds until it served, of each start; `unlike`: harmed message files that were
    shown, otherwise than they were."""

    number: int
    kind: str
    way: str
    snapshot: bool
    up: list[float] = field(factory=list)
    sources: list[str] = field(factory=list)
    named: bool = True
    missing: list[str] = field(factory=list)
    wrong: list[str] = field(factory=list)
    unlike: int = 0


def kinds(only: str = "") -> dict[str, list[str]]:
    """The ways of each kind, of those that have that in their names."""
    found: dict[str, list[str]] = {}
    for way in (*harm.LARGE, *harm.SPOILING, *(f"{cut} while {way}" for cut in (FULL, KILLED) for way in MENDED)):
        kind = re.sub(r"(\S+/)*(\w+)\.db", "a table", way).partition(" while ")[0]
        if only in kind:
            found.setdefault(kind, []).append(way)
    return found


FULL, KILLED = "the disk is full at first", "the start is killed at first"
MENDED = ("the partition's folder is gone", "all folders are gone", f"{harm.INDEX}/index.db is deleted",
          f"a page of {harm.INDEX}/messages.db is junk", "the logs are gone")


def main(whole: Path, ways: int, seed: int, first: int, only: str = "") -> int:
    """The exit status."""
    assert kinds(only), f"{only!r} is in none of {sorted(kinds())}"
    users = prepare(whole)
    done = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as top:
        known = know(whole, Path(top) / "whole", users)
        for number in range(first, first + ways):
            tried = attempt(whole, Path(top) / str(number), known, number, Random(f"{seed} {number}"), only)
            print(json.dumps(asdict(tried)), flush=True)
            done.append(tried)
    print(table(done))
    return 1 if any(tried.wrong for tried in done) else 0


def know(whole: Path, folder: Path, users: list[str]) -> Known:
    """What is in the store before anything is harmed."""
    copy(whole, folder / "store", snapshot=False, messages=False)
    with Large(folder) as server:
        shown = {user: seen(server.imap, user) for user in users}
        server.stop()
    found = Known(records(folder / "store"), shown, places(folder / "store", shown))
    shutil.rmtree(folder)
    return found


def attempt(whole: Path, folder: Path, known: Known, number: int, random: Random, only: str = "") -> Tried:
    """Harm a copy in one way, and start it."""
    kind, ways = random.choice(list(kinds(only).items()))
    way = random.choice(ways)
    tried = Tried(number, kind, way, random.random() < 0.5)
    try:
        if way.startswith(FULL):
            with Volume(folder, MOST) as volume:
                _attempt(whole, folder, known, tried, random, volume)
        else:
            _attempt(whole, folder, known, tried, random, None)
    except AssertionError as error:
        tried.wrong.append(f"{error}"[-2000:])
    shutil.rmtree(folder, ignore_errors=True)
    return tried


def _attempt(whole: Path, folder: Path, known: Known, tried: Tried, random: Random, volume: Volume | None) -> None:
    root, way = folder / "store", tried.way.rpartition(" while ")[2]
    copy(whole, root, snapshot=tried.snapshot, messages=way in harm.SPOILING)
    spoilt: list[str] = []
    if way in harm.SPOILING:
        spoilt = random.sample(sorted(known.places), SPOILT)
        said = harm.SPOILING[way](root, random, spoilt)
    else:
        said = _way(way)(root, random)
    server = Large(folder)
    if volume is not None:
        volume.fill(random.randrange(8 << 20, 200 << 20))
        server.launch()
        status = server.wait_long()
        text = server.said()
        if status == 0 or "No space left" not in text and "full" not in text.lower():
            tried.wrong.append(f"on a full disk it ended with {status}: {text[-300:]}")
        volume.release()
    elif tried.way.startswith(KILLED):
        for _ in range(random.randrange(1, 4)):
            server.launch()
            server.kill_after(random.uniform(0.5, 6))
    begun = time.monotonic()
    with server:
        tried.up.append(round(time.monotonic() - begun, 1))
        compare(server, known, said, spoilt, tried)
    if max(tried.up) > LIMIT:
        tried.wrong.append(f"it took {max(tried.up):.0f} s")


def _way(name: str) -> Way:
    return harm.LARGE[name]


def compare(server: Large, known: Known, said: dict[str, list[str]], spoilt: list[str], tried: Tried) -> None:
    """What is wrong. A page that is bad is met when it is read: then the server starts once more."""
    for user, there in known.shown.items():
        now = _seen(server, user, tried)
        expected = there if now is None else now
        there, expected = _without(spoilt, user, there, known), _without(spoilt, user, expected, known)
        tried.wrong += [f"{user}: {name} " + _unlike(there.get(name, {}), expected.get(name, {}))
                        for name in there.keys() | expected.keys() if there.get(name) != expected.get(name)]
        for digest in spoilt:
            for owner, name, uid in known.places[digest]:
                if owner == user and now is not None and uid in now.get(name, {}):
                    tried.unlike += now[name][uid] not in ("", known.shown[user][name][uid])
    if tried.unlike:
        tried.wrong.append(f"{tried.unlike} damaged messages are shown")
    server.stop()
    text = server.command_ended("scrub") if spoilt else server.command_ended("check") if harm.CHECKED in said else ""
    after: Records = {}
    for _ in range(3):
        try:
            after = records(server.root)
            break
        except harm.BROKEN:
            harm.let_go(server.root)
    tried.wrong += [f"records of {name}" for name in known.records.keys() | after.keys()
                    if known.records.get(name) != after.get(name)]
    reports = [report for _, report in environments.reports(server.root)]
    events = [event for report in reports for event in report["environments"]]
    tried.sources = [re.sub(r"2\d{7}T\d{6}Z", "of that day", event["source"]) for event in events]
    tried.missing = [what for event in events for what in event["missing"]][:10]
    tried.named = harm.named(reports, {name: files for name, files in said.items() if name != harm.CHECKED}) and all(
        file in text for file in said.get(harm.CHECKED, []))
    if not tried.named:
        tried.wrong.append(f"it is not named: {said} in {str(reports)[:300]} {text[:300]}")
    tried.wrong = tried.wrong[:8]


def _seen(server: Large, user: str, tried: Tried) -> Shown | None:
    """None when nobody can log in, and the report says so."""
    for _ in range(3):
        try:
            return seen(server.imap, user)
        except (OSError, AssertionError) as error:
            if any("inactive" in what for _, report in environments.reports(server.root)
                   for event in report["environments"] for what in event["missing"]):
                return None
            last, begun = error, time.monotonic()
            server.answers()
            tried.up.append(round(time.monotonic() - begun, 1))
    return {f"{last!r:.200}": {}}


def _without(spoilt: list[str], user: str, shown: Shown, known: Known) -> Shown:
    gone = {(name, uid) for digest in spoilt for owner, name, uid in known.places[digest] if owner == user}
    return {name: {uid: what for uid, what in there.items() if (name, uid) not in gone}
            for name, there in shown.items()}


def _unlike(there: dict[int, str], now: dict[int, str]) -> str:
    return (f"lost {len(there.keys() - now.keys())}, new {len(now.keys() - there.keys())}, "
            f"others {sum(there[uid] != now[uid] for uid in there.keys() & now.keys())}")


# The table

def table(done: list[Tried]) -> str:
    """For people."""
    lines = [f"{'harm':<52} {'ways':>4} {'up: median':>10} {'worst':>7} {'lost':>5} {'unlike':>6} {'named':>6}  "
             "rebuilt from"]
    for kind in sorted({tried.kind for tried in done}):
        of = [tried for tried in done if tried.kind == kind]
        up = [max(tried.up) for tried in of if tried.up]
        sources = sorted({re.sub("^(a|the) ", "", source) for tried in of for source in tried.sources})
        lost = sum(any(not each.startswith(("it took", "it is not named")) for each in tried.wrong) for tried in of)
        lines.append(f"{kind:<52} {len(of):>4} {statistics.median(up or [0]):>8.1f} s {max(up or [0]):>5.1f} s "
                     f"{lost:>5} {sum(tried.unlike for tried in of):>6} {sum(tried.named for tried in of):>6}  "
                     + ("; ".join(sources) or "-"))
    up = [max(tried.up) for tried in done if tried.up]
    lines.append(f"{len(done)} ways; up after {statistics.median(up or [0]):.1f} s in the median, "
                 f"{max(up or [0]):.1f} s at worst; {sum(bool(tried.wrong) for tried in done)} with something wrong")
    return "\n".join([*lines, *(f"{tried.number} {tried.way}: {each}" for tried in done for each in tried.wrong[:3])])


def read(files: list[str]) -> Iterator[Tried]:
    """What runs have printed; of a way that was tried again the last."""
    found: dict[tuple[int, str], Any] = {}
    for name in files:
        for line in Path(name).read_text().splitlines():
            if line.startswith("{"):
                values = json.loads(line)
                found[values["number"], values["way"]] = values
    return (Tried(**found[key]) for key in sorted(found))


def parse(words: list[str]) -> argparse.Namespace:
    """What is wanted."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.damages")
    parser.add_argument("folder", type=Path)
    parser.add_argument("ways", type=int, nargs="?", default=200)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--only", default="", metavar="TEXT", help="kinds with that in their names")
    return parser.parse_args(words)


if __name__ == "__main__":
    if sys.argv[1:2] == ["table"]:
        print(table(list(read(sys.argv[2:]))))
        sys.exit(0)
    os.umask(0o077)
    wanted = parse(sys.argv[1:])
    sys.exit(main(wanted.folder, wanted.ways, wanted.seed, wanted.first, wanted.only))
