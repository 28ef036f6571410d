"""Every command that changes something is killed at some moment, and then only the server starts: what the command does
is done wholly or not at all, nothing is wrong with the store, and `onecopy status` says what was done.

Without KILLS one moment of some commands is tried; KILLS=20 tries so many moments of each, KILLS=all all of them.
"""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from store.check.wholecheck import check
from store.finishing.operationkinds import KINDS
from store.opening import open_store
from store.operations import operationrecord
from tests.conftest import MEMORY
from tests.support.faults import killing, starting
from tests.support.faults.killing import HERE, KILLS, STORE
from tests.support.processes import command
from tests.support.processes.environment import plain
from tests.support.stores import small
from tests.support.stores.stores import SMALL
from tests.support.stores.whole import lose_databases
from tests.tools.commands.test_killed import CONTENTS, everything, fill
from tools.cli import registry
from tools.commands import status
from tools.server.cutcommands import REPEATED

BACKUP = ["backup", "--to", HERE + "/backup.tar"]
ADD = ["user", "add", "carol", "--password-file", HERE + "/password"]
DELETE = ["mailbox", "delete", "alice", "Archive", "Work", "--yes"]
REMOVE = ["user", "remove", "alice", "--now", "--yes"]
NO_FOLDER = ("the folder is missing",)      # of message files: there are few, so that a copy takes less long
SNAPSHOT = "{snapshot}"
FIRST, EARLY = "user rename *", 5          # the case of which who finishes it is killed in each run, and when
EXPORT = ["export", "--format", "maildir", "--to", HERE + "/maildir", "alice"]


def lose_index(here):
    shutil.rmtree(here / STORE / "partitions" / "primary" / "index")


def lose_all(here):
    shutil.copy(here / STORE / "mboxlist" / "users.db", here / "users.db")
    lose_databases(here / STORE)


def case(*words, before=(), damage=None, octets=b"", options=None, tolerated=()):
    """Words, with what is done first."""
    return {"words": list(words), "before": list(before), "damage": damage, "octets": octets, "options": options or {},
            "tolerated": tolerated}


