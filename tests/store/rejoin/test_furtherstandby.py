"""Of two standbys the one that is behind is promoted. The other one has mail that is nowhere else: it does not follow
until that has been brought."""

import json
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.opening import open_store
from store.rejoin import returning, sendinghome
from store.rejoin.sendinghome import HomePeer
from store.standby import promotion, seeding, standbyjournal, standbystate, succession
from store.standby.sourcepeer import SourcePeer
from store.store import Store
from store.usermove.peer import Peer
from tests.store.rejoin.test_rejoin import Pair
from tests.store.rejoin.test_twopromoted import ALICE, BOB, SECOND, THIRD, serving, standby, store, subjects
from tests.store.standby.test_ahead import loses_power
from tests.support.processes import command
from tests.support.stores.standbypair import Standby
from tests.support.stores.stores import SMALL, deliver
from tools.commands.standby import rejoinstandby

__all__ = ["store"]

pytestmark = [pytest.mark.long, pytest.mark.few_folders]

ADDRESS = "second.example.org=127.0.0.1:1"


def one_is_behind(store: Store, folder: Path) -> tuple[Standby, Standby]:
    """Two standbys. Only the second has a message."""
    behind, other = standby(store, folder / SECOND), standby(store, folder / THIRD, THIRD)
    for each in (behind, other):
        each.follow()
    deliver(store, b"Subject: late\r\n\r\n", str(ALICE), str(BOB))
    other.follow()
    return behind, other


def state_of(made: Standby) -> standbystate.StandbyState:
    state = standbystate.read(made.root)
    assert state is not None
    return state


def goes_over(made: Standby) -> None:
    """`onecopy standby follow --from`."""
    with made.connected() as source:
        seeding.go_over(made.root, source, ADDRESS)


TRIES: dict[str, Callable[[Standby], None]] = {
    "follow --from": goes_over, "follow": Standby.follow, "create": lambda made: made.create(age=0)}


@pytest.mark.parametrize("what", TRIES)
def test_one_that_has_more_is_refused(store: Store, tmp_path: Path, what: str) -> None:
    """And stays as it is: it could still be promoted."""
    behind, other = one_is_behind(store, tmp_path)
    with closing(serving(behind)) as one:
        deliver(one, b"Subject: since\r\n\r\n", str(ALICE))
        other.store, before = one, state_of(other)
        with pytest.raises(StoreError, match="onecopy standby rejoin --from .*:PORT") as refused:
            TRIES[what](other)
        assert refused.value.problem is Problem.STORE_IN_USE
        assert state_of(other) == before
    with closing(serving(other)) as there:
        assert subjects(there) == [b"both", b"late"]
        assert check(there) == []


@pytest.mark.parametrize("what", TRIES)
def test_one_that_has_no_more_follows(store: Store, tmp_path: Path, what: str) -> None:
    """The one that was ahead is promoted."""
    behind, other = one_is_behind(store, tmp_path)
    with closing(serving(other)) as one:
        deliver(one, b"Subject: since\r\n\r\n", str(ALICE))
        behind.store = one
        TRIES[what](behind)
        behind.follow()
    with closing(serving(behind)) as there:
        assert subjects(there) == [b"both", b"late", b"since"]
        assert check(there) == []


def test_what_only_it_has_is_brought_home(store: Store, tmp_path: Path) -> None:
    """It shows that, before anything is changed. Cut off at each step it goes on; at the end it follows."""
    behind, other = one_is_behind(store, tmp_path)
    with closing(serving(behind)) as one:
        deliver(one, b"Subject: since\r\n\r\n", str(ALICE))
        other.store, before = one, state_of(other)
        with Pair(one, one).connected() as peer:
            host, theirs = peer.host, HomePeer(peer).other()
            assert returning.has_more(other.root, before, SourcePeer(peer), theirs)
            with returning.copied(other.root) as place, closing(open_store(place, SMALL)) as shown:
                found = sendinghome.find(shown, HomePeer(peer), HomePeer(peer).promoted(before.lineage),
                                         before.lineage)
                assert found.messages == 2
        assert state_of(other) == before and not list((other.root / "reading").iterdir())
        promotion.give_way(other.root, host, theirs)
        with pytest.raises(StoreError, match=f"{host} has been promoted"):
            succession.require_first(other.root)
        with closing(open_store(other.root, SMALL)) as mine:
            pair = Pair(mine, one)
            stranded = pair.found()
            assert (stranded.messages, stranded.done) == (2, [])
            pair.bring(stranded)
            assert pair.bring(pair.found()).there == 2
        assert subjects(one) == [b"both", b"late", b"since"]
        assert subjects(one, BOB) == [b"both", b"late"]
        with other.connected() as source:
            state = returning.follow(other.root, one.mailboxes.identity, source, ADDRESS,
                                     succession.read(one.root).lineage, tmp_path / "aside")
            seeding.seed(other.root, state, source, lambda what, done, total: None, age=0)
        other.follow()
        assert check(one) == []
    with closing(serving(other)) as there:
        assert subjects(there) == [b"both", b"late", b"since"]
        assert check(there) == []


