"""A store is harmed in every way there is, and opened: it mends itself, nothing that was acknowledged is lost, nothing
wrong is shown, and the report names the damage.

The store is small, and each way harms a copy of it. `DAMAGES=all` tries every way on each store, else some are drawn.
`python -m tests.crash.damages FOLDER 200` harms a large store, and starts `onecopy serve` on it each time.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from random import Random

import pytest
from berkeleydb import db

from mboxlist.engine import damage
from mboxlist.engine.pages import bad_pages
from mboxlist.engine.transact import Failure
from mboxlist.names import MailboxName
from store.check import scrub
from store.check.wholecheck import check
from store.errors import StoreError
from store.mailboxes import namespace, subscribing
from store.mailboxes.expunge import expunge
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.partitions import partitionmove, volumes
from store.recovery import environments, knownfiles
from store.recovery.environments import Recovery, recovery_of
from store.recovery.partitionfill import PartitionFill
from store.snapshots import taking
from store.tables.references import FOREVER, UNSEEN_TRACE
from store.userarea import writing
from store.values import Flag, FlagAction, Flags
from tests.conftest import MEMORY
from tests.crash import damages, harm
from tests.crash.harm import WAYS, Ledger, ledger
from tests.support.clients.imap import Imap
from tests.support.faults.volume import Volume
from tests.support.processes import wait
from tests.support.servers.server import Server
from tests.support.stores.purging import purge
from tests.support.stores.stores import SMALL, deliver, let_go, make_store

MAILBOXES = ("user/alice/INBOX", "user/bob/INBOX", "user/alice/Archive")
TRACE = b"Return-Path: <sender@example.org>\r\nReceived: from a\r\n"
STAGES = ("young", "old", "snapshot")


def make(root: Path, stage: str) -> None:
    """A store with known content, killed in the middle of its work. `young`: with its log from the beginning; `old`:
    with no more of it than recovery needs; `snapshot`: as old, with a snapshot and the log since."""
    store = make_store(root)
    namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    namespace.create_mailbox(store, MailboxName("alice", "Archive/2026"))
    subscribing.subscribe(store, "alice", "Archive")
    for number in range(40):
        deliver(store, b"Subject: %d\r\n\r\n%d %s\r\n" % (number, number, b"x" * 300), *MAILBOXES[:1 + number % 3],
                trace=TRACE if number % 2 else b"")
    for env in (store.mailboxes.env, store.partitions["primary"].env):
        env.checkpoint()
    if stage == "snapshot":
        taking.create(store)
    writing.write_changed(store, hurry=True)
    for number in range(40, 50):
        deliver(store, b"Subject: %d\r\n\r\nnew %d\r\n" % (number, number), *MAILBOXES[:1 + number % 3], trace=TRACE)
    writing.write_changed(store, hurry=True)
    for env in (store.mailboxes.env, store.partitions["primary"].env):
        if stage != "young":
            env.checkpoint()
            env.flush()
    harm.image(store, root.with_name("image"), from_first_log=stage == "young")
    store.close()
    shutil.rmtree(root)
    root.with_name("image").rename(root)


@pytest.fixture(scope="module")
def damaged(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path, Ledger]]:
    """What the ways begin with, and what was in it."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, harm.small():
        yield _damaged(request.param, Path(folder) / "store")


def _damaged(stage: str, root: Path) -> tuple[str, Path, Ledger]:
    make(root, stage)
    copy = root.with_name("whole")
    shutil.copytree(root, copy)
    store = open_store(copy, SMALL)
    found = ledger(store)
    assert sum(map(len,
                   found.values())) == 99 and recovery_of(store) is not None and not recovery_of(store).events
    store.close()
    return stage, root, found


def _some() -> list[tuple[str, str]]:
    """Every way, or for each store those that are unlike each other."""
    if os.environ.get("DAMAGES") == "all":
        return [(stage, way) for stage in STAGES for way in WAYS]
    return [(stage, way) for stage, ways in FEW.items() for way in ways]


FEW = {
    "young": [f"a bit of {harm.INDEX}/index.db is flipped", f"{harm.LIST}/users.db is deleted",
              "bits of the newest log are flipped", "both folders are gone"],
    "old": [f"a bit of {harm.INDEX}/index.db is flipped", f"{harm.INDEX}/state.db is deleted",
            f"a page of {harm.INDEX}/messages.db is zeros", f"{harm.INDEX}/cache.db is deleted",
            f"{harm.LIST}/mailboxes.db is deleted", "the partition's folder is gone", "the logs are gone",
            "a bit at the end of the log is flipped",
            "bits of the newest log are flipped", "the regions are another's"],
    "snapshot": [f"a page of {harm.INDEX}/index.db is junk", f"{harm.LIST}/users.db is deleted",
                 "both folders are empty", "the logs are gone"],
}


