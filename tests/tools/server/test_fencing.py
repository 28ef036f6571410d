"""A machine whose standby has been promoted does not serve: it asks before it does, and while it does."""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from mboxlist.engine.secondcopy import State
from mboxlist.names import MailboxName
from store.errors import Problem, StoreError
from store.finishing.cutoperations import Finishing
from store.mailboxes import namespace
from store.standby import promotion, standbystate, succession
from store.standby.following import Follower
from store.standby.succession import Lineage, Other, Succession
from store.store import Store
from tests.support.stores.standbypair import HOST as TWO
from tests.support.stores.standbypair import Standby
from tests.support.stores.stores import deliver, make_store
from tools.cli import options
from tools.commands.standby import standbystatus
from tools.exits import Failure
from tools.server.control import fencing
from tools.server.control.fencing import Watch
from tools.server.cutcommands import open_as_keeper

pytestmark = [pytest.mark.few_folders]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = make_store(tmp_path / "one", ("alice",))
    yield made
    made.close()


@pytest.fixture
def standby(store: Store, tmp_path: Path) -> Standby:
    made = Standby(store, tmp_path / "two")
    made.create()
    return made


def config(root: Path, **given: str) -> options.Config:
    return options.load({"root": str(root), "store.host": "one.example.org", **{
        f"exchange.{name}": value for name, value in given.items()}}, {}, None)


@contextlib.contextmanager
def answers(monkeypatch: pytest.MonkeyPatch, number: int | str) -> Iterator[None]:
    """What every other machine says: how many promotions it knows of, or why it cannot be asked."""
    def said(place: object, host: str, identity: str) -> Other:
        if isinstance(number, str):
            raise StoreError(Problem.UNAVAILABLE, number)
        return Other(Lineage(number, tuple(map(str, range(number)))), number)

    with monkeypatch.context() as patched:
        patched.setattr(fencing, "_said_by", said)
        patched.setattr(fencing.Place, "of", lambda config, host: None)
        yield


def test_who_follows_is_on_record_before_anything_is_sent(store: Store, standby: Standby) -> None:
    assert succession.read(store.root) == Succession(0, store.mailboxes.identity, {TWO: 0})


