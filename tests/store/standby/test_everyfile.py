"""Every kind of file of a store is had by a standby, or it is said here why not."""

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mboxlist.names import MailboxName
from store.audit.auditverification import GONE, verify
from store.audit.trail import append
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.expiry.rulebook import Rulebook, Scope, set_file
from store.opening import open_store
from store.partitions import volumes
from store.readonly import place, readingcopy
from store.standby import promotion
from store.standby.copyformat import is_small
from store.standby.following import Follower
from store.standby.reading import readingstate
from store.standby.source import copysource
from store.store import Store
from store.usermove.messageformat import BadMessage, Message
from store.values import Secret
from tests.support.faults.planted import Faults
from tests.support.stores.standbypair import HOST, Standby, promoted
from tests.support.stores.stores import SMALL, deliver, make_store
from tools.front import secret as frontsecret
from tools.front.secret import secret
from tools.http import apitokens
from tools.http.apitokens import ADMINISTRATOR, AUDITOR, TokenCache, Tokens
from tools.reference import filepage

pytestmark = [pytest.mark.few_folders]

KEEP, LONGER = (f"mail.folderpattern: *\nmail.savedays: {days}\n" for days in (30, 90))

# Files that come by what the logs say: octets of logs and the tables that are made of them, and message files.
BY_LOGS = (r"mboxlist/.+\.db", r"mboxlist/log\..+", r"partitions/<name>/index/.+\.db",
           r"partitions/<name>/index/log\..+", r"partitions/<name>/messages/.+")
# Files that each machine makes for itself, or does without, and why.
NOT_FOLLOWED = {
    r"mboxlist/(__db\..+|DB_CONFIG|tables|newest|opening|suspect|clean|clean\.before|unclean|unlogged|memory|kept-log)":
        "of the databases as they are on one disk: each machine writes its own when it opens them",
    r"partitions/<name>/index/(__db\..+|DB_CONFIG|tables|newest|opening|suspect|clean|clean\.before|unclean|unlogged|"
    r"memory|kept-log)": "of the databases as they are on one disk: each machine writes its own when it opens them",
    r"partitions/<name>/index/(behind|uncached|portable\.lock)":
        "of the user area, which a standby does not have: the promoted machine writes it anew",
    r"partitions/<name>/staging/.+": "a message there that is committed comes to its place in messages/",
    r"partitions/<name>/users/.+": "made of the databases: the promoted machine writes it; epochs come with answers",
    r"partitions/<name>/(absent|coming/<path>)": "a machine is told which partitions the other one lacks",
    r"run/.+": "of processes that run on one machine; people log in to the console again, and are known again",
    r"tls/.+": "the certificate names the machine, and its key stays there",
    r"snapshots/.+": "each machine makes snapshots of its own",
    r"journal/.+": "the delivery log: of what one machine decided, large, and in the archive of logs of who wants it",
    r"transcripts/.+": "mail of people who are watched for a fault of one machine: not to be spread",
    r"recovered/.+": "what a start of one machine has mended",
    r"clock": "of the clock of one machine",
    r"history": "figures of what one machine has done",
    r"as-of|mending": "of a copy for reading, and of a start that rebuilds: the databases themselves are followed",
    r"last-check": "what was found on the disks of one machine",
    r"generations/.+": "which state of the databases on this disk was the last",
    r"restoring\.json|reconstruct/.+": "no standby is answered while that goes on; what came of it is copied again",
    r"succession\.json": "it comes with the answers to a standby's first question, of which it keeps its own record",
    r"standby\.json|standby\.journal\.<number>|standby-followers\.json|standby-copies/.+|promoted/.+|reading/.+|"
    r"mboxlist\.(copy|old)/.+|partitions/<name>/(index|messages)\.(copy|old)/.+":
        "of one standby, or of one that was promoted",
    r"(mboxlist|partitions/<name>/index)/kept/.+": "of one standby, for those that follow it; they have these octets",
    r"read-only|without-files": "of copies, which nobody follows",
    r"(partitions/<name>/)?(set-aside|(index|mboxlist)\.(damaged|older)-<stamp>)/.+|mboxlist\.(damaged|older)-.+":
        "nothing of the store refers to it: it waits for an administrator, where it was found",
    r"receivers": "each server writes it from its own configuration, when it starts",
    r"(.+/)?[a-z-]*\.?lock": "a lock of processes that run on one machine",
}


def kinds() -> list[str]:
    """All that the reference lists; a test of it demands that it lists all that a store has."""
    return [pattern for _, files in filepage.TITLED for pattern, _ in files]


def comes_as_small_file(pattern: str) -> bool:
    folder, _, name = re.sub("<serial>-<month>|<[a-z]+>", "primary", pattern).rpartition("/")
    return is_small(folder, name)