@pytest.mark.parametrize(("damaged", "way"), _some(), indirect=["damaged"])
def test_a_damaged_store_mends_itself(damaged: tuple[str, Path, Ledger], way: str, tmp_path: Path) -> None:
    stage, whole, before = damaged
    root = tmp_path / "store"
    shutil.copytree(whole, root, copy_function=harm.copy)
    said = WAYS[way](root, Random(f"{way} {stage}"))
    for _ in range(3):              # as the supervisor does: what is found in use is mended at the next start
        try:
            store = open_store(root, SMALL)
            after = ledger(store)
            break
        except harm.BROKEN:
            harm.let_go(root)
    for item in list(knownfiles.uncached(store)):
        knownfiles.cache_one(store, item)
    wrong = harm.differences(before, after)
    assert recovery_of(store) is not None and not wrong, (way, stage, wrong[:5],
                                                                  recovery_of(store).events)
    assert check(store) == [], (way, stage)
    told = [json.loads(path.read_text()) for path in sorted((root / "recovered").glob("*.json"))]
    assert harm.named(told, said), (said, told)
    deliver(store, b"Subject: after\r\n\r\nafter\r\n", *MAILBOXES)
    for (name, uids) in ((name, set(before[name])) for name in MAILBOXES):
        added = set(ledger(store)[name]) - uids
        assert len(added) == 1 and min(added) > max(uids), (name, added)
    store.close()
    again = open_store(root, SMALL)
    assert recovery_of(again) is not None and not recovery_of(again).events and check(again) == []
    again.close()


