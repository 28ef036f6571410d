"""Two standbys of one machine are both promoted, or one has been promoted twice since: no UID has two meanings, nobody
follows either by chance, and no mail is lost when they come together again."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes import namespace
from store.mailboxes.expunge import remove
from store.opening import open_store
from store.rejoin import returning
from store.rejoin.sendinghome import HomePeer
from store.rejoin.stranded import Stranded
from store.standby import promotion, standbystate, succession
from store.standby.sourcepeer import SourcePeer
from store.standby.succession import Lineage, Other, Succession
from store.store import Store
from store.usermove.messageformat import Message
from tests.store.rejoin.test_rejoin import ALICE, BOB, Pair, mail
from tests.support.stores.standbypair import HOST, Standby
from tests.support.stores.stores import SMALL, deliver, make_store

SECOND, THIRD = HOST, "third.example.org"

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = make_store(tmp_path / "one", ("alice", "bob"))
    deliver(made, b"Subject: both\r\n\r\n", str(ALICE), str(BOB))
    yield made
    assert check(made) == []
    made.close()


def standby(store: Store, root: Path, host: str = SECOND) -> Standby:
    made = Standby(store, root, host=host)
    made.create(age=0)
    return made


def serving(made: Standby) -> Store:
    """It is promoted, and opened."""
    promotion.promote(made.root)
    return open_store(made.root, SMALL)


def found(old: Store, new: Store) -> tuple[Pair, Stranded]:
    pair = Pair(old, new)
    return pair, pair.found()


def subjects(store: Store, name: MailboxName = ALICE) -> list[bytes]:
    return [octets.partition(b"\r\n")[0].removeprefix(b"Subject: ") for octets, _, _ in mail(store, name)]


def test_what_both_give_out_is_never_the_same(store: Store, tmp_path: Path) -> None:
    """Neither UIDs and MODSEQs, nor mailbox ids and UIDVALIDITYs; nor are they those of the first machine."""
    places = [standby(store, tmp_path / host, host) for host in (SECOND, THIRD)]
    first, = deliver(store, b"Subject: first\r\n\r\n", str(ALICE))
    with closing(serving(places[0])) as one, closing(serving(places[1])) as other:
        uids, states, mailboxes = [first.uid], [store.open_mailbox(store.entry(ALICE)).state], []
        for each in (one, other):
            uids.append(deliver(each, b"Subject: since\r\n\r\n", str(ALICE))[0].uid)
            states.append(each.open_mailbox(each.entry(ALICE)).state)
            mailboxes.append(namespace.create_mailbox(each, MailboxName("alice", "Since")))
        assert uids[0] + 500_000 < uids[1] < uids[1] + 500_000 < uids[2]
        assert states[0].highestmodseq + (1 << 26) < states[1].highestmodseq < states[2].highestmodseq - (1 << 26)
        assert mailboxes[1].id - mailboxes[0].id > 500_000
        assert mailboxes[1].uidvalidity - mailboxes[0].uidvalidity > 500_000


def test_neither_follows_the_other(store: Store, tmp_path: Path) -> None:
    """A standby of one of them is not made the other one's by a change of an address; nor is what may be only there
    replaced."""
    places = [standby(store, tmp_path / host, host) for host in (SECOND, THIRD)]
    with closing(serving(places[0])) as one, closing(serving(places[1])) as other:
        fourth = standby(one, tmp_path / "four", "four.example.org")
        before = standbystate.read(fourth.root)
        fourth.store = other
        for action in (fourth.follow, fourth.create):
            with pytest.raises(StoreError, match="have both been promoted") as refused:
                action()
            assert refused.value.problem is Problem.STORE_IN_USE
        assert standbystate.read(fourth.root) == before
        fifth = standby(other, tmp_path / "five", "five.example.org")
        with closing(serving(fifth)) as later:                      # two promotions, but not that of `one`
            fourth.store = later
            with pytest.raises(StoreError, match="may be only here"):
                fourth.create()
        assert standbystate.read(fourth.root) == before


def test_mail_of_one_is_brought_to_the_other(store: Store, tmp_path: Path) -> None:
    """Also what the first machine had given to one of them alone. The other one gives out no number that it gave."""
    places = [standby(store, tmp_path / host, host) for host in (SECOND, THIRD)]
    deliver(store, b"Subject: late\r\n\r\n", str(ALICE))
    places[1].follow()
    with closing(serving(places[0])) as one, closing(serving(places[1])) as other:
        deliver(one, b"Subject: one\r\n\r\n", str(ALICE))
        shown, = deliver(other, b"Subject: other\r\n\r\n", str(ALICE))
        pair, stranded = found(other, one)
        assert (stranded.messages, len(stranded.mail)) == (2, 1)
        pair.bring(stranded)
        assert subjects(one) == [b"both", b"late", b"one", b"other"]
        with pair.connected() as peer:
            HomePeer(peer).passed(other)
        last = other.mailboxes.last_identity()
        assert all(mine >= theirs for mine, theirs in zip(one.mailboxes.last_identity(), last, strict=True))
        assert check(one) == check(other) == []
        last_one = standby(one, tmp_path / "four", "four.example.org")      # is promoted before `one` begins anew
        last_one.follow()
    with closing(serving(last_one)) as fourth:
        assert deliver(fourth, b"Subject: fourth\r\n\r\n", str(ALICE))[0].uid > shown.uid + 500_000
    with closing(open_store(places[0].root, SMALL)) as one:
        after, = deliver(one, b"Subject: after\r\n\r\n", str(ALICE))
        assert after.uid > shown.uid + 500_000


def test_two_promotions_after_it_was_lost(store: Store, tmp_path: Path) -> None:
    """Where the last of them parted from the one before is not where this machine did: all is looked at. What its owner
    has there, in whichever mailbox, or has expunged lately, is not brought."""
    again, = deliver(store, b"Subject: expunged there\r\n\r\n", str(ALICE))
    second = standby(store, tmp_path / "two")
    for name in (ALICE, BOB):
        deliver(store, b"Subject: only here\r\n\r\n" + str(name).encode(), str(name))
    with closing(serving(second)) as one:
        deliver(one, b"Subject: one\r\n\r\n", str(ALICE))
        remove(one, one.entry(ALICE), [again.uid])
        third = standby(one, tmp_path / "three", THIRD)
    with closing(serving(third)) as last:
        assert succession.read(third.root).number == 2
        pair, stranded = found(store, last)
        assert stranded.messages == 2
        assert [each.what for each in stranded.done] == ["nobody knows which flags, rights and mailboxes were changed"]
        pair.bring(stranded)
        assert subjects(last) == [b"both", b"one", b"only here"]
        assert subjects(last, BOB) == [b"both", b"only here"]
        assert pair.found().messages == 0
        assert check(last) == []


def test_the_promoted_one_is_lost_while_it_is_copied(store: Store, tmp_path: Path) -> None:
    """The store that was here serves again, and passes by a second standby's numbers, too."""
    second, third = (standby(store, tmp_path / host, host) for host in (SECOND, THIRD))
    with closing(serving(third)) as other:
        shown, = deliver(other, b"Subject: other\r\n\r\n", str(ALICE))
        made = namespace.create_mailbox(other, MailboxName("alice", "There"))
        with closing(serving(second)) as one, Pair(one, other).connected() as peer:
            identity = one.mailboxes.identity
            returning.follow(one.root, identity, SourcePeer(peer), "third:1", succession.read(third.root).lineage,
                             tmp_path / "aside")
    with closing(serving(second)) as one:
        after, = deliver(one, b"Subject: after\r\n\r\n", str(ALICE))
        assert after.uid > shown.uid + 500_000
        mine = namespace.create_mailbox(one, MailboxName("alice", "Here"))
        assert mine.id > made.id and mine.uidvalidity > made.uidvalidity


