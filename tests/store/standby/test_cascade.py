"""A standby of a standby: it has what that one has, never more, and takes its place where both have taken that of the
first machine."""

import errno
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import pytest
from attrs import define, evolve, field

from mboxlist.engine.damagemarks import log_files
from mboxlist.engine.hotcopy import log_number
from mboxlist.names import MailboxName
from store.check.wholecheck import check, check_all
from store.errors import Problem, StoreError
from store.expiry.rulebook import set_file
from store.opening import open_store
from store.partition import marks
from store.partitions import partitionmove, volumes
from store.snapshots.taking import all_environments
from store.standby import applying, promotion, seeding, sourcepeer, standbystate, succession
from store.standby.cascade import cascade, followersrecord, keptlogs, seedcopy
from store.standby.cascade.cascade import Cascade
from store.standby.cascade.cascadesource import CascadeSource
from store.standby.following import Follower, Reseed
from store.standby.source import copysource
from store.standby.source.instep import InStep, Step
from store.standby.sourcepeer import SourcePeer
from store.store import Store
from store.usermove.messageformat import Ended
from tests.store.standby.test_followrounds import Cut
from tests.support.stores.movepair import LIMIT, Plain
from tests.support.stores.standbypair import HOST, INBOX, Standby, exchange, is_equal, promoted, work
from tests.support.stores.stores import SMALL, deliver

pytestmark = [pytest.mark.long, pytest.mark.few_folders]

THIRD, FOURTH = "third.example.org", "fourth.example.org"


@define(eq=False)
class Further(Standby):
    """The standby of a standby, which sends what it has."""

    above: Cascade = field(kw_only=True)

    def answering(self, theirs: socket.socket) -> Callable[[], None]:
        def run() -> None:
            with closing(theirs), suppress(Ended, OSError):
                CascadeSource(self.above, self.host).run(Plain(theirs))

        return run


@define(eq=False)
class Chain:
    """A store, its standby, and the standby of that one."""

    store: Store
    standby: Standby
    cascade: Cascade
    third: Further
    group: InStep

    def follow(self) -> None:
        """The standby has all that there is now, and shows it; so does the third machine."""
        self.show()
        self.third.follow()

    def show(self, rounds: int = 2) -> None:
        with self.following() as follower:
            for _ in range(rounds):
                follower.round(0)
            follower.finish()

    @contextmanager
    def following(self) -> Iterator[Follower]:
        self.cascade.withdraw()
        with self.standby.following() as follower:
            follower.shown, follower.further = self.cascade.show, self.cascade.further
            yield follower


@pytest.fixture
def chain(store: Store, standby: Standby, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chain]:
    monkeypatch.setattr(sourcepeer, "SILENCE", LIMIT)       # a slow machine is no silent one
    second = store.write_freeze.second
    group = standby.group = InStep.of(second, [HOST, THIRD, FOURTH])
    standby.create()
    made = Cascade(standby.root, standby.connected, {THIRD})
    made.begin()
    third = Further(store, tmp_path / "three", host=THIRD, above=made)
    found = Chain(store, standby, made, third, group)
    found.show()
    third.create()
    yield found
    second.forget()
    group.close()


def ends_of(store: Store) -> dict[str, tuple[int, int]]:
    return {name: env.log_end() for name, env in all_environments(store).items()}


def state_of(standby: Standby) -> standbystate.StandbyState:
    state = standbystate.read(standby.root)
    assert state is not None
    return state


def test_it_has_all_that_the_one_before_it_has(chain: Chain) -> None:
    """In small rounds and in large ones, after tables were brought up to date; and takes its place."""
    for number in range(1, 4):
        work(chain.store, number)
        chain.follow()
        if number == 2:
            state = state_of(chain.third)
            applying.apply(chain.third.root, state)
            applying.applied(chain.third.root, state, state)
    assert state_of(chain.third).ends == state_of(chain.standby).ends
    each_has_a_place(chain)
    with closing(promoted(chain.third)) as other:
        is_equal(chain.store, other)
        assert check(other) == []


