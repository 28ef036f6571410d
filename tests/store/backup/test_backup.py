"""What a backup has comes back: all of it, once, as it was."""

import io
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.accounts.base import Status
from store.backup import restore
from store.backup.archive import Archive, Scope
from store.backup.compression import GZIP, KINDS, NONE, ZSTD
from store.backup.creation import Form, Making
from store.backup.folder import Folder
from store.backup.integrity import Verified, verify
from store.backup.restore import Choice, Restored, Restoring
from store.check.wholecheck import check
from store.delivery.batch import one_by_one
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace, subscribing
from store.mailboxes.expunge import expunge
from store.mailboxes.flagchanges import change_flags
from store.opening import make_empty_store, open_store
from store.quota import roots
from store.store import Store
from store.userarea.paths import place
from store.userarea.writing import view
from store.users import lastuse
from store.values import Flag, FlagAction, Flags, InternalDate
from tests.support.faults.planted import Faults
from tests.support.stores.stores import SMALL, deliver, make_store
from tests.support.stores.whole import give_scripts

INBOX, SENT, NEWS = "user/alice/INBOX", "user/alice/Sent/2019", "public/news"
ZSTD_FORM = Form()
TRACE = b"Return-Path: <sender@example.org>\r\nReceived: by mail.example.org\r\n"


@pytest.fixture(autouse=True)
def no_threads(faults: Faults) -> None:
    faults.around(restore, "Contents", lambda real, partition: real(partition, one_by_one))


def text(number: int, octets: int = 0) -> bytes:
    return b"Subject: number %d\r\nMessage-ID: <%d@example.org>\r\n\r\n" % (number, number) + random.Random(
        number).randbytes(octets).hex().encode()


def fill(store: Store) -> None:
    """Everything that a mailbox can have."""
    namespace.create_mailbox(store, MailboxName.parse(SENT), special_use="\\Sent", acl={"bob": "lrs"})
    namespace.create_mailbox(store, MailboxName.parse(NEWS), acl={"anyone": "lrs"})
    roots.set_quota(store, "alice", 5 << 20, 1000)
    roots.set_quota(store, "alice/Sent", 1 << 20)
    roots.set_quota(store, "@example.org", 1 << 30)
    for name in ("INBOX", "Sent/2019", "user/bob/INBOX"):
        subscribing.subscribe(store, "alice", name)
    store.directory.change("bob", status=Status.DISABLED, groups=("staff",), aliases=("robert",))  # type: ignore
    for number in range(30):
        deliver(store, text(number, number * 50), INBOX, "user/bob/INBOX", NEWS, trace=TRACE if number % 2 else b"",
                received=InternalDate(1_400_000_000 + number, -330),
                header=b"Delivered-To: {}\r\n" if number % 3 else b"")
    for number in range(30, 34):
        deliver(store, text(number), SENT, flags=Flags(Flag.SEEN | Flag.ANSWERED, ("$Forwarded", "project")))
    deliver(store, text(3, 150), SENT)              # an old message without its trace header
    for number in (1, 3, 4):                        # and with that of another delivery
        deliver(store, text(number, number * 50), SENT, "user/bob/INBOX", trace=TRACE + b"X-Again: 1\r\n")
    inbox, news = store.entry(MailboxName.parse(INBOX)), store.entry(MailboxName.parse(NEWS))
    expunge_some(store, INBOX, range(5, 9))
    change_flags(store, inbox, [1, 2], FlagAction.ADD, Flags(Flag.FLAGGED, ("later",)))
    change_flags(store, news, [1, 4], FlagAction.ADD, Flags(Flag.SEEN), reader="bob")
    partition = store.partitions["primary"]
    partition.transact(lambda txn: partition.uidls.put(inbox.id, {1: b"old-1", 3: b"old-3"}, txn.handle))
    lastuse.note(store, {"alice": True, "bob": False}, 1_700_000_000)
    give_scripts(store, "alice")
    transact(store.mailboxes.env, lambda txn: store.mailboxes.annotations.set(news.id, "/shared/comment", b"x\0y", txn))


def expunge_some(store: Store, name: str, uids: Any) -> None:
    entry = store.entry(MailboxName.parse(name))
    change_flags(store, entry, uids, FlagAction.ADD, Flags(Flag.DELETED))
    expunge(store, entry, uids)


@pytest.fixture
def full(store: Store) -> Store:
    fill(store)
    return store


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Store]:
    """Another machine."""
    make_empty_store(tmp_path / "other")
    other = open_store(tmp_path / "other", SMALL)
    yield other
    assert check(other) == []
    other.close()