def test_an_administrator_chooses(store: Store, tmp_path: Path) -> None:
    """Neither begins to serve; `forget` prefers one, which then goes far ahead."""
    one, other = Lineage(1, ("a",)), Other(Lineage(1, ("b",)), skipped=2)
    succession.change(store.root, lambda now: evolve(now, number=1, line=one.line))
    succession.note_other(store.root, THIRD, other)
    succession.require_not_superseded(store.root)       # who serves goes on: it is not known which is to
    with pytest.raises(StoreError, match=f"this machine and {THIRD} have both been promoted"):
        succession.require_first(store.root)
    assert succession.forget(store.root, THIRD)
    succession.require_first(store.root)
    preferred = succession.read(store.root).lineage
    assert (preferred.number, preferred.line[:1]) == (2, ("a",))
    elsewhere = Succession(1, line=("b",))
    (tmp_path / "elsewhere").mkdir()
    elsewhere.save(tmp_path / "elsewhere")
    succession.note_other(tmp_path / "elsewhere", SECOND, Other(preferred))
    with pytest.raises(StoreError, match=f"{SECOND} has been promoted"):
        succession.require_not_superseded(tmp_path / "elsewhere")


def test_one_that_gives_way_is_no_contender_any_more(store: Store) -> None:
    succession.note_other(store.root, SECOND, Other(Lineage(2, ("a", "b"))))
    succession.note_other(store.root, THIRD, Other(Lineage(2, ("a", "c"))))
    with pytest.raises(StoreError, match=f"{SECOND} and {THIRD} have both been promoted"):
        succession.require_not_superseded(store.root)
    succession.note_other(store.root, THIRD, Other(Lineage(2, ("a", "b"))))
    with pytest.raises(StoreError, match=f"{SECOND} has been promoted"):
        succession.require_not_superseded(store.root)


def test_a_machine_of_an_earlier_version_is_understood(store: Store) -> None:
    """Both are brought up to date one after the other: a promotion in between must not be missed."""
    succession.note_other(store.root, SECOND, Other.of(Message({"identity": "i", "succession": 1})))
    with pytest.raises(StoreError, match=f"{SECOND} has been promoted"):
        succession.require_first(store.root)


def test_a_record_without_identities(store: Store) -> None:
    """As versions wrote it in which promotions had none."""
    (store.root / "succession.json").write_bytes(
        b'{"before": "x", "followers": ["two", "three"], "identity": "i", "later": 0, "moment": 1.5, "number": 2, '
        b'"successor": ""}')
    known = succession.read(store.root)
    assert known.followers == {"two": 0, "three": 1}
    assert not known.lineage.contests(Lineage(2, succession.unnamed(2)))
    assert known.lineage.contests(Lineage(2, ("#1", "a")))