def test_a_promoted_one_is_found_before_anything_serves(store: Store, standby: Standby,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    with answers(monkeypatch, 0):
        fencing.require_first(config(store.root))
    with answers(monkeypatch, 1), pytest.raises(Failure, match=f"{TWO} has been promoted.*standby rejoin"):
        fencing.require_first(config(store.root))
    with answers(monkeypatch, "it does not answer"), pytest.raises(Failure, match="has been promoted"):
        fencing.require_first(config(store.root))           # it is on record now
    assert succession.forget(store.root, TWO)
    with answers(monkeypatch, 1):
        fencing.require_first(config(store.root))
    assert succession.read(store.root).number == 2          # the other one will be refused, should it come back


def test_one_that_cannot_be_asked(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch,
                                  caplog: pytest.LogCaptureFixture) -> None:
    with answers(monkeypatch, "it does not answer"), caplog.at_level(logging.WARNING):
        fencing.require_first(config(store.root))
        assert f"nobody knows whether {TWO} has been promoted" in caplog.text
        with pytest.raises(Failure, match=r"exchange\.start_alone = true"):
            fencing.require_first(config(store.root, start_alone="false"))
        succession.forget(store.root, TWO)
        fencing.require_first(config(store.root, start_alone="false"))


def test_a_promoted_one_is_found_while_this_one_serves(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch,
                                                       caplog: pytest.LogCaptureFixture) -> None:
    """Who follows at that moment is not asked."""
    monkeypatch.setattr(fencing, "ASK_SECONDS", 0.01)
    asked, fenced = list[str](), threading.Event()
    ask = fencing.ask

    def noted(config: options.Config, hosts: set[str], *more: Any) -> dict[str, str]:
        asked.extend(hosts)
        return ask(config, hosts, *more)

    monkeypatch.setattr(fencing, "ask", noted)
    following, looked = {TWO}, threading.Semaphore(0)

    def callers() -> set[str]:
        looked.release()
        return following

    with answers(monkeypatch, 1):
        watch = Watch(config(store.root), store.mailboxes.identity, callers, fenced.set)
        watch.start()
        for _ in range(3):
            assert looked.acquire(timeout=180)
        assert not asked
        following.clear()
        assert fenced.wait(180)
        watch._thread.join(180)
    assert set(asked) == {TWO}
    assert "this machine serves no more" in caplog.text


def test_who_has_served_goes_on_beside_one_that_was_promoted_besides(store: Store) -> None:
    """A process that dies is no start."""
    succession.change(store.root, lambda now: evolve(now, number=1, line=("a",)))
    succession.note_other(store.root, TWO, Other(Lineage(1, ("b",))))
    fencing.require_again(config(store.root))
    with pytest.raises(Failure, match="have both been promoted"):
        fencing.require_first(config(store.root))
    succession.note_other(store.root, TWO, Other(Lineage(2, ("b", "c"))))
    with pytest.raises(Failure, match=f"{TWO} has been promoted"):
        fencing.require_again(config(store.root))


def test_one_that_does_not_answer_keeps_no_other_waiting(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is asked at the same time: each waits for the other here."""
    both = threading.Barrier(2, timeout=180)

    def said(place: object, host: str, identity: str) -> Other:
        both.wait()
        return Other(Lineage(1, ("a",))) if host == TWO else Other()

    with answers(monkeypatch, 0):
        monkeypatch.setattr(fencing, "_said_by", said)
        assert fencing.ask(config(store.root), [TWO, "three.example.org"], "identity") == {}
    assert succession.read(store.root).successor == TWO


def test_status_says_that_another_was_promoted_besides(
        store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standbystatus, "is_up", lambda root: True)
    served = {"time": time.time(), "standbys": {}, "refuse": True}
    assert standbystatus._served(store.root, served, as_json=False) == 0
    succession.change(store.root, lambda now: evolve(now, contender=TWO))
    assert standbystatus._served(store.root, served, as_json=False) == 1
    assert f"this machine and {TWO} have both been promoted" in capsys.readouterr().out
    assert standbystatus._served(store.root, served, as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["contender"] == TWO


def test_a_later_number_ends_the_stream_of_an_old_one(store: Store, standby: Standby) -> None:
    """A standby that knows of a promotion does not follow one that does not, and tells it."""
    state = standbystate.read(standby.root)
    assert state is not None
    deliver(store, b"Subject: new\r\n\r\n", str(MailboxName("alice", "INBOX")))
    with standby.connected() as source, pytest.raises(StoreError, match="has been promoted") as refused:
        Follower(standby.root, source, evolve(state, succession=3, line=("a", "b", "c"))).begin()
    assert refused.value.problem is Problem.STORE_IN_USE
    assert succession.read(store.root).later == 3
    with pytest.raises(StoreError, match="has been promoted"):
        standby.follow()                # nor does it send anything to others
    assert standbystate.read(standby.root) == state


def test_each_promotion_counts(store: Store, standby: Standby) -> None:
    succession.change(store.root, lambda now: evolve(now, number=4))
    standby.follow()
    promotion.promote(standby.root)
    known = succession.read(standby.root)
    assert (known.number, known.identity, known.followers) == (5, store.mailboxes.identity, {})


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"number": 1, "who": 2}'])
def test_a_record_that_is_damaged_lets_nobody_serve(store: Store, damage: bytes) -> None:
    (store.root / "succession.json").write_bytes(damage)
    with pytest.raises(Failure, match="cannot be read"):
        fencing.require_first(config(store.root))


def test_nothing_is_changed_alone_once_the_keeper_has_opened_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                       ) -> None:
    """Commands can open it then, too. What was cut off is finished all the same: nobody hears that it is done."""
    root = tmp_path / "one"
    make_store(root, ("alice",)).close()
    finished = list[State]()

    def finish(_: Finishing, store: Store) -> None:
        finished.append(store.write_freeze.second.state)
        namespace.create_mailbox(store, MailboxName("alice", "Cut off"))

    monkeypatch.setattr(Finishing, "at_start", finish)
    store = open_as_keeper(config(root, port="1", standbys="two", synchronous="two"), "the keeper")
    try:
        assert finished == [State.REFUSING]
        assert store.mailboxes.find(MailboxName("alice", "Cut off")) is not None
        with pytest.raises(StoreError):
            namespace.create_mailbox(store, MailboxName("alice", "Now"))
    finally:
        store.write_freeze.second.forget()
        store.close()