def facts(store: Store, *names: str) -> dict[str, Any]:
    """All that can be known of mailboxes, but for the figures that skip ahead."""
    found = {}
    for entry in store.mailboxes.all():
        name = str(entry.name)
        if names and name not in names:
            continue
        partition = store.partition_of(entry)
        _, contents = view(store, partition, entry.id) or (None, None)
        assert contents is not None
        messages = {}
        for row in contents.rows:
            with store.open_message(entry, row) as file:
                messages[int(row["uid"])] = (
                    file.read(0, file.size), int(row["flags"]), int(row["received"]), int(row["zone"]),
                    int(row["saved"]), int(row["modseq"]), int(row["size"]),
                    {word for at, word in enumerate(contents.head.keywords) if int(row["keywords"]) >> at & 1})
        own = [(contents.head.readers[int(item["reader"])], int(item["chunk"]), item["own"].tobytes())
               for item in contents.own]
        head = evolve(contents.head, id=1, uidnext=1, highestmodseq=1, written=0, store="", epoch=1, recent=1,
                      generation=0)
        found[name] = head, messages, own, contents.uidls
    return found


def users(store: Store) -> Any:
    rows = {account.user: store.directory.user(account.user) for account in store.directory.all()}   # type: ignore
    return rows, {user: subscribing.subscriptions(store, user) for user in rows}, sorted(
        (root, use.octets, use.messages, use.octet_limit, use.message_limit)
        for partition in store.partitions.values() for root, use in partition.quotas.all())


def files(store: Store) -> int:
    return sum(1 for _ in store.partitions["primary"].files.folder.glob("?/??/*"))


def written(store: Store, path: Path, form: Form = ZSTD_FORM, **more: Any) -> Making:
    making = Making(store, more.pop("scope", Scope()), **more)
    with path.open("wb") as file:
        making.write(file.write, form)
    return making


def restored(store: Store, *paths: Path, **choice: Any) -> Restored:
    return Restoring(store, [Archive(path) for path in paths], Choice(**choice)).run()


def verified(*paths: Path) -> Verified:
    return verify([Archive(path) for path in paths])