def each_has_a_place(chain: Chain) -> None:
    """So no two skip to the same UIDs, and a start of the first machine asks each (docs/standby.md)."""
    known = succession.read(chain.store.root).followers
    assert known.keys() == {HOST, THIRD} and len(set(known.values())) == 2
    assert {HOST: state_of(chain.standby).place, THIRD: state_of(chain.third).place} == known
    assert followersrecord.read(chain.standby.root, state_of(chain.standby)).places == {THIRD: known[THIRD]}


def test_the_first_machine_has_to_know_it_before_it_gets_anything(chain: Chain, tmp_path: Path) -> None:
    """One that it does not name, or whose answers wait for it, gets nothing; nor does a new one while it is away."""
    stranger = Further(chain.store, tmp_path / "stranger", host="stranger.example.org", above=chain.cascade)
    with pytest.raises(StoreError, match="not among exchange.standbys"):
        stranger.create()
    assert not stranger.root.exists()
    chain.group.members[FOURTH].asked = object()        # type: ignore[assignment]
    with pytest.raises(StoreError, match="wait for"):
        Further(chain.store, stranger.root, host=FOURTH, above=chain.cascade).create()
    chain.group.members[FOURTH].asked = None

    def away() -> AbstractContextManager[SourcePeer]:
        raise StoreError(Problem.UNAVAILABLE, "it is away")

    chain.cascade.connect = away
    with pytest.raises(StoreError, match="away"):
        Further(chain.store, stranger.root, host=FOURTH, above=chain.cascade).create()
    chain.third.follow()        # which it knows already
    own = standbystate.host_of(state_of(chain.standby).address)
    with pytest.raises(StoreError, match="follows .* itself"):      # nobody follows one that follows it
        Further(chain.store, stranger.root, host=own, above=chain.cascade).create()
    assert not stranger.root.exists()


def test_it_follows_the_one_that_was_promoted_without_a_copy(chain: Chain) -> None:
    """The logs go on from where they were: no database comes again. It has another number of promotions then."""
    work(chain.store, 1)
    chain.follow()
    with closing(promoted(chain.standby)) as serves:
        assert succession.read(serves.root).followers.keys() == {THIRD}
        assert not (serves.root / followersrecord.FILE).exists()
        work(serves, 2)
        third = Standby(serves, chain.third.root, host=THIRD)
        third.follow()
        assert state_of(third).lineage == succession.read(serves.root).lineage
        assert state_of(third).above == ()
        assert state_of(third).skipped == succession.read(serves.root).skipped == 1
        with closing(promoted(third)) as last:
            is_equal(serves, last)
            assert check(last) == []
            assert succession.read(last.root).number == 2


def test_it_goes_over_to_the_first_machine_without_a_copy(chain: Chain) -> None:
    """The standby between them is lost. And back, when it is there again."""
    work(chain.store, 1)
    third = Standby(chain.store, chain.third.root, host=THIRD, group=chain.group)
    with third.connected() as source:
        seeding.go_over(third.root, source, "mail.example.org=127.0.0.1:1")
    assert state_of(third).above == ()
    third.follow()
    assert state_of(third).ends == ends_of(chain.store)
    work(chain.store, 2)
    chain.show()
    with chain.third.connected() as source:
        seeding.go_over(third.root, source, "second.example.org=127.0.0.1:1")
    assert state_of(third).above == (state_of(chain.standby).address,)
    chain.third.follow()
    with closing(promoted(chain.third)) as other:
        is_equal(chain.store, other)


def test_a_connection_that_is_lost_at_every_step(chain: Chain) -> None:
    """It has counted, or it has not; the next one begins from there."""
    work(chain.store, 1)
    chain.show()
    for step in range(1, 200):
        chain.third.wrap = lambda wire, step=step: Cut(wire, step)      # type: ignore[misc]
        try:
            chain.third.follow()
        except StoreError as error:
            assert error.problem is Problem.UNAVAILABLE
        else:
            break
    assert step > 7
    with closing(promoted(chain.third)) as other:
        is_equal(chain.store, other)
        assert check(other) == []