def test_what_it_had_is_known_after_further_promotions(store: Store, tmp_path: Path) -> None:
    """By a standby of the one that was promoted, too, which is promoted in its turn."""
    behind, other = one_is_behind(store, tmp_path)
    with closing(serving(behind)) as one:
        third = standby(one, tmp_path / "four", "four.example.org")
    with closing(serving(third)) as last:
        assert succession.read(last.root).number == 2 and len(succession.read(last.root).partings) == 2
        other.store = last
        with pytest.raises(StoreError, match="standby rejoin"):
            goes_over(other)


def test_one_that_an_administrator_has_preferred_is_followed_on(store: Store, tmp_path: Path) -> None:
    """It has not been promoted: nobody who followed it has more, also where its log does not lead on."""
    behind, other = one_is_behind(store, tmp_path)
    with closing(serving(behind)) as one:
        succession.note_other(store.root, SECOND, succession.Other(succession.read(one.root).lineage, 1))
    assert succession.forget(store.root, SECOND)
    known = state_of(other)
    sums = {name: (*end, 1) for name, end in known.ends.items()}
    assert not succession.Parting(sums).has_all(evolve(known.parting(other.root), moment=1.0))
    goes_over(other)
    assert state_of(other).lineage.number == 2


def test_the_command(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows what only the standby has, and changes nothing; then it brings that, and the standby follows. One that
    has no more goes over at once."""
    third = standby(store, tmp_path / "four", "four.example.org")
    behind, other = one_is_behind(store, tmp_path)
    with closing(serving(behind)) as one, Pair(one, one).connected() as peer:
        monkeypatch.setattr(rejoinstandby, "connect", lambda *what: SourcePeer(peer))
        monkeypatch.setattr(Peer, "close", lambda peer: None)
        shown, before = rejoin(other, "--dry-run"), state_of(other)
        assert [(each["mailbox"], each["uid"]) for each in shown["mail"]] == [("user/alice/INBOX", 2), (
            "user/bob/INBOX", 2)]
        assert rejoin(other, "--dry-run") == shown and state_of(other) == before
        said = rejoin(other, "--yes")
        assert (said["brought"], said["there"], said["messages"]) == (2, 0, 2)
        assert subjects(one) == [b"both", b"late"]
        assert (state_of(other).phase, state_of(other).lineage) == ("following", succession.read(one.root).lineage)
        assert rejoin(third, "--dry-run")["messages"] == 0
        assert (rejoin(third, "--yes")["brought"], rejoin(third, "--yes", status=2)) == (0, {})
        assert check(one) == []


def rejoin(made: Standby, *words: str, status: int = 0) -> dict[str, Any]:
    """What the command prints as JSON."""
    found, out, complaint = command.run_here(("standby", "rejoin", "--from", "two:1", "--json", "--root", str(
        made.root), *words), os.environ, b"")
    assert found == status, complaint
    assert bool(status) == ("is a standby of" in complaint)
    return json.loads(out) if out else {}


@pytest.mark.parametrize("went_on", [False, True])
def test_an_answer_that_was_ahead_counts(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, went_on: bool
                                         ) -> None:
    """It is on disk here alone, and somebody may have been told that it is done; unless the machine that was promoted
    has followed the first one beyond it."""
    behind, other = standby(store, tmp_path / THIRD, THIRD), standby(store, tmp_path / SECOND)
    behind.follow()
    loses_power(store, other, tmp_path / "image", monkeypatch)
    assert standbyjournal.ahead(other.root, state_of(other)) is not None
    if went_on:
        deliver(store, b"Subject: later\r\n\r\n", str(ALICE))
        behind.follow()
    with closing(serving(behind)) as one:
        other.store = one
        if went_on:
            goes_over(other)
            other.follow()
            assert state_of(other).lineage.number == 1
        else:
            with pytest.raises(StoreError, match="standby rejoin"):
                goes_over(other)
            with returning.copied(other.root) as place, closing(open_store(place, SMALL)) as shown:
                assert len(shown.open_mailbox(shown.entry(ALICE)).rows) == 2