@pytest.mark.parametrize("kind", KINDS)
def test_everything_comes_back_once(full: Store, empty: Store, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "archive"
    made = written(full, path, Form(kind))
    assert verified(path).findings == made.findings == []
    done = restored(empty, path)
    assert done.findings == []
    assert facts(empty) == facts(full) and users(empty) == users(full)
    assert files(empty) == done.files == made.totals.messages == 34
    for name in (INBOX, SENT, NEWS):                # nothing is given out again that was given out since
        entry, old = empty.entry(MailboxName.parse(name)), full.entry(MailboxName.parse(name))
        assert entry.uidvalidity == old.uidvalidity
        assert empty.status(entry).uidnext > full.status(old).uidnext + 1000
    before = facts(empty)
    again = restored(empty, path)
    assert (again.files, again.mailboxes, again.messages, again.users, again.findings) == (0, 0, 0, 0, [])
    assert again.there == done.messages and facts(empty) == before


def test_gnu_tar_reads_it(full: Store, tmp_path: Path) -> None:
    paths = {ZSTD: tmp_path / "a.tar.zst", GZIP: tmp_path / "a.tar.gz", NONE: tmp_path / "a.tar"}
    for kind, path in paths.items():
        written(full, path, Form(kind))
        (tmp_path / kind).mkdir()
        told = subprocess.run(["tar", "-C", tmp_path / kind, "-xvf", path], capture_output=True, text=True, check=True)
        assert told.stderr == "" and "manifest.json" in told.stdout.splitlines()[0]
        assert told.stdout.splitlines()[-1] == "totals.json"
        primary = full.partitions["primary"]
        unpacked = {file.name: file.read_bytes()
                    for file in (tmp_path / kind).glob("partitions/primary/messages/?/??/*")}
        assert unpacked == {file.name: file.read_bytes() for file in primary.files.folder.glob("?/??/*")
                            if primary.refs.find(bytes.fromhex(file.name)).references}      # type: ignore[union-attr]
        index = place(primary, MailboxName.parse(SENT)).relative_to(primary.folder)
        assert (tmp_path / kind / "partitions/primary" / index).is_file()


def test_what_was_compressed_by_somebody_else_is_read_too(full: Store, empty: Store, tmp_path: Path) -> None:
    written(full, tmp_path / "a.tar", Form(NONE))
    subprocess.run(["zstd", "-q", tmp_path / "a.tar"], check=True)
    assert restored(empty, tmp_path / "a.tar.zst").findings == [
        f"{tmp_path / 'a.tar.zst'}: its catalogue is damaged, or cut off"]
    assert facts(empty) == facts(full)


def test_through_a_pipe(full: Store, empty: Store) -> None:
    octets = io.BytesIO()
    Making(full, Scope()).write(octets.write)
    octets.seek(0)
    done = Restoring(empty, [Archive(None, octets.read)]).run()
    assert done.findings == [] and facts(empty) == facts(full) and users(empty) == users(full)


def change(store: Store) -> None:
    """What happens between two backups."""
    for number in range(50, 55):
        deliver(store, text(number), INBOX)
    deliver(store, text(2, 100), SENT)              # a content that is known
    change_flags(store, store.entry(MailboxName.parse(NEWS)), [2], FlagAction.ADD, Flags(Flag.SEEN), reader="bob")
    namespace.create_mailbox(store, MailboxName("alice", "New"))
    namespace.rename_mailbox(store, MailboxName.parse(SENT), MailboxName("alice", "Sent/old"))


def test_an_incremental_one_has_what_changed_and_knows_what_is_gone(full: Store, empty: Store, tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in "123")
    namespace.create_mailbox(full, MailboxName("bob", "Gone"))
    made = written(full, first)
    change(full)
    deletion.delete_mailbox(full, MailboxName("bob", "Gone"))
    one = written(full, second, previous=made.catalogue)
    assert (one.totals.messages, one.totals.mailboxes) == (5, 4)       # INBOX, news, New, Sent/old
    two = written(full, third, previous=one.catalogue)
    assert (two.totals.messages, two.totals.mailboxes) == (0, 0)
    assert verified(third, first, second).findings == []
    alone = verified(second)
    assert alone.findings == [] and alone.elsewhere > 0
    assert restored(empty, third, first, second).findings == []
    assert facts(empty) == facts(full) and users(empty) == users(full)


def test_a_missing_link_of_the_chain_is_told(full: Store, empty: Store, tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    made = written(full, first)
    change(full)
    written(full, second, previous=made.catalogue)
    findings = restored(empty, second).findings
    assert f"the archive with the id {made.manifest.id}, which this one continues, is not here" in findings
    assert "user/bob/INBOX: the mailbox is damaged or missing in the archive" in findings
    assert any(finding.startswith(f"{INBOX}: 26 messages are damaged or missing in the archive: UID 1, 2, 3, 4, 9, ")
               for finding in findings)
    assert len(facts(empty)[INBOX][1]) == 5


def test_a_folder_continues(full: Store, empty: Store, tmp_path: Path) -> None:
    into = tmp_path / "backups"

    def backup(**more: Any) -> list[Making]:
        form = Form(part=2000, frame=1000)
        return Folder.of(into).backup(lambda previous: Making(full, Scope(), previous), form, **more)

    assert len(backup()) > 1
    change(full)
    assert sum(each.totals.messages for each in backup()) == 5
    (into / "catalogue.json").write_bytes(b"{")                      # the archives themselves know
    chain = Folder.of(into).chain()
    assert verify(chain).findings == []
    assert Restoring(empty, chain).run().findings == []
    assert facts(empty) == facts(full)
    assert len(backup(full=True)) > 1 and len(Folder.of(into).chain()) < len(Folder.of(into).entries)


def test_a_backup_to_a_folder_that_was_cut_off_goes_on(full: Store, tmp_path: Path) -> None:
    into, parts = tmp_path / "backups", 0

    def making(previous: Any) -> Making:
        nonlocal parts
        parts += 1
        if parts == 2:
            raise KeyboardInterrupt
        return Making(full, Scope(), previous)

    with pytest.raises(KeyboardInterrupt):
        Folder.of(into).backup(making, Form(part=2000, frame=1000))
    had = Folder.of(into).entries[0]
    (into / "20260101T000000Z-0002.tar.zst.part").write_bytes(b"half")
    Folder.of(into).backup(making, Form(part=2000, frame=1000))
    entries = Folder.of(into).entries
    assert entries[0] == had and sum(entry.messages for entry in entries) == 34 and entries[-1].complete
    assert not list(into.glob("*.part")) and verify(Folder.of(into).chain()).findings == []


def test_two_backups_to_one_folder_at_the_same_time(full: Store, tmp_path: Path) -> None:
    def making(previous: Any) -> Making:
        with pytest.raises(StoreError) as refused:
            Folder.of(tmp_path / "backups").backup(lambda other: Making(full, Scope(), other), Form())
        assert refused.value.problem is Problem.BUSY
        return Making(full, Scope(), previous)

    Folder.of(tmp_path / "backups").backup(making, Form())
    assert verify(Folder.of(tmp_path / "backups").chain()).findings == []


def test_only_some(full: Store, empty: Store, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    written(full, path)
    done = restored(empty, path, users=frozenset({"alice"}), mailbox="INBOX", uids=frozenset({3, 4, 6}))
    assert done.findings == [f"{INBOX}: the archive has no UID 6"] and done.files == 2
    assert set(facts(empty)[INBOX][1]) == {3, 4}
    assert restored(empty, path, users=frozenset({"bob"})).findings == []
    assert set(facts(empty)) == {INBOX, "user/bob/INBOX"}
    assert facts(empty)["user/bob/INBOX"][1:] == facts(full)["user/bob/INBOX"][1:]
    assert sorted(users(empty)[0]) == ["alice", "bob"]


def test_over_what_is_there(full: Store, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    written(full, path)
    before = facts(full)
    expunge_some(full, INBOX, [1, 2, 30])
    deliver(full, text(77), INBOX)
    change_flags(full, full.entry(MailboxName.parse(INBOX)), [3], FlagAction.ADD, Flags(Flag.DRAFT))
    left = restored(full, path)
    assert left.messages == 0 and left.findings == [
        f"{INBOX}: it is there, and lacks 3 messages of the archive (--over adds them, --into restores it beside)"]
    done = restored(full, path, over=True)
    assert (done.messages, done.files, done.findings) == (3, 0, [])
    messages = facts(full)[INBOX][1]
    old = before[INBOX][1]
    assert [messages[uid][0] for uid in (32, 33, 34)] == [old[uid][0] for uid in (1, 2, 30)]
    assert messages[32][1:4] == old[1][1:4] and messages[32][7] == {"later"}
    assert messages[31][0] == text(77) and messages[3][1] == Flag.DRAFT
    assert restored(full, path, over=True).messages == 0


def test_beside_what_is_there(full: Store, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    written(full, path)
    before = facts(full)
    for _ in range(2):
        assert restored(full, path, users=frozenset({"alice"}), into="Restored").findings == []
    after = facts(full)
    assert {name: after[name] for name in before} == before
    assert after["user/alice/Restored/INBOX"][1] == before[INBOX][1]
    assert after["user/alice/Restored/Sent/2019"][0].acl == {} and len(after) == len(before) + 2


def test_a_dry_run_changes_nothing(full: Store, empty: Store, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    written(full, path)
    done = restored(empty, path, dry_run=True)
    assert (done.mailboxes, done.messages, done.findings) == (4, 97, [])
    assert facts(empty) == {} and users(empty)[0] == {} and files(empty) == 0


@pytest.mark.parametrize("over", [False, True])
def test_a_dry_run_says_what_a_restore_does(full: Store, tmp_path: Path, over: bool) -> None:
    """Also of mailboxes that are there, whole or not."""
    path = tmp_path / "archive"
    written(full, path)
    said = restored(full, path, dry_run=True, over=over)
    assert (said.mailboxes, said.messages, said.findings) == (0, 0, []) and said.there > 0
    expunge_some(full, INBOX, [1, 2, 3])
    said, before = restored(full, path, dry_run=True, over=over), facts(full)
    assert facts(full) == before
    done = restored(full, path, over=over)
    assert (said.mailboxes, said.messages, said.there, said.findings) == (
        done.mailboxes, done.messages, done.there, done.findings)
    assert said.messages == (3 if over else 0)
    assert [finding.partition(":")[0] for finding in said.findings] == ([] if over else [INBOX])


def test_a_mailbox_that_changes_while_it_is_written(full: Store, empty: Store, tmp_path: Path,
                                                    faults: Faults) -> None:
    """Deliveries, expunges and purges between any two steps: what the archive refers to is in it."""
    steps: list[Callable[[], object]] = [
        lambda: deliver(full, text(60), INBOX, SENT), lambda: expunge_some(full, INBOX, [1, 2, 3]),
        lambda: deletion.delete_mailbox(full, MailboxName.parse(SENT)), lambda: deliver(full, text(61), NEWS)]
    faults.before(Making, "_message", lambda *_: steps and steps.pop(0)())
    made = written(full, tmp_path / "archive")
    assert made.findings == [] and verified(tmp_path / "archive").findings == [] and not steps
    assert restored(empty, tmp_path / "archive").findings == []


def test_a_damaged_message_is_left_out_and_told(full: Store, empty: Store, tmp_path: Path) -> None:
    file = next(full.partitions["primary"].files.folder.glob("?/??/*"))
    octets = file.read_bytes()
    file.write_bytes(octets[:-1] + b"#")
    made = written(full, tmp_path / "archive")
    assert made.findings and all(file.name in finding for finding in made.findings)
    assert verified(tmp_path / "archive").findings == []
    assert restored(empty, tmp_path / "archive").findings == []
    assert files(empty) == 33
    file.write_bytes(octets)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, bytes]]:
    """A store whose archive has several frames, and the archive."""
    folder = tmp_path_factory.mktemp("large")
    store = make_store(folder / "store", [f"user{number}" for number in range(6)])
    for number in range(360):
        deliver(store, text(number, 5000), *{f"user/user{number * step % 6}/INBOX" for step in (1, 5, 7)})
    octets = io.BytesIO()
    Making(store, Scope()).write(octets.write, Form(frame=100_000))
    yield store, octets.getvalue()
    store.close()


def hurt(octets: bytes, seed: int) -> bytes:
    """Some damage: flipped bits, a hole, a piece that is missing, an end that is missing."""
    chance, data = random.Random(seed), bytearray(octets)
    at = chance.randrange(len(data))
    match seed % 5:
        case 0:
            return octets[:at]
        case 1:
            data[at] ^= 1 << chance.randrange(8)
        case 2:
            data[at:at + 20_000] = bytes(len(data[at:at + 20_000]))
        case 3:
            del data[at:at + chance.randrange(1, 50_000)]
        case 4:
            for _ in range(6):
                data[chance.randrange(len(data))] ^= 255
    return bytes(data)


@pytest.mark.parametrize("seed", range(int(os.environ.get("BACKUP_DAMAGES", "5"))))
def test_what_is_whole_comes_back_of_a_damaged_archive(large: tuple[Store, bytes], tmp_path: Path, seed: int) -> None:
    store, octets = large
    path = tmp_path / "archive"
    path.write_bytes(hurt(octets, seed))
    assert verified(path).findings != []
    make_empty_store(tmp_path / "other")
    other = open_store(tmp_path / "other", SMALL)
    try:
        done = restored(other, path)
        want, have = facts(store), facts(other)
        lost = 0
        for name, (head, messages, *_) in want.items():
            if name not in have:
                lost += len(messages)
                continue
            assert have[name][1].items() <= messages.items()            # never a wrong one
            assert have[name][0].uidvalidity == head.uidvalidity
            missing = sorted(messages.keys() - have[name][1].keys())
            lost += len(missing)
            told = [finding for finding in done.findings if finding.startswith(f"{name}: ")]
            assert not missing or f"{len(missing)} messages are damaged or missing" in told[0] and (
                ", ".join(map(str, missing[:20])) in told[0])
        assert done.findings != []
        if seed % 5 == 1:
            assert lost < 360                       # one frame of some forty, and with it one mailbox at the worst
        assert check(other) == []
    finally:
        other.close()


@pytest.mark.parametrize("umask", [0, 0o022])
def test_a_backup_is_for_its_owner_alone_and_goes_through_no_planted_link(full: Store, tmp_path: Path, umask: int
                                                                        ) -> None:
    """It has all mail and all keys. Others may write to the folder that it goes to."""
    victim, place = tmp_path / "victim", tmp_path / "backups"
    victim.write_bytes(b"kept")
    place.mkdir()
    for name in ("one.tar", "one.tar.part", "catalogue.json.part"):
        (place / name).symlink_to(victim)
    before = os.umask(umask)
    try:
        Making(full, Scope()).write_file(place / "one.tar", ZSTD_FORM)
        (place / "one.tar").replace(tmp_path / "one.tar")
        Folder(place).backup(lambda previous: Making(full, Scope(), previous), ZSTD_FORM)
    finally:
        os.umask(before)
    made = [tmp_path / "one.tar", *place.glob("*")]
    assert len(made) == 3 and victim.read_bytes() == b"kept"
    assert {path.lstat().st_mode for path in made} == {0o100600}
    (place / "catalogue.json").unlink()
    (place / "catalogue.json").symlink_to(victim)
    with pytest.raises(StoreError, match="symbolic link"):
        Folder.of(place)