def test_the_first_machine_hears_of_a_promotion_from_whoever_knows(tmp_path: Path) -> None:
    """Also from one that follows the machine that was promoted: that one counts as promoted, and how far it went ahead
    is known as soon as anybody says it."""
    lineage = succession.Lineage().promoted()
    for skipped in (0, 3):
        succession.note_other(tmp_path, HOST, succession.Other(lineage, skipped, HOST))
        known = succession.read(tmp_path)
        assert (known.successor, known.contender, known.ahead) == (HOST, "", skipped)


def test_both_promoted_contest_and_show_no_uid_twice(chain: Chain) -> None:
    chain.follow()
    uids = list[int]()
    for each in (chain.standby, chain.third):
        with closing(promoted(each)) as other:
            work(other, 3)
            uids += [uid for uid in other.open_mailbox(other.entry(INBOX)).rows["uid"].tolist() if uid > 65_536]
    assert len(set(uids)) == len(uids) > 12
    one, two = (succession.read(each.root) for each in (chain.standby, chain.third))
    assert one.lineage.contests(two.lineage)


def test_databases_that_are_copied_again_are_copied_again_there_too(chain: Chain) -> None:
    """A table that was made without the log: the standby needs a new copy, and then the third machine does."""
    exchange(chain.store)
    work(chain.store, 1)
    with pytest.raises(Reseed):
        chain.show()
    with pytest.raises(StoreError, match="just now"):
        chain.third.follow()
    chain.standby.create(age=0)
    chain.show()
    with pytest.raises(Reseed):
        chain.third.follow()
    chain.third.create(age=0)
    chain.follow()
    with closing(promoted(chain.third)) as other:
        is_equal(chain.store, other)
        assert check(other) == []