def ways(pattern: str) -> list[str]:
    """How a standby gets it, and why it does not."""
    return [*(each for each in BY_LOGS if re.fullmatch(each, pattern)),
            *(["small files"] if comes_as_small_file(pattern) else []),
            *(why for each, why in NOT_FOLLOWED.items() if re.fullmatch(each, pattern))]


def test_each_is_followed_or_there_is_a_reason() -> None:
    """A new kind of file: either a standby gets it (`copyformat.SMALL`), or a line above says why not."""
    assert [pattern for pattern in kinds() if not ways(pattern)] == []
    assert [pattern for pattern in kinds() if comes_as_small_file(pattern) and len(ways(pattern)) > 1] == []


def test_no_reason_is_for_nothing() -> None:
    for each in (*BY_LOGS, *NOT_FOLLOWED):
        assert any(re.fullmatch(each, pattern) for pattern in kinds()), each


# Rules of expiry

@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """With a second partition, and rules for both, and for a domain."""
    monkeypatch.setattr(copysource, "OFTEN", -1.0)
    made = make_store(tmp_path / "one", ("alice",))
    volumes.add(made, "archive")
    for name in ("primary", "archive"):
        set_file(made.root / "partitions" / name / "expire.rules", KEEP)
    set_file(made.root / "expire" / "example.com.rules", KEEP)
    yield made
    made.close()


@pytest.fixture
def standby(store: Store, tmp_path: Path) -> Standby:
    return Standby(store, tmp_path / "two")


def rules(root: Path) -> dict[str, str]:
    """What files of rules there are."""
    return {str(path.relative_to(root)): path.read_text()
            for path in (*root.glob("expire/*"), *root.glob("partitions/*/expire.*"))}


def rounds(follower: Follower) -> None:
    """What is no more goes one round later."""
    for _ in range(3):
        follower.round(0)


def test_rules_are_there_after_a_promotion(store: Store, standby: Standby) -> None:
    standby.create()
    with closing(promoted(standby)) as other:
        assert rules(other.root) == rules(store.root) and len(rules(store.root)) == 3
        assert sorted(source.scope for source in Rulebook(other).all() if source.scope in (
            Scope.PARTITION, Scope.DOMAIN)) == [Scope.PARTITION, Scope.PARTITION, Scope.DOMAIN]
        assert check(other) == []


def test_rules_change_come_and_go(store: Store, standby: Standby) -> None:
    """Also while the standby is away; files beside them that are none of the store's stay where they are."""
    standby.create()
    (store.root / "partitions" / "primary" / "NOTES").write_text("of the administrator")
    (standby.root / "partitions" / "primary" / "HERE").write_text("of the standby's administrator")
    with standby.following() as follower:
        set_file(store.root / "partitions" / "primary" / "expire.rules", LONGER)
        set_file(store.root / "expire" / "example.org.rules", LONGER)
        (store.root / "partitions" / "archive" / "expire.rules").unlink()
        rounds(follower)
        assert rules(standby.root) == rules(store.root) and len(rules(store.root)) == 3
    (store.root / "expire" / "example.com.rules").unlink()
    (store.root / "partitions" / "primary" / "expire.rules").unlink()
    with standby.following() as follower:
        rounds(follower)
        assert list(rules(standby.root)) == ["expire/example.org.rules"]
    assert sorted(path.name for path in (standby.root / "partitions" / "primary").iterdir() if path.is_file()) == [
        "HERE"]
    (store.root / "partitions" / "primary" / "NOTES").unlink()
    (standby.root / "partitions" / "primary" / "HERE").unlink()


def test_rules_of_a_partition_that_is_added(store: Store, standby: Standby) -> None:
    standby.create()
    with standby.following() as follower:
        volumes.add(store, "later")
        set_file(store.root / "partitions" / "later" / "expire.rules", LONGER)
        rounds(follower)
        assert rules(standby.root) == rules(store.root) and len(rules(store.root)) == 4
        follower.finish()
    with closing(promoted(standby)) as other:
        assert sorted(other.partitions) == ["archive", "later", "primary"] and check(other) == []


def test_rules_of_partitions_that_are_not_protected_do_not_come(store: Store, tmp_path: Path) -> None:
    standby = Standby(store, tmp_path / "two", only=("primary",))
    standby.create()
    with standby.following() as follower:
        set_file(store.root / "partitions" / "archive" / "expire.rules", LONGER)
        rounds(follower)
        assert sorted(rules(standby.root)) == ["expire/example.com.rules", "partitions/primary/expire.rules"]
        with pytest.raises(StoreError) as caught:
            follower.source.small("partitions/archive")
        assert caught.value.problem is Problem.GONE