class _Cut(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("damaged", ["old"], indirect=True)
@pytest.mark.parametrize("where", ["mending", "remaking", "reporting"])
def test_a_start_that_is_cut_off_while_it_mends_begins_that_anew(
        damaged: tuple[str, Path, Ledger], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """index.db is gone, and what else is sound must still be there for the second start."""
    _, whole, before = damaged
    root = tmp_path / "store"
    shutil.copytree(whole, root, copy_function=harm.copy)
    said = WAYS[f"{harm.INDEX}/index.db is deleted"](root, Random(1))
    place, name = {"mending": (damage, "mend"), "remaking": (PartitionFill, "_messages"),
                   "reporting": (Recovery, "report")}[where]

    def cut(*_: object, **__: object) -> None:
        raise _Cut

    with monkeypatch.context() as patch:
        patch.setattr(place, name, cut)
        with pytest.raises(_Cut):
            open_store(root, SMALL)
    harm.let_go(root)
    store = open_store(root, SMALL)
    told = [json.loads(path.read_text()) for path in (root / "recovered").glob("*.json")]
    assert harm.differences(before, ledger(store)) == [] and harm.named(told, said)
    assert "its tables" in str(told) and "nothing" not in str(told) and not (root / environments.MENDING).exists()
    for item in list(knownfiles.uncached(store)):
        knownfiles.cache_one(store, item)
    assert check(store) == []
    store.close()


@pytest.mark.parametrize("damaged", ["old"], indirect=True)
def test_a_message_that_comes_again_before_its_file_was_looked_at(damaged: tuple[str, Path, Ledger], tmp_path: Path
                                                                  ) -> None:
    """Its file begins with the trace header of the first one, which only the file tells."""
    _, whole, before = damaged
    root = tmp_path / "store"
    shutil.copytree(whole, root, copy_function=harm.copy)
    WAYS["both folders are gone"](root, Random(1))
    store = open_store(root, SMALL)
    body = b"Subject: 1\r\n\r\n1 %s\r\n" % (b"x" * 300)
    deliver(store, body, "user/alice/INBOX")
    other = TRACE.replace(b"sender", b"other")
    deliver(store, body, "user/alice/INBOX", trace=other)
    after = ledger(store)["user/alice/INBOX"]
    new = sorted(after.keys() - before["user/alice/INBOX"].keys())
    assert [after[uid][0] for uid in new] == [body, other + body]       # each delivery has its own
    for item in list(knownfiles.uncached(store)):
        knownfiles.cache_one(store, item)
    known = list(store.partitions["primary"].refs.all(raw=True))
    assert check(store) == [] and all(record.trace != UNSEEN_TRACE for _, record in known)
    store.close()


@pytest.mark.parametrize("given_back", [False, True])
def test_files_of_expunged_messages_wait_for_the_purge_when_the_tables_about_files_are_lost(
        given_back: bool, tmp_path: Path) -> None:
    """One was expunged: the index is whole, so it is nobody's, whether its reference had been given back or not."""
    store = make_store(tmp_path / "store")
    for number in range(2):
        deliver(store, b"Subject: %d\r\n\r\n" % number, "user/alice/INBOX")
    entry = store.entry(MailboxName("alice", "INBOX"))
    change_flags(store, entry, [2], FlagAction.ADD, Flags(Flag.DELETED))
    expunge(store, entry)
    if given_back:
        let_go(store)
    store.close()
    for name in ("messages.db", "purge.db"):
        (tmp_path / "store" / harm.INDEX / name).unlink()
    store = open_store(tmp_path / "store", SMALL)
    partition = store.partitions["primary"]
    assert len(list(partition.refs.waiting(FOREVER))) == given_back
    assert purge(partition, time.time() + SMALL.purge_delay + 1) == 1
    assert len(list((tmp_path / "store").glob("partitions/primary/messages/?/??/*"))) == 1
    for item in list(knownfiles.uncached(store)):
        knownfiles.cache_one(store, item)
    assert check(store) == []
    store.close()


def test_of_two_partitions_only_the_harmed_one_is_made_anew(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    volumes.add(store, harm.SECOND)
    for number in range(3):
        deliver(store, b"Subject: %d\r\n\r\n" % number, "user/alice/INBOX", "user/bob/INBOX", trace=TRACE)
    partitionmove.move_owner(store, "bob", harm.SECOND)
    before = ledger(store)
    store.close()
    shutil.rmtree(tmp_path / "store/partitions/second/index")
    store = open_store(tmp_path / "store", SMALL)
    assert recovery_of(store) is not None and list(recovery_of(store).events) == ["partitions/second/index"]
    for item in list(knownfiles.uncached(store)):
        knownfiles.cache_one(store, item)
    assert harm.differences(before, ledger(store)) == [] and check(store) == []
    store.close()


@pytest.mark.parametrize("way", harm.SPOILING)
def test_message_files_that_are_harmed_are_told_and_nothing_else_is_lost(way: str, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    volumes.add(store, harm.SECOND)
    for number in range(3):
        deliver(store, b"Subject: %d\r\n\r\n%s\r\n" % (number, b"x" * 400), "user/alice/INBOX", trace=TRACE)
    entry = store.entry(MailboxName("alice", "INBOX"))
    row = store.open_mailbox(entry).rows[1]
    before = ledger(store)["user/alice/INBOX"]
    store.close()
    digest = bytes(row["digest"]).hex()
    said = harm.SPOILING[way](tmp_path / "store", Random(3), [digest])
    store = open_store(tmp_path / "store", SMALL)
    mailbox = store.open_mailbox(entry)
    assert mailbox.rows["uid"].tolist() == [1, 2, 3]
    for uid, at in ((1, 0), (2, 1), (3, 2)):
        with suppress(StoreError) if uid == 2 and "bits" not in way else nullcontext(), store.open_message(
                entry, mailbox.rows[at]) as file:
            octets = file.read(0, file.size)
            assert (octets == before[uid][0]) is (uid != 2)     # flipped bits are not noticed by who only reads
    for item in list(knownfiles.uncached(store)):
        knownfiles.cache_one(store, item)
    told = [json.loads(path.read_text()) for path in (tmp_path / "store/recovered").glob("*.json")]
    assert harm.named(told, {name: files for name, files in said.items() if name != harm.CHECKED})
    folder = next(scrub.scrub(store.partitions["primary"], scrub.Pace(), first=int(digest[:3], 16)))
    assert digest in str(folder.findings)
    store.close()


def test_store_idx_that_is_harmed_beside_sound_databases_is_told_by_check(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    deliver(store, b"Subject: 1\r\n\r\n", "user/alice/INBOX", "user/bob/INBOX")
    before = ledger(store)
    store.close()
    for way in harm.PORTABLE.values():
        said = way(tmp_path / "store", Random(1))
        store = open_store(tmp_path / "store", SMALL)
        assert ledger(store) == before and recovery_of(store) is not None and not recovery_of(store).events
        found = str(check(store))
        assert all(path in found for path in said[harm.CHECKED])
        for name in before:
            deliver(store, b"Subject: again\r\n\r\n", name)
        writing.write_changed(store, hurry=True)       # a change writes the whole file
        assert check(store) == []
        before = ledger(store)
        store.close()


def _refusal(root: Path) -> str:
    try:
        open_store(root, SMALL)
    except (StoreError, OSError, Failure) as error:
        return f"{error} {getattr(error, 'detail', '')}"
    return ""


def test_no_room_to_mend_is_no_damage(tmp_path: Path) -> None:
    """The start fails, and says why; with room the next one mends from all that there was."""
    with Volume(tmp_path / "volume", 192 << 20) as volume, harm.small():
        store = make_store(volume.folder / "store")
        for number in range(20):
            deliver(store, b"Subject: %d\r\n\r\n" % number, "user/alice/INBOX")
        before = ledger(store)
        store.close()
        (volume.folder / "store" / harm.INDEX / "state.db").unlink()
        volume.fill(1 << 20)
        said = damage.apart(lambda: _refusal(volume.folder / "store"), tmp_path)
        assert "o space left" in said or "no room" in said, said
        volume.release()
        harm.let_go(volume.folder / "store")
        store = open_store(volume.folder / "store", SMALL)
        assert harm.differences(before, ledger(store)) == []
        assert recovery_of(store) is not None and "nothing" not in str(recovery_of(store).events)
        store.close()


@pytest.mark.parametrize("env", ["the list's", "the partition's"])
@pytest.mark.parametrize("what", ["the modes of {} files are wrong", "{} files are another's"])
def test_files_that_cannot_be_used_are_given_back(what: str, env: str, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    deliver(store, b"Subject: 1\r\n\r\n", "user/alice/INBOX")
    before = ledger(store)
    store.close()
    said = harm.OWNERS[what.format(env)](tmp_path / "store", Random(1))
    store = open_store(tmp_path / "store", SMALL)
    told = [json.loads(path.read_text()) for path in (tmp_path / "store/recovered").glob("*.json")]
    assert ledger(store) == before and harm.named(told, said) and check(store) == []
    store.close()


def test_pages_in_wrong_places_or_of_zeros_or_with_another_octet_are_found(tmp_path: Path) -> None:
    """Each kind alone, against a table that has checksums and one that has none."""
    for checksums in (True, False):
        path = tmp_path / f"{checksums}.db"
        table = db.DB()
        table.set_pagesize(4096)
        table.set_flags(db.DB_CHKSUM if checksums else 0)
        table.open(str(path), dbtype=db.DB_BTREE, flags=db.DB_CREATE)
        for number in range(400):
            table.put(b"%04d" % number, b"x" * 100)
        table.close()
        whole = path.read_bytes()
        assert bad_pages(path) == ""
        for harmed in (whole[:4096] + whole[8192:12288] + whole[4096:8192] + whole[12288:],
                       whole[:8192] + bytes(4096) + whole[12288:], whole[:-4096],
                       *([whole[:9000] + bytes([whole[9000] ^ 8]) + whole[9001:]] if checksums else [])):
            path.write_bytes(harmed)
            assert bad_pages(path), (checksums, len(harmed))


def test_a_page_that_goes_bad_in_use_is_mended_by_the_next_start(tmp_path: Path) -> None:
    """The supervisor's ordinary restart, once: the second start knows what the first one has met."""
    server = Server(tmp_path, ["alice"])
    bodies = [b"Subject: %d\r\n\r\n%s\r\n" % (number, b"x" * number) for number in range(3)]
    with server:
        with Imap(server.imap, "alice") as imap:
            for body in bodies:
                imap.append("INBOX", body)
        server.stop()
        harm.WAYS[f"a bit of {harm.INDEX}/index.db is flipped"](server.root, Random(1))
        for _ in range(2):              # the first time the server goes away, and comes back mended
            server.start() if not environments.reports(server.root) and server._process is None else server.answers()
            with suppress(OSError, AssertionError), Imap(server.imap, "alice") as imap:
                imap.ok("SELECT INBOX")
                found = imap.ok("UID FETCH 1:* (UID BODY.PEEK[])").untagged
                break
            wait.until(lambda: bool(environments.reports(server.root)), "the report", pid=server.pid, limit=180)
        assert [response.literals[0] for response in found if response.literals] == bodies
        (_, report), = environments.reports(server.root)
        assert "index.db" in str(report) and server.stop() == 0
    server.check()
    assert "own log" in server.command("recover", "--list")


def test_kinds_of_harm_can_be_named():
    bits = "bits of message files are flipped"
    assert damages.kinds("bits of message") == {bits: [bits]}
    assert set(damages.kinds("message files are cut off")) < set(damages.kinds()) and damages.kinds("no such") == {}
    wanted = damages.parse(["folder", "40", "--only", "bits"])
    assert (wanted.folder, wanted.ways, wanted.seed, wanted.first, wanted.only) == (Path("folder"), 40, 1, 0, "bits")
