"""What comes, comes once: whatever is there already, however often, and wherever it is cut off."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import pytest
from attrs import define, evolve, field

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.mailboxes import subscribing
from store.store import Store
from store.values import Flag, Flags, InternalDate
from tests.support.stores.stores import deliver, make_store, reopen_after_crash
from tools.transfer import importmail
from tools.transfer.importmail import Choices, Imported, MailImport
from tools.transfer.sourcevalues import Box, Content, Mail, Unreadable, Warn

VALIDITY = 1_600_000_000
Seen = tuple[bytes, int, int, tuple[str, ...]]       # octets, date, system flags, keywords


ALL = Choices()


class Killed(BaseException):
    """Stands for SIGKILL: nobody expects it."""


@define(eq=False, slots=False)
class Old:
    """A server with one mailbox, and what is in it; `dies` after so many messages have been read."""

    name: str = "Old"
    validity: int = VALIDITY
    following: int = 1
    there: dict[int, tuple[Mail, bytes]] = field(factory=dict)
    dies: int = 1 << 30
    ids: bool = True
    read_so_far: int = 0

    def put(self, octets: bytes, flags: Flags = Flags(), uidl: bytes = b"", date: int = 0) -> None:
        uid, self.following = self.following, self.following + 1
        self.there[uid] = Mail(f"UID {uid}", InternalDate(date or 1_500_000_000 + uid, 60), flags, len(octets),
                               uid if self.validity else 0, uidl, key=uid), octets

    def boxes(self) -> Iterator[Box]:
        yield Box(self.name, uidvalidity=self.validity, uidnext=self.following if self.validity else 0)

    def opened(self, box: Box) -> Box:
        return box

    def mails(self, box: Box, warn: Warn) -> Sequence[Mail]:
        return [mail for _, (mail, _) in sorted(self.there.items())]

    def read(self, box: Box, mails: Sequence[Mail], warn: Warn) -> Iterator[Content]:
        for mail in mails:
            if self.read_so_far >= self.dies:
                raise Killed
            self.read_so_far += 1
            octets = self.there[int(str(mail.key))][1]
            yield mail, [octets[:7], octets[7:]]

    def message_ids(self, box: Box, mails: Sequence[Mail]) -> Mapping[Mail, bytes]:
        return {mail: self.there[int(str(mail.key))][1].split(b"\r\n")[0].removeprefix(b"Message-ID: ")
                for mail in mails} if self.ids else {}

    def subscriptions(self) -> Sequence[str]:
        return [self.name, "Elsewhere", "bad\nname"]

    def contents(self) -> "Counter[Seen]":
        return Counter((octets, mail.received.seconds, int(mail.flags.system), mail.flags.keywords)
                       for mail, octets in self.there.values())


def fill(old: Old, count: int, seed: int = 5) -> None:
    random = Random(seed)
    for number in range(count):
        old.put(b"Message-ID: <%d@example.org>\r\n\r\ntext %d\r\n" % (number, random.randrange(9)),
                Flags(Flag(random.randrange(32)), tuple(sorted(random.sample(["a", "b", "c"], random.randrange(3))))))
    for _ in range(3):                      # the same message several times, at the same moment
        old.put(b"Message-ID: <same@example.org>\r\n\r\n", date=1_400_000_000)


def take(store: Store, old: Old, choices: Choices = ALL) -> tuple[Imported, list[str]]:
    """What a run does, which is what a dry run before it says."""
    read, dies, old.dies = old.read_so_far, old.dies, 1 << 30
    said = run(store, old, evolve(choices, dry_run=True))
    old.read_so_far, old.dies = read, dies
    done = run(store, old, choices)
    assert said[0].facts() == done[0].facts()
    assert [line for line in done[1] if line not in said[1] and "no subscription" not in line] == []
    return done


def run(store: Store, old: Old, choices: Choices) -> tuple[Imported, list[str]]:
    told: list[str] = []
    taken, = MailImport(store, "alice", "primary", old, told.append, choices).all()
    return taken, told


def contents(store: Store, name: str = "Old") -> "Counter[Seen]":
    view = store.open_mailbox(store.entry(MailboxName("alice", name)))
    found: Counter[Seen] = Counter()
    for row in view.rows:
        with store.open_message(view.entry, row) as file:
            found[file.read(0, file.size), int(row["received"]), int(row["flags"]),
                  tuple(sorted(view.keyword_names(int(row["keywords"]))))] += 1
    return found


def test_a_new_mailbox_keeps_uids(store: Store) -> None:
    old = Old()
    fill(old, 20)
    del old.there[4], old.there[20]
    old.following += 7
    taken, told = take(store, old)
    view = store.open_mailbox(store.entry(MailboxName("alice", "Old")))
    assert view.rows["uid"].tolist() == sorted(old.there)
    assert (view.state.uidvalidity, view.state.uidnext) == (VALIDITY, old.following)
    assert contents(store) == old.contents()
    assert {int(row["zone"]) for row in view.rows} == {60}
    assert taken.well and (taken.there, taken.here, taken.brought) == (21, 21, 21)
    assert subscribing.subscriptions(store, "alice") == ["Elsewhere", "Old"] and len(told) == 1 and "bad" in told[0]


def test_inbox_that_nothing_was_in_takes_the_uidvalidity(store: Store) -> None:
    old = Old(name="INBOX")
    fill(old, 4)
    assert store.status(store.entry(MailboxName("alice", "INBOX"))).uidvalidity > VALIDITY
    assert take(store, old)[0].uids == "kept"
    entry = store.entry(MailboxName("alice", "INBOX"))
    assert entry.uidvalidity == store.status(entry).uidvalidity == VALIDITY


@pytest.mark.parametrize("ids", [True, False])
def test_a_mailbox_with_mail_gets_only_what_is_missing(store: Store, ids: bool) -> None:
    deliver(store, b"Message-ID: <mine@example.org>\r\n\r\nmine\r\n", "user/alice/INBOX")
    old = Old(name="INBOX", ids=ids)
    fill(old, 15)
    before = contents(store, "INBOX")
    for brought in (18, 0):
        taken, _ = take(store, old)
        assert (taken.brought, taken.only_here, taken.uids) == (brought, 1, "new")
        assert contents(store, "INBOX") == before + old.contents()
    if ids:
        assert old.read_so_far == 18        # the second time nothing was read


def test_files_without_uids_come_once(store: Store) -> None:
    old = Old(validity=0, ids=False)
    fill(old, 15)
    for brought in (18, 0):
        assert take(store, old)[0].brought == brought
        assert contents(store) == old.contents()
    old.put(b"Message-ID: <same@example.org>\r\n\r\n", date=1_400_000_000)
    assert take(store, old)[0].brought == 1
    assert contents(store) == old.contents()


@pytest.mark.long
@pytest.mark.parametrize("name", ["Old", "INBOX"])
@pytest.mark.parametrize("validity", [VALIDITY, 0])
def test_killed_anywhere_it_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, validity: int
                                         ) -> None:
    monkeypatch.setattr(importmail, "SLICE_MESSAGES", 4)
    store = make_store(tmp_path / "store")
    if name == "INBOX":
        deliver(store, b"Message-ID: <mine@example.org>\r\n\r\nmine\r\n", "user/alice/INBOX")
        mine = contents(store, "INBOX")
    old = Old(name=name, validity=validity, ids=bool(validity))
    fill(old, 20)
    random = Random(3)
    for _ in range(5):
        old.read_so_far, old.dies = 0, random.randrange(0, 12)
        with pytest.raises(Killed):
            take(store, old)
        store = reopen_after_crash(store)
    old.dies = 1 << 30
    taken, _ = take(store, old)
    assert taken.well
    assert contents(store, name) == old.contents() + (mine if name == "INBOX" else Counter())
    assert check(store) == []
    store.close()


def test_flags_follow_unless_they_are_to_stay(store: Store) -> None:
    old = Old()
    fill(old, 5)
    take(store, old)
    mail, octets = old.there[2]
    old.there[2] = evolve(mail, flags=Flags(Flag.FLAGGED, ("new",))), octets
    before = contents(store)
    assert take(store, old, Choices(keep_flags=True))[0].flags_changed == 0 and contents(store) == before
    dry = take(store, old, Choices(dry_run=True))[0]
    assert dry.flags_changed == 1 and contents(store) == before
    assert take(store, old)[0].flags_changed == 1 and contents(store) == old.contents()


def test_unique_ids_of_pop3_come_along(store: Store) -> None:
    old = Old(name="INBOX")
    for number in range(3):
        old.put(b"Message-ID: <%d@example.org>\r\n\r\n" % number, uidl=b"" if number == 1 else b"old-%d" % number)
    take(store, old, Choices(uidl_format="%08Xu%08Xv"))
    own = store.uidls(store.entry(MailboxName("alice", "INBOX")))
    assert own == {1: b"old-0", 2: b"%08x%08x" % (2, VALIDITY), 3: b"old-2"}


def test_a_dry_run_changes_nothing(store: Store) -> None:
    old = Old()
    fill(old, 5)
    taken, _ = take(store, old, Choices(dry_run=True))
    assert taken.brought == 8 and store.mailboxes.find(MailboxName("alice", "Old")) is None
    assert subscribing.subscriptions(store, "alice") == []


def test_what_cannot_come_is_said_and_stops_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Old()
    fill(old, 3)
    old.put(b"x" * 5000)
    old.put(b"nul \x00 octets\r\n")
    monkeypatch.setattr(store, "settings", evolve(store.settings, message_limit=4000))
    taken, told = take(store, old)
    assert (taken.brought, taken.missing, taken.well) == (7, 1, False)
    assert told[0] == "UID 7: it has more than 4000 octets (store.message_limit)" and "UID 7: missing here" in told
    for name in ("bad\x00name", "a//b", "x" * 300, "user/bob/Work"):
        taken, told = take(store, Old(name=name))
        assert taken.problem and told[0].startswith(name)
    old.opened = lambda box: (_ for _ in ()).throw(Unreadable("no permission"))       # type: ignore[method-assign]
    assert take(store, old)[0].problem == "no permission"


def test_what_was_expunged_here_does_not_come_back(store: Store) -> None:
    from store.mailboxes.expunge import expunge
    old = Old()
    for number in range(4):
        old.put(b"Message-ID: <%d@example.org>\r\n\r\n" % number, Flags(Flag.DELETED if number == 2 else Flag(0)))
    take(store, old)
    entry = store.entry(MailboxName("alice", "Old"))
    expunge(store, entry)
    taken, _ = take(store, old)
    assert (taken.brought, taken.removed, taken.here, taken.well) == (0, 1, 3, True)