def test_other_folders_and_files_are_not_answered(store: Store) -> None:
    answers = copysource.Source(store, HOST)._files
    for folder in ("partitions", "partitions/../expire", "partitions/.hidden", ".", "/", "run", "tls"):
        with pytest.raises((StoreError, BadMessage)):
            answers._small(Message({"folder": folder, "after": ""}))
    for folder, name in (("partitions/primary", "absent"), ("expire", "../http-tokens"), ("expire", "notes"),
                         ("", "standby.json"), ("", "run/standbys"), ("", "onecopy.toml")):
        with pytest.raises(BadMessage):
            answers._small_file(Message({"folder": folder, "name": name, "at": 0}))


def test_tokens_and_the_secret_of_proxies_come_and_go(store: Store, standby: Standby, tmp_path: Path) -> None:
    """Readable by the owner alone. A copy for reading has no use for them."""
    tokens = Tokens(store.root)
    kept, shown = tokens.create(ADMINISTRATOR)
    known = secret(store.root, None)
    standby.create()
    with standby.following() as follower:
        gone, _ = tokens.create(AUDITOR)
        rounds(follower)
        assert Tokens(standby.root).all() == (kept, gone)
        tokens.revoke([gone.id])
        rounds(follower)
        assert Tokens(standby.root).all() == (kept,)
        for name in (apitokens.FILE, frontsecret.NAME):
            assert (standby.root / name).stat().st_mode & 0o777 == 0o600
        (store.root / frontsecret.NAME).unlink()            # for a new one, docs/front.md says
        rounds(follower)
        assert not (standby.root / frontsecret.NAME).exists()
        renewed = secret(store.root, None)
        rounds(follower)
    readingstate.make(standby.root, tmp_path / "copy")
    assert not {apitokens.FILE, frontsecret.NAME} & {path.name for path in (tmp_path / "copy").iterdir()}
    with closing(promoted(standby)) as other:
        found = TokenCache(Tokens(other.root)).find(Secret(shown.encode()), time.time())
        assert found == kept and secret(other.root, None) == renewed != known


def test_an_audit_trail_comes_and_it_is_noticed_where_all_of_it_is_removed(
        store: Store, standby: Standby, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that begins while a standby follows, and after a promotion. In a copy for reading none is missing."""
    standby.create()
    assert verify(standby.root).faults == []
    with standby.following() as follower:
        append(store.root, [(time.time(), {"kind": "share", "what": "first"})])
        rounds(follower)
        found = verify(standby.root)
        assert (found.lines, found.faults) == (1, [])
    monkeypatch.setattr(place, "MEMORY", str(tmp_path))
    readingstate.make(standby.root, tmp_path / "copy")
    for copy in (tmp_path / "copy", readingcopy.make(store.root, SMALL.cache)):
        assert verify(copy).faults == []
    with closing(promoted(standby)) as other:
        append(other.root, [(time.time(), {"kind": "share", "what": "second"})])
        assert (verify(other.root).lines, verify(other.root).faults) == (2, [])
        shutil.rmtree(other.root / "audit")
        assert verify(other.root).faults == [("audit", GONE)]


def test_of_an_audit_trail_that_begins_while_folders_are_looked_at_none_is_missing(
        store: Store, standby: Standby, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby that is promoted in that second does not say that its trail was removed."""
    standby.create()
    monkeypatch.setattr(copysource, "OFTEN", -1.0)          # each answer looks at all folders
    with standby.following() as follower:
        rounds(follower)
        faults.first(copysource.Source, "_signature", lambda *_: None, lambda *_: append(store.root, [
            (time.time(), {"kind": "share", "what": "first"})]))        # before the second folder is looked at
        for _ in range(3):
            follower.round(0)
            assert verify(standby.root).faults == []
        assert verify(standby.root).lines == 1


def test_a_reading_copy_has_the_rules(store: Store, standby: Standby, tmp_path: Path) -> None:
    standby.create()
    readingstate.make(standby.root, tmp_path / "copy")
    with closing(open_store(tmp_path / "copy", SMALL)) as reading:
        assert {source.scope for source in Rulebook(reading).all()} >= {Scope.PARTITION, Scope.DOMAIN}
        assert rules(reading.root) == rules(store.root)


def test_what_had_not_come_whole_of_rules_goes(store: Store, standby: Standby) -> None:
    standby.create()
    for name in ("partitions/primary/expire.rules.new", "expire/example.com.rules.new"):
        (standby.root / name).write_text("half")
    deliver(store, b"Subject: one\r\n\r\n", str(MailboxName("alice", "INBOX")))
    promotion.promote(standby.root)
    assert all("half" not in text for text in rules(standby.root).values()) and len(rules(standby.root)) == 3