#: By the name of each command that changes something in a store, how it is tried; those with a * without KILLS, too.
CASES = {
    "user rename *": case("user", "rename", "alice", "zoe"),
    "user remove *": case(*REMOVE),
    "user undelete": case("user", "undelete", "alice", before=[REMOVE]),
    "user add": case(*ADD),
    "user add --users": case("user", "add", "--users", HERE + "/users.csv"),
    "user set": case("user", "set", "alice", "--status", "hold"),
    "user scram": case("user", "scram", "--remove"),
    "user domain": case("user", "domain", "example.org", "--access", "+imap:*"),
    "user purge": case("user", "purge", "--yes", before=[["user", "remove", "alice", "--yes"]],
                       options={"ONECOPY_STORE_USER_DELAY": "0"}),
    "user move": case("user", "move", "alice", "--to", "second"),
    "mailbox create": case("mailbox", "create", "alice", "New"),
    "mailbox rename": case("mailbox", "rename", "alice", "Archive", "Old"),
    "mailbox rename INBOX": case("mailbox", "rename", "alice", "INBOX", "Old"),
    "mailbox delete": case(*DELETE),
    "mailbox undelete": case("mailbox", "undelete", "alice", "Archive", before=[DELETE]),
    "mailbox acl": case("mailbox", "acl", "alice", "Work", "bob", "lr"),
    "mailbox subscribe": case("mailbox", "subscribe", "alice", "Work"),
    "mailbox unsubscribe": case("mailbox", "unsubscribe", "alice", "Archive"),
    "deliver": case("deliver", "alice", octets=CONTENTS[0]),
    "undelete": case("undelete", "alice", "INBOX"),
    "purge": case("purge", "--older-than", "0", "--yes", before=[DELETE]),
    "messages flag": case("messages", "flag", "--all", "--add", "flagged", "all"),
    "messages move": case("messages", "move", "-u", "alice", "--to", "Work", "all"),
    "messages expunge": case("messages", "expunge", "--all", "--yes", "all"),
    "messages deduplicate": case("messages", "deduplicate", "--all", "--yes", "--by", "message-id", "all"),
    "mailbox metadata": case("mailbox", "metadata", "alice", "Work", "/shared/comment", "mine"),
    "messages withdraw": case("messages", "withdraw", "1@example.org", "--yes"),
    "sieve put": case("sieve", "put", "alice", "new", "--activate", octets=b"keep;"),
    "uidl import": case("uidl", "import", "alice", "-", octets=b"1 one\n2 two\n3 three\n9 nine\n"),
    "partition add": case("partition", "add", "third"),
    "partition add elsewhere": case("partition", "add", "third", "--path", HERE + "/third"),
    "partition remove": case("partition", "remove", "second", "--yes"),
    "partition remove elsewhere *": case("partition", "remove", "third", "--yes",
                                         before=[["partition", "add", "third", "--path", HERE + "/third"]]),
    "partition drain": case("partition", "drain", "primary", "--to", "second", "--store-default-partition", "second"),
    "quota set *": case("quota", "set", "alice", "--composite", "5M;Work%2M", before=[
        ["partition", "add", "third"]]),
    "quota remove": case("quota", "remove", "alice/Archive"),
    "quota warn": case("quota", "warn"),
    "expire run": case("expire", "run", "--all"),
    "expire set": case("expire", "set", "--user", "alice", "-", octets=b"old.messagedays: 36\n"),
    "scrub": case("scrub", "--sweep"),
    "snapshot create": case("snapshot", "create"),
    "snapshot remove": case("snapshot", "remove", SNAPSHOT, "--force", "--yes", before=[["snapshot", "create"]]),
    "snapshot restore *": case("snapshot", "restore", "--exact", "--yes", before=[["snapshot", "create"], DELETE]),
    "recover": case("recover"),
    "reconstruct": case("reconstruct", "--all"),
    "reconstruct mailbox": case("reconstruct", "alice", "--cache"),
    "reconstruct partition *": case("reconstruct", "--partition", "primary", "--force"),
    "reconstruct lost partition": case("reconstruct", "--partition", "primary", damage=lose_index),
    "reconstruct mboxlist": case("reconstruct", "--mboxlist", "--force"),
    "reconstruct everything *": case("reconstruct", "--all", "--users", HERE + "/users.db", damage=lose_all),
    "relink": case("relink"),
    "restore": case("restore", "--user", "alice", "--over", HERE + "/backup.tar", before=[BACKUP, DELETE]),
    "import mbox": case("import", "mbox", "carol", HERE + "/mbox", tolerated=NO_FOLDER, before=[
        ["export", "--format", "mbox", "--to", HERE + "/mbox", "alice"], ADD]),
    "import maildir *": case("import", "maildir", "carol", HERE + "/maildir", tolerated=NO_FOLDER,
                             before=[EXPORT, ADD]),
    "backup": case(*BACKUP),
}

