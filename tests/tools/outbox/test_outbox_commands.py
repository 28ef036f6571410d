"""`onecopy outbox`: many rows are read and changed some at a time, and counted all the same."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mboxlist.engine.transact import transact
from store.events import receivers
from store.events.outboxtable import DEAD, OutboxTable, Parcel
from store.events.receivers import Receiver
from store.opening import open_store
from tests.support.processes.program import QUICK, Program
from tests.support.stores.stores import SMALL, make_store
from tools.commands.observing import outbox as commands

WAIT, DIE = 5, 7


@pytest.fixture
def onecopy(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """A store with rows in two environments, of which two fit into memory; the lists of rows are counted."""
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    store = make_store(tmp_path / "store")
    receivers.change(store.root, lambda before: [Receiver("a")])
    primary = store.partitions["primary"]
    for env, table in ((store.mailboxes.env, store.outbox), (primary.env, primary.outbox)):
        for number in range(WAIT + DIE):
            transact(env, lambda txn, table=table, number=number: table.add(["a"], "event", {"event": f"E{number}"}, 0,
                                                                            txn))
        for parcel in table.some("a", DIE):
            transact(env, lambda txn, table=table, parcel=parcel: table.bury(parcel, 3, "no", txn))
    store.close()
    monkeypatch.setattr(commands, "AT_A_TIME", 2)
    return Program(tmp_path / "store", capsys, monkeypatch)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each look has read."""
    found, some = [], OutboxTable.some

    def counted(table: OutboxTable, *how: Any, **more: Any) -> list[Parcel]:
        rows = some(table, *how, **more)
        found.append(len(rows))
        return rows

    monkeypatch.setattr(OutboxTable, "some", counted)
    return found


def test_the_first_of_all_environments_are_shown(onecopy: Program, read: list[int]) -> None:
    for dead, wanted in ((("--dead",), range(DIE)), ((), range(DIE, DIE + WAIT))):
        shown: Any = onecopy.json("outbox", "show", "a", "--most", "1000", *dead)
        assert sorted(each["body"]["event"] for each in shown) == sorted([f"E{number}" for number in wanted] * 2)
        assert [each["at"] for each in shown] == sorted(each["at"] for each in shown)
    shown = onecopy.json("outbox", "show", "a", "--most", "3")
    assert len(shown) == 3 and max(read) == 2
    onecopy("outbox", "show", "a", "--most", "1001", status=2)


def test_all_are_sent_again_or_discarded_some_at_a_time(onecopy: Program, read: list[int]) -> None:
    assert onecopy.json("outbox", "retry", "a", "--dry-run") == {
        "receiver": "a", "dry_run": True, "sent_again": 2 * DIE}
    assert onecopy("outbox", "retry", "a") == f"{2 * DIE} sent again\n"
    assert onecopy("outbox", "retry", "a") == "0 sent again\n"
    first = onecopy.json("outbox", "show", "a")[0]["id"]                    # type: ignore[index]
    assert onecopy.refused("outbox", "discard", "none", status=2).startswith("there is no receiver none")
    assert onecopy("outbox", "discard", "a", "--waiting", "--yes", "--id", first) == "1 discarded\n"
    assert onecopy.refused("outbox", "discard", "a", "--waiting", "--yes", "--id", first, status=2) == (
        f"nothing of a has the id {first}")
    listed: Any = onecopy.json("outbox", "list")
    assert [(row["waiting"], row["dead"]) for row in listed] == [(2 * (WAIT + DIE) - 1, 0)]
    assert onecopy("outbox", "discard", "a", "--waiting", "--yes") == f"{2 * (WAIT + DIE) - 1} discarded\n"
    assert max(read) == 2


def test_what_waits_for_nobody_and_what_cannot_be_read_is_found_and_mended(onecopy: Program) -> None:
    with closing(open_store(onecopy.root, SMALL)) as store:
        table, env = store.partitions["primary"].outbox, store.partitions["primary"].env
        first, dead = table.some("a", 1)[0], table.some("a", 1, DEAD)[0]
        for key in (first.key, dead.key):
            transact(env, lambda txn, key=key: table.table.put(key, b"{no JSON", txn))
    said = onecopy("check", status=1)
    assert "rows of the outbox cannot be read" in said and "outbox discard a --unreadable" in said
    assert onecopy("outbox", "discard", "a", "--unreadable", "--yes") == "2 discarded\n"
    onecopy("check")
    shown: Any = [*onecopy.json("outbox", "show", "a"), *onecopy.json("outbox", "show", "a", "--dead")]  # type: ignore
    assert [each["id"] for each in shown if each["body"]["event"] == "vnd.onecopy.EventsLost"] == [first.id, dead.id]
    receivers.change(onecopy.root, lambda before: [])
    said = onecopy("check", status=1)
    assert "something waits for a receiver that is not configured" in said and "outbox discard a --waiting" in said
    onecopy("outbox", "discard", "a", "--waiting", "--yes")
    onecopy("check")