def test_log_files_stay_for_one_that_was_away(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """The standby needs them no more. One goes when all have it, and when there are too many."""
    index = chain.standby.root / "partitions/primary/index"
    chain.third.follow()
    new_log_file(chain)
    assert [log_number(path.name) for path in log_files(index / keptlogs.KEPT)] == [1]
    assert log_number(log_files(index)[0].name) == 2
    assert state_of(chain.third).ends["partitions/primary/index"][0] == 1
    says_what_it_has(chain)
    assert state_of(chain.third).ends == state_of(chain.standby).ends
    new_log_file(chain)
    assert [log_number(path.name) for path in log_files(index / keptlogs.KEPT)] == [2]
    monkeypatch.setattr(keptlogs, "KEPT_OCTETS", 1)
    new_log_file(chain)
    assert not log_files(index / keptlogs.KEPT)
    with pytest.raises(Reseed):
        chain.third.follow()


def says_what_it_has(chain: Chain) -> None:
    """The third machine has all, and has said so."""
    with chain.third.following() as follower:
        for _ in range(3):
            follower.round(0)
        follower.finish()


def new_log_file(chain: Chain) -> None:
    """The log of the partition goes on in the next file, also at the standby, whose tables have all of it."""
    env = chain.store.partitions["primary"].env
    first = env.log_end()[0]
    while env.log_end()[0] == first:
        env._env.log_printf(b"-" * 2000)
    work(chain.store, 2 * first + 20)
    env.checkpoint()
    chain.show()
    state = state_of(chain.standby)
    applying.apply(chain.standby.root, state)
    applying.applied(chain.standby.root, state, state, chain.cascade.let_go)


def test_app_passwords_go_there_too(chain: Chain) -> None:
    """Small files, which no log has."""
    folder = chain.store.root / "access"
    folder.mkdir(exist_ok=True)
    for name in ("one", "two"):
        (folder / name).write_text(name)
    chain.show(3)
    says_what_it_has(chain)
    assert sorted(path.name for path in (chain.third.root / "access").iterdir()) == ["one", "two"]
    with chain.following() as above:
        above.round(0)
        above.round(0)
        forget(chain, above, folder)
    assert list((chain.third.root / "access").iterdir()) == []


def test_rules_of_expiry_go_there_too(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a domain, and of a partition, which lie in the folder of that."""
    monkeypatch.setattr(copysource, "OFTEN", -1.0)
    names = "expire/example.com.rules", "partitions/primary/expire.rules"
    for name in names:
        set_file(chain.store.root / name, "mail.folderpattern: *\nmail.savedays: 30\n")
    chain.show(3)
    says_what_it_has(chain)
    for name in names:
        assert (chain.third.root / name).read_bytes() == (chain.store.root / name).read_bytes()


def forget(chain: Chain, above: Follower, folder: Path) -> None:
    with chain.third.following() as below:
        for name in ("one", "two"):
            (folder / name).unlink()
        for _ in range(4):
            above.round(0.3)
            below.round(0)


def test_it_is_as_late_as_the_one_before_it(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """What that one had was all an hour ago: so says this one, though it has all of that. The first machine hears it of
    both."""
    chain.show()
    monkeypatch.setattr(chain.cascade, "_shown", evolve(chain.cascade.now(), current=time.monotonic() - 3600))
    with chain.third.following() as follower:
        for _ in range(2):
            follower.round(0)
        assert 3600 <= follower.lag < 5000
    told = chain.cascade.further()
    assert told is not None and 3600 <= told[THIRD] < 5000
    assert cascade.seen(chain.standby.root)["standbys"] == told
    monkeypatch.setattr(cascade, "TOLD_SECONDS", 0.0)
    with chain.following() as follower:
        follower.round(0)
        found = chain.group.members[THIRD]
        assert (found.step, found.through) == (Step.FOLLOWS, HOST)
        assert time.time() - found.current >= 3600
        monkeypatch.setattr(cascade, "HEARD_SECONDS", 0.0)
        follower.round(0)
        assert (found.step, found.through) == (Step.AWAY, "")


def test_nothing_is_left_of_a_copy_that_was_cut_off(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full. One that is whole stays for a while; a promotion removes it."""
    fourth = Further(chain.store, chain.third.root.with_name("four"), host=FOURTH, above=chain.cascade)
    copies = chain.standby.root / seedcopy.FOLDER

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    chain.cascade.begin()
    for where, name in ((applying, "copy_environment"), (seedcopy, "_part")):
        with monkeypatch.context() as patched:
            patched.setattr(where, name, full)
            with pytest.raises(StoreError, match="no space"):
                fourth.create(age=0)
        assert list(copies.iterdir()) == []
    fourth.create(age=0)
    chain.cascade.tidy()
    assert len(list(copies.iterdir())) == 1
    monkeypatch.setattr(cascade, "COPY_SECONDS", 0.0)
    with fourth.following() as follower:
        follower.round(0)
        chain.cascade.tidy()
    assert list(copies.iterdir()) == []
    with closing(promoted(chain.standby)) as other:
        assert not copies.exists()
        assert not list(chain.standby.root.rglob(keptlogs.KEPT))
        assert check_all(other) == []


def test_a_promotion_that_is_cut_off_knows_who_follows(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is cut off: whoever follows may be promoted, and is asked."""
    chain.follow()

    def cut(*arguments: object) -> None:
        raise OSError(5, "cut")

    for where, name in ((promotion, "_go_ahead"), (promotion, "STANDBY"), (followersrecord, "forget")):
        with monkeypatch.context() as patched:
            patched.setattr(where, name, "none" if name == "STANDBY" else cut)
            with pytest.raises(StoreError):
                promotion.promote(chain.standby.root)
    assert (chain.standby.root / followersrecord.FILE).exists()
    with closing(open_store(chain.standby.root, SMALL)) as other:
        assert succession.read(other.root).followers.keys() == {THIRD}
        assert check_all(other) == []


# Some partitions

CAROL = MailboxName("carol@example.com", "INBOX")


@pytest.fixture
def parts(chain: Chain, tmp_path: Path) -> Chain:
    """The first machine has three partitions, the standby two of them, and the third machine wants one."""
    for name in ("archive", "large"):
        volumes.add(chain.store, name)
    partitionmove.move_owner(chain.store, CAROL.owner, "archive")
    chain.standby.only = ("primary", "archive")
    chain.standby.create()
    chain.third = Further(chain.store, tmp_path / "some", host=THIRD, above=chain.cascade, only=("primary",))
    chain.show()
    chain.third.create()
    return chain


def test_it_can_have_some_of_the_partitions(parts: Chain) -> None:
    """It is sent no more, also over rounds and with tables that are copied again, and keeps to that when it follows
    another machine."""
    store, third = parts.store, parts.third
    others = {"archive": "mail.example.org", "large": "mail.example.org"}
    for number in range(1, 3):
        work(store, number)
        deliver(store, b"Subject: another\r\n\r\n", str(CAROL))
        set_file(store.root / "partitions" / "archive" / "expire.rules",
                 f"mail.folderpattern: *\nmail.savedays: {number}\n")
        parts.follow()
        state = state_of(third)
        assert state.ends.keys() == {"mboxlist", "partitions/primary/index"} and state.others == others
        assert state.only == ("primary",) and state.epochs.keys() <= {"primary"}
        assert [path.name for path in (third.root / "partitions").iterdir()] == ["primary"]
    with parts.following() as follower:
        for _ in range(2):
            follower.round(0)
        with third.connected() as source:
            source.begin(state.lineage, ("primary",))
            for ask in (lambda: source.small("partitions/archive"), lambda: next(source.all_files("archive"))):
                with pytest.raises(StoreError) as caught:
                    ask()
                assert caught.value.problem is Problem.GONE
    with closing(promoted(third)) as other:
        assert marks.absent(other.root) == others and list(other.partitions) == ["primary"]
        assert [entry.name for entry in other.mailboxes.all()] == [entry.name for entry in store.mailboxes.all()]
        assert len(check(other)) == 2


def test_a_copy_that_lacks_a_partition_which_is_there_now_is_not_used(chain: Chain, tmp_path: Path) -> None:
    """Nor one that has a partition which is no more: else nobody could begin until it is too old."""
    for change in (volumes.add, volumes.remove):
        change(chain.store, "archive")
        chain.show()
        another = Further(chain.store, tmp_path / change.__name__, host=THIRD, above=chain.cascade)
        another.create()
        assert {path.name for path in (another.root / "partitions").iterdir()} == set(chain.store.partitions)


def test_nothing_is_said_to_be_on_the_first_machine_alone_that_the_one_before_has(parts: Chain) -> None:
    """The standby in between has `archive`; of `large` nobody can tell the third machine that it has not."""
    for name, host in state_of(parts.third).others.items():
        said = standbystate.unprotected(name, host)
        assert said.startswith(f"NOT PROTECTED: partition {name} is on mail.example.org, and not on this standby; "
                               "if no other standby has it"), said


def test_it_cannot_have_what_the_one_before_it_lacks(parts: Chain, tmp_path: Path) -> None:
    """It hears which machine has it, and nothing is made."""
    for name, said in (("large", "NOT PROTECTED: partition large is on mail.example.org, and not on"),
                       ("larger", "there is no partition larger")):
        wanted = Further(parts.store, tmp_path / "none", host=THIRD, above=parts.cascade, only=("primary", name))
        with pytest.raises(StoreError, match=f"{said}.*; this standby has archive, primary"):
            wanted.create()
        assert not wanted.root.exists()


def test_no_log_is_kept_for_who_does_not_want_it(parts: Chain) -> None:
    parts.follow()
    with parts.following() as follower:
        for _ in range(2):
            follower.round(0)
        with parts.third.following() as further:
            for _ in range(2):
                further.round(0)
            assert parts.cascade._lacking("partitions/archive/index") == []
            assert parts.cascade._lacking("partitions/primary/index") != []


def test_it_goes_on_with_its_partitions_when_the_one_before_it_is_promoted(parts: Chain) -> None:
    parts.follow()
    with closing(promoted(parts.standby)) as other:
        work(other, 5)
        after = Standby(other, parts.third.root, host=THIRD, only=("primary",))
        with after.connected() as source:
            seeding.go_over(after.root, source, f"{HOST}=127.0.0.1:1")
        after.follow()
        assert state_of(after).ends.keys() == {"mboxlist", "partitions/primary/index"}
