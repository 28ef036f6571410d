"""What a round looks at, and when the standby asks for the next one."""

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from attrs import evolve

from mboxlist import privatefiles
from mboxlist.engine.logfiles import log_name
from store.check.wholecheck import check
from store.errors import StoreError
from store.expiry import rulebook
from store.standby import copyformat, following, standbyjournal
from store.standby.copyformat import Quick
from store.standby.sourcepeer import SourcePeer
from store.standby.standbystate import StandbyState
from store.store import Store
from store.usermove.messageformat import Message
from tests.store.standby.test_ahead import in_step
from tests.store.standby.test_followrounds import Through
from tests.support.stores.standbypair import INBOX, Standby, is_equal, promoted
from tests.support.stores.stores import deliver
from tests.support.stores.whole import everything

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


def test_a_folder_that_comes_where_there_was_none(store: Store, standby: Standby) -> None:
    """It is looked for only when the one in which it would be has changed."""
    standby.create()
    folder = store.root / rulebook.FOLDER
    assert not folder.exists()
    with standby.following() as follower:
        for number in range(3):
            os.utime(store.root, (1, 1))        # that was long ago
            deliver(store, b"Subject: %d\r\n\r\n" % number, str(INBOX))
            follower.round(0)
        folder.mkdir()
        privatefiles.write(folder / "example.com.rules", b"")
        deliver(store, b"Subject: last\r\n\r\n", str(INBOX))
        follower.round(0)
        assert (standby.root / folder.name / "example.com.rules").exists()
        follower.finish()


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_who_goes_on_asks_as_soon_as_it_is_on_disk(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch,
                                                   *, is_waited_for: bool) -> None:
    """Before it does anything else: answers at the first machine wait for that question, and never before."""
    done = list[str]()
    of = Quick.of
    monkeypatch.setattr(copyformat.Quick, "of", lambda *what: (done.append("looks"), of(*what))[1])
    append, ask, after = standbyjournal.Journal.append, following.SourcePeer.ask_next, copyformat.Quick.after
    monkeypatch.setattr(standbyjournal.Journal, "append", lambda *what: (append(*what), done.append("on disk"))[0])
    monkeypatch.setattr(following.SourcePeer, "ask_next", lambda *what, **how: (
        done.append("asks"), ask(*what, **how))[1])
    monkeypatch.setattr(copyformat.Quick, "after", lambda *what: (done.append("goes on"), after(*what))[1])
    standby.create()
    with in_step(store, standby) if is_waited_for else standby.following() as follower:
        while follower.round(0):
            pass
        deliver(store, b"Subject: one\r\n\r\n", str(INBOX))
        done.clear()
        assert follower.round(0, go_on=True)
        if is_waited_for:
            assert done == ["asks", "on disk", "asks", "looks", "goes on"]
        else:
            assert done == ["asks", "looks", "on disk", "asks", "goes on"]
        follower.round(0)
        follower.finish()


def others(said: Message) -> Iterator[Message]:
    """What a first machine could say instead, each with one thing wrong, or of another form."""
    def with_fields(change: Callable[[dict[str, Any]], object]) -> Message:
        fields = copy.deepcopy(dict(said.fields))
        change(fields)
        return evolve(said, fields=fields)

    for name in set(said.fields) - {"ahead"}:
        yield with_fields(lambda fields, name=name: fields.pop(name))       # type: ignore[misc]
        for value in (None, "1", [], [[]], {}, -1, 1.5):
            if name != "step" and said.fields[name] != value and (name, value) != ("moment", 1.5):
                yield with_fields(lambda fields, name=name, value=value: fields.update({name: value}))  # type: ignore[misc]
    for value in (float("nan"), float("inf"), 1e300, 10 ** 400):        # json.loads takes all of these
        yield with_fields(lambda fields, value=value: fields.update({"moment": value}))     # type: ignore[misc]
    for name in ("small", "tables", "epochs", "first", "unlike", "unpacked", "other"):
        yield with_fields(lambda fields, name=name: fields.update({name: {}}))      # type: ignore[misc]
    for name in ("known", "ends"):
        for environment in said.fields[name]:
            for at in range(2):
                yield with_fields(lambda fields, name=name, environment=environment, at=at:     # type: ignore[misc]
                                  fields[name][environment].__setitem__(at, fields[name][environment][at] + 1))
            yield with_fields(lambda fields, name=name, environment=environment:        # type: ignore[misc]
                              fields[name].pop(environment))
        yield with_fields(lambda fields, name=name:         # type: ignore[misc]
                          fields[name].update({"partitions/other/index": [1, 0]}))
    for name, wrong in (("logs", (["elsewhere"], [0, "1", True], [0, -1, "1"], [0, -1, 1.5])),
                        ("files", (["elsewhere", "../primary"], ["", "zz", "ab"], [0, "1"], ["1", -1, None],
                                   [0, "1"]))):
        for at, values in enumerate(wrong):
            for value in values:
                yield with_fields(lambda fields, name=name, at=at, value=value:         # type: ignore[misc]
                                  fields[name][0].__setitem__(at, value))
        yield with_fields(lambda fields, name=name: fields[name].append(fields[name][0]))       # type: ignore[misc]
        yield with_fields(lambda fields, name=name: fields[name][0].pop())      # type: ignore[misc]
    for octets in (said.octets[:-1], said.octets + b"x", b""):
        yield evolve(said, octets=octets)
    yield evolve(said, head=b"")            # it came packed