#: Commands that are not tried here, and why.
OTHERS = {
    **dict.fromkeys(("user list", "user show", "directory status", "directory test", "mailbox list", "mailbox info",
                     "path", "hashdir", "uidl list", "partition list", "quota show", "quota check", "quota sharing",
                     "quota report", "expire rules", "expire last", "check", "snapshot list", "snapshot verify",
                     "snapshot diff", "spark sharing", "spark shell", "spark sql", "config show", "config check",
                     "config diff", "connections", "logins", "stats", "status", "explain message", "explain access",
                     "explain quota", "explain login", "man", "completion", "audit head", "audit show", "audit verify",
                     "outbox list", "outbox show", "token list", "log show", "log errors",
                     "mailbox status", "dump", "batch", "user hash",
                     "log levels", "access list", "sieve list", "sieve get", "sieve check", "sieve test",
                     "sieve show", "sieve stats"),
                     "changes nothing in a store"),
    **dict.fromkeys(("export", "facts export", "spark generate"), "writes outside the store, and can be done again"),
    **dict.fromkeys(("drain", "directory flush", "config reload", "log level", "transcript"),
                    "is about a server that runs"),
    **dict.fromkeys(("outbox retry", "outbox discard"), "each event is a transaction of its own; it can be done again"),
    **dict.fromkeys(("token create", "token revoke", "access create", "access revoke", "access reset"),
                    "replaces one file"),
    "snapshot browse": "changes nothing in a store",
    "snapshot copy": "all of it or nothing, as COPY out of #snapshots/; done again it brings what is missing",
    "messages copy": "each mailbox is a transaction of its own; done again it would copy again",
    **dict.fromkeys(("sieve activate", "sieve rename", "sieve delete"), "as sieve put: one transaction of the list"),
    **dict.fromkeys(("messages search", "messages fetch", "doctor"), "changes nothing in a store"),
    "audit remove": "is noted before it is done, and can be done again: tests/store/test_audit.py",
    **dict.fromkeys(("standby create", "standby follow", "standby status", "standby promote", "standby copy",
                     "standby serve"),
                    "is about another folder: tests/store/standby, tests/interop/test_standby.py"),
    "partition give-up": "is for a store whose partition another machine has: tests/store/rejoin/test_givingup.py",
    "standby rejoin": "leaves no store: tests/store/rejoin", "standby forget": "replaces one file",
    "init": "a store that is not whole is made by the start (serve --create): tests/tools/commands/test_killed.py",
    "serve": "is the start", "config certificate": "makes one file",
    **dict.fromkeys(("import imap", "import dovecot", "import cyrus"), "as import maildir: one procedure"),
}


def name_of(key):
    """The command of a case: the words before those that tell cases apart."""
    words = key.removesuffix(" *").split()
    return next(name for name in (" ".join(words[:2]), words[0]) if name in registry.BY_NAME)


def test_every_command_is_here():
    """One that is new is tried, or it is said why not."""
    tried = {name_of(key) for key in CASES}
    assert not tried & set(OTHERS)
    assert tried | set(OTHERS) == set(registry.BY_NAME)


@pytest.fixture(scope="module")
def whole():
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY) as folder, pytest.MonkeyPatch.context() as patch:
        small.few_folders(patch.setattr)
        fill(Path(folder) / "start" / STORE)
        yield Path(folder) / "start"


def seen(here, each, at):
    """What users and administrators see; the check finds nothing."""
    store = open_store(here / STORE, SMALL)
    try:
        wrong = [f"{found.where}: {found.what}" for found in check(store) if found.what not in each["tolerated"]]
        assert wrong == [], f"{at}: the check finds {wrong}"
        boxes, uses, files, deleted, subscribed, _ = everything(store)
        # An import that was cut off may leave a mailbox among the deleted ones, where it had not been published. What a
        # repair makes anew has another UIDVALIDITY, what is removed twice waits for the purge twice, and what is
        # delivered now is of another second.
        texts = {name: (box[0], box[2], box[4], sorted((*row[1:3], *row[4:]) for row in box[5]))
                 for name, box in boxes.items()}
        users = sorted((account.user, account.status.value, account.partition, account.aliases, account.access)
                       for account in store.directory.all())
        snapshots = sorted(path.name for path in (here / STORE / "snapshots").glob("*[0-9]Z")) and "some"
        return {"texts": texts, "users": users, "subscribed": subscribed, "partitions": sorted(store.partitions),
                "limits": {root: use[2] for root, use in uses.items() if use[0] or use[2]},

                "uses": {root: use[:2] for root, use in uses.items() if use[0]}, "snapshots": snapshots,
                "deleted": None if each["tolerated"] else sorted(set(deleted)), "mbox": sorted(map(str, files))}
    finally:
        store.close()


def prepared(whole, folder, each):
    """A folder with the store as it is before the command."""
    place = folder / "prepared"
    with killing.copied(whole, folder) as here:
        (here / "password").write_text("secret")
        (here / "users.csv").write_text("carol,secret\ndave,secret\n")
        for words in each["before"]:
            done = killing.run(here, words, environment=options(each))
            assert done.status == 0, done.error
        if each["damage"] is not None:
            each["damage"](here)
        shutil.copytree(here, place, symlinks=True)
    return place