def test_what_is_acknowledged_before_it_is_looked_at(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch
                                                     ) -> None:
    """Only an answer that is whole, goes on from what is here, and leaves nothing to ask."""
    seen, is_plain = list[tuple[Message, dict[str, Any]]](), copyformat.is_plain
    monkeypatch.setattr(following, "is_plain", lambda said, known: (
        seen.append((said, dict(known))), is_plain(said, known))[1])
    standby.create()
    with in_step(store, standby) as follower:
        deliver(store, b"Subject: one\r\n\r\n", str(INBOX))
        assert follower.round(0, go_on=True)
        follower.round(0)
        follower.finish()
    said, known = seen[0]
    assert said.fields["ahead"] and len(said.fields["files"]) == len(said.fields["logs"]) == 1
    assert is_plain(said, known)
    count = 0
    for other in others(said):
        assert not is_plain(other, known), other.fields
        count += 1
    assert count > 100
    assert Quick.of(said).is_whole()


@pytest.mark.parametrize("name", ["moment", "lag"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300, 10 ** 400, "1", None, True])
def test_a_time_that_is_none_is_refused(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch, name: str,
                                        value: object) -> None:
    """On record it would stop a promotion half way."""
    standby.create()
    with standby.following() as follower:
        while follower.round(0):
            pass
        deliver(store, b"Subject: one\r\n\r\n", str(INBOX))
        said = follower.source.said
        monkeypatch.setattr(SourcePeer, "said", lambda peer: (
            lambda found: evolve(found, fields={**found.fields, name: value}))(said()))
        with pytest.raises(StoreError):
            while follower.round(0):
                pass


def test_what_is_acknowledged_and_cannot_be_read_stays(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch
                                                       ) -> None:
    """It asks before it looks: the databases are copied again. Promoted instead, it has what it has acknowledged."""
    standby.create()
    with in_step(store, standby) as follower:
        deliver(store, b"Subject: one\r\n\r\n", str(INBOX))
        asked, ask = list[int](), SourcePeer.ask_next

        def came(environment: str, octets: bytes) -> None:
            assert asked        # it has been acknowledged
            raise ValueError

        def asks(peer: SourcePeer, state: StandbyState, number: int, wait: float, **more: Any) -> None:
            asked.append(number)
            ask(peer, state, number, wait, **more)

        follower.ask(0)
        monkeypatch.setattr(SourcePeer, "ask_next", asks)
        follower.came = came
        with pytest.raises(following.Reseed):
            follower.round(0, go_on=True)
    known = everything(store)
    with closing(promoted(standby)) as other:
        assert everything(other) == known
        assert check(other) == []


class Hurried(Through):
    """The next answer is always there already."""

    def is_ready(self) -> bool:
        return True


def test_what_waits_in_the_journal_is_there_after_a_promotion(store: Store, standby: Standby,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """While answers come one upon the other, they wait in the journal to be put into their places, but not too many.
    Whoever follows this standby hears of what is in place only. Killed then, it has all that it has acknowledged."""
    monkeypatch.setattr(following, "MOST_WAITING", 3)
    standby.create()
    standby.wrap = Hurried
    shown = list[StandbyState]()

    def shows(state: StandbyState, current: float, small: int) -> None:
        assert current
        for name, (number, octet) in state.ends.items():
            assert (standby.root / name / log_name(number)).stat().st_size >= octet
        shown.append(state)

    messages = standby.root / "partitions" / "primary" / "messages"

    def there() -> int:
        return sum(path.is_file() for path in messages.rglob("*"))

    with in_step(store, standby) as follower:
        follower.shown, before = shows, there()
        for number in range(8):
            deliver(store, b"Subject: waits %d\r\n\r\n" % number, str(INBOX))
            while not follower.round(0, go_on=True):        # it has asked before there was something
                pass
            assert there() - before in ((0,) if number < 3 else range(number - 4, number))  # one is ahead, three wait
        assert len({str(state.ends) for state in shown}) > 1
    known = everything(store)
    with closing(promoted(standby)) as other:
        assert everything(other) == known
        is_equal(store, other)
        assert check(other) == []