def options(each):
    return {**killing._SMALL, **each["options"]}


def started(here, each, at):
    """The server starts, and has its housekeeping done."""
    done = starting.start(here, options(each))
    assert done.status == 0, f"{at}: the start says {done.error}"


def judge_status(here, at, begun):
    """`onecopy status` tells of each operation that was cut off, and nothing waits."""
    found = status.gather(here / STORE)
    assert (found["cut_off"], found["under_way"], found["troubles"]) == ([], [], []), f"{at}: {found}"
    assert {one["id"] for one in found["ended"]} >= begun and all(one["outcome"] for one in found["ended"]), at
    assert not [one for one in found["ended"] if "left as it is" in one["outcome"]], f"{at}: {found['ended']}"


def cut(here, each, moment, at):
    """Kill the command at that moment; the ids of the operations that are on record then."""
    first = killing.run(here, each["words"], at=moment, octets=each["octets"], environment=options(each))
    assert first.status in (-signal.SIGKILL, 0, 1), f"{at}: {first.error}"
    folder = here / STORE / operationrecord.FOLDER
    return {path.name for path in folder.glob("*Z-*") if not path.name.endswith(".new")} if folder.is_dir() else set()


def other(found, wanted):
    """What is otherwise: pairs of what was found and what was wanted."""
    if isinstance(found, dict):
        return {name: other(found.get(name), wanted.get(name)) for name in {**found, **wanted}
                if found.get(name) != wanted.get(name)}
    return found, wanted


class Wanted:
    """What a command makes of a store, found out when it is asked for."""

    def __init__(self, whole, folder, key):
        self.each, self.folder = dict(CASES[key]), folder
        self.place = prepared(whole, folder, self.each)
        for path in (self.place / STORE / "snapshots").glob("*Z"):
            self.each["words"] = [path.name if word == SNAPSHOT else word for word in self.each["words"]]
        with killing.copied(self.place, folder) as here:
            done = killing.run(here, self.each["words"], octets=self.each["octets"], environment=options(self.each))
            assert done.status in (0, 1), done.error
            self.after, self.moments = seen(here, self.each, "in peace"), done.moments

    def before(self):
        """What there is without the command. After damage there is nothing to be seen."""
        if self.each["damage"] is not None:
            return None
        with killing.copied(self.place, self.folder) as here:
            return seen(here, self.each, "before")

    def half_way(self):
        """A moment at which the command is on record."""
        for tenths in (4, 5, 3, 6, 7):
            with killing.copied(self.place, self.folder) as here:
                if cut(here, self.each, self.moments * tenths // 10, "half way"):
                    return self.moments * tenths // 10
        raise AssertionError(f"{self.each['words']}: it is never on record")

    def judge(self, found, at):
        """Whole or not at all."""
        if found != self.after:
            before = self.before()
            assert found == before, f"{at}: there is not what was there before, {other(found, before)}, nor what is " \
                                    f"there after it in peace, {other(found, self.after)}"


@pytest.mark.parametrize("key", [key for key in CASES if KILLS or key.endswith("*")])
def test_cut_commands(whole, tmp_path, key):
    wanted = Wanted(whole, tmp_path, key)
    killed_too = key == FIRST and not KILLS
    for moment in [wanted.half_way()] if killed_too else killing.moments(wanted.moments, KILLS or 1, len(key)):
        at = f"onecopy {' '.join(wanted.each['words'])}: killed at moment {moment} of {wanted.moments}"
        with killing.copied(wanted.place, tmp_path) as here:
            begun = cut(here, wanted.each, moment, at)
            if killed_too:                              # who finishes it
                assert starting.start(here, options(wanted.each), at=EARLY).status == -signal.SIGKILL
            started(here, wanted.each, at)
            found = seen(here, wanted.each, at)
            judge_status(here, at, begun)
        wanted.judge(found, at)


@pytest.mark.parametrize("key", [key for key in CASES if name_of(key) == "snapshot create" or (
    KILLS and name_of(key) in {*KINDS, *REPEATED, "user move"})])
def test_who_finishes_is_killed(whole, tmp_path, key):
    """And the next start finishes it."""
    wanted = Wanted(whole, tmp_path, key)
    moment = wanted.moments * 2 // 3
    at = f"onecopy {' '.join(wanted.each['words'])}: killed at moment {moment} of {wanted.moments}"
    with killing.copied(wanted.place, tmp_path) as here:
        begun = cut(here, wanted.each, moment, at)
        shutil.copytree(here, tmp_path / "cut", symlinks=True)
        steps = starting.start(here, options(wanted.each)).moments
    for step in killing.moments(steps, KILLS or 1, 1):
        with killing.copied(tmp_path / "cut", tmp_path) as here:
            starting.start(here, options(wanted.each), at=step)
            then = f"{at}, the start at {step} of {steps}"
            started(here, wanted.each, then)
            found = seen(here, wanted.each, then)
            judge_status(here, then, begun)
        wanted.judge(found, then)


def test_what_is_under_way_is_left_alone(whole, tmp_path):
    """The record of a command that runs is not taken for one that was cut off."""
    with killing.copied(whole, tmp_path) as here:
        with operationrecord.begun(here / STORE, "user rename", "onecopy user rename", {"old": "alice", "new": "zoe"}):
            started(here, CASES["user rename *"], "meanwhile")
            running, waiting = operationrecord.under_way(here / STORE)
            assert [one.kind for one in running] == ["user rename"] and waiting == []
            store = open_store(here / STORE, SMALL)
            assert store.directory.find("alice") is not None and store.directory.find("zoe") is None
            store.close()
        assert operationrecord.under_way(here / STORE) == ([], []) and operationrecord.ended(here / STORE) == []


@pytest.fixture(scope="module")
def importing(whole, tmp_path_factory):
    """An import of a Maildir, and what it makes."""
    return Wanted(whole, tmp_path_factory.mktemp("importing"), "import maildir *")


def test_an_import_that_is_typed_waits_for_the_servers(importing, tmp_path):
    """The server does again the one that was cut off: an import beside it would bring every message twice."""
    with killing.copied(importing.place, tmp_path) as here:
        streams = [tmp_path / name for name in ("in", "out", "err")]
        streams[0].touch()
        streams[1].touch()
        os.mkfifo(streams[2])
        with operationrecord.begun(here / STORE, "import mbox", "onecopy import mbox", {}, holds=["carol"]):
            words = ["CAROL" if word == "carol" else word.replace(HERE, str(here)) for word in importing.each["words"]]
            typed = command.start(words,
                                  {**plain(), "ONECOPY_ROOT": str(here / STORE), **options(importing.each)}, streams)
            with streams[2].open() as complaints:
                assert "this waits for the end of onecopy import mbox" in complaints.readline()
                assert [one.kind for one in operationrecord.under_way(here / STORE)[0]] == ["import mbox"]
        typed.join()
        assert typed.exitcode == 0 and seen(here, importing.each, "after it") == importing.after


def test_the_server_waits_for_an_import_that_is_typed(importing, tmp_path):
    """By hand another form of the import is under way, for the user into whose mailboxes the one went that was cut off:
    the server leaves that one alone until the end of the other."""
    with killing.copied(importing.place, tmp_path) as here:
        begun = cut(here, importing.each, importing.half_way(), "half way")
        with operationrecord.begun(here / STORE, "import mbox", "onecopy import mbox", {}, holds=["carol"]):
            started(here, importing.each, "meanwhile")
            assert {one.id for one in operationrecord.under_way(here / STORE)[1]} == begun
        started(here, importing.each, "after it")
        assert seen(here, importing.each, "after it") == importing.after
        judge_status(here, "after it", begun)


def test_kinds_are_those_of_commands():
    assert {name.removesuffix(" mailboxes") for name in KINDS} - {"partition move"} <= set(registry.BY_NAME)
    assert set(REPEATED) <= set(registry.BY_NAME)
