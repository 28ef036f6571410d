r"""What happens in the store is in the outbox, in its transaction: events, as RFC 5423 says what they are."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.events import receivers
from store.events.receivers import Receiver
from store.expiry.decide import DAY
from store.expiry.rulebook import Rulebook, set_mailbox
from store.expiry.work import Plan, expire
from store.mailboxes import deletion, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import expunge
from store.mailboxes.flagchanges import change_flags
from store.mailboxes.subscribing import subscribe, unsubscribe
from store.partition.transactions import WriteTxn
from store.partitions import partitionmove, volumes
from store.quota import roots
from store.snapshots import reset, taking
from store.store import Store
from store.tables.quotatable import ALONE, UNLIMITED
from store.values import Flag, FlagAction, Flags, InternalDate
from tests.support.stores.heardevents import Copy, hear, outboxes, there, waiting
from tests.support.stores.stores import SMALL, deliver, make_store, reopen, reopen_after_crash

INBOX = MailboxName("alice", "INBOX")
MAIL = b"Subject: %d\r\n\r\nText\r\n"
SEEN = Flags(Flag.SEEN)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = make_store(tmp_path / "store")
    hear(store, Receiver("all"))
    yield store
    assert check(store) == []
    store.close()


def forget(store: Store) -> None:
    """All that waits has left."""
    for env, outbox in zip((store.mailboxes.env, *(each.env for each in store.partitions.values())), outboxes(store),
                           strict=True):
        transact(env, lambda txn, outbox=outbox: outbox.remove(outbox.some("all", 100_000), txn))


def names(store: Store, name: str = "all") -> list[str]:
    return [body["event"] for body in waiting(store, name)]


def uids(store: Store, name: MailboxName = INBOX) -> list[int]:
    return [int(uid) for uid in store.open_mailbox(store.entry(name)).rows["uid"]]


def test_a_delivery(store):
    deliver(store, MAIL % 1, "user/alice/INBOX", "user/bob/INBOX")
    first, second = waiting(store)
    entry = store.entry(INBOX)
    assert {key: first[key] for key in first if key not in ("timestamp", "pid", "serverFQDN", "mailboxID", "uri")} == {
        "event": "MessageNew", "process": "onecopy", "user": "alice", "uidset": "1", "uidnext": 2, "messages": 1,
        "modseq": store.status(entry).highestmodseq, "messageSize": len(MAIL % 1), "vnd.onecopy.mailbox": entry.id}
    server = store.recorder.server
    assert first["mailboxID"] == f"imap://alice@{server}/INBOX;UIDVALIDITY={entry.uidvalidity}"       # RFC 5092 §2.1
    assert first["uri"] == first["mailboxID"] + "/;UID=1"
    assert first["timestamp"].endswith("Z") and second["user"] == "bob"
    assert "Text" not in str(waiting(store))


def test_flags(store):
    r"""RFC 5423 §4.2: \Seen is MessageRead, \Deleted MessageTrash, all else FlagsSet and FlagsClear."""
    entry = store.entry(INBOX)
    for number in range(4):
        deliver(store, MAIL % number, "user/alice/INBOX")
    hear(store, Receiver("all"), Receiver("flags", types=("Flags*", "Message[RT]*")))
    change_flags(store, entry, [1, 2, 4], FlagAction.ADD, SEEN)
    change_flags(store, entry, [2], FlagAction.ADD, Flags(Flag.DELETED))
    change_flags(store, entry, [1, 3], FlagAction.ADD, Flags(Flag.FLAGGED, ("Work",)))
    change_flags(store, entry, [1, 2], FlagAction.REPLACE, Flags(Flag.FLAGGED))
    change_flags(store, entry, [1], FlagAction.ADD, Flags(Flag.FLAGGED))            # as it was: nothing happens
    assert [(body["event"], body["uidset"], body.get("flagNames")) for body in waiting(store, "flags")] == [
        ("MessageRead", "1:2,4", None), ("MessageTrash", "2", None),
        ("FlagsSet", "1,3", ["\\Flagged", "Work"]), ("FlagsSet", "2", ["\\Flagged"]),
        ("FlagsClear", "1", ["\\Seen", "Work"]), ("FlagsClear", "2", ["\\Seen", "\\Deleted"])]


def test_a_readers_own_flags_are_the_readers(store):
    deliver(store, MAIL % 1, "user/alice/INBOX")
    shared = evolve(store.entry(INBOX), acl={"bob": "lrswipkxtea"})
    transact(store.mailboxes.env, lambda txn: store.mailboxes.write(shared, txn))
    change_flags(store, store.entry(INBOX), [1], FlagAction.ADD, SEEN, reader="bob")
    assert [(body["event"], body["user"]) for body in waiting(store)] == [
        ("MessageNew", "alice"), ("MessageRead", "bob")]


def test_copy_expunge_and_expire(store):
    for number in range(3):
        deliver(store, MAIL % number, "user/alice/INBOX")
    archive = namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    entry = store.entry(INBOX)
    copy_messages(store, entry, archive, [1, 2])
    copy_messages(store, entry, archive, [3], remove=True)
    change_flags(store, entry, [1], FlagAction.ADD, Flags(Flag.DELETED))
    expunge(store, entry)
    said = [(body["event"], body["mailboxID"].partition("/")[2].partition(";")[0].rpartition("/")[2], body["uidset"])
            for body in waiting(store)[4:]]
    assert said == [("MessageAppend", "Archive", "1:2"), ("MessageExpunge", "INBOX", "3"),
                    ("MessageAppend", "Archive", "3"), ("MessageTrash", "INBOX", "1"), ("MessageExpunge", "INBOX", "1")]


def test_what_a_rule_takes_away_has_expired(store):
    """RFC 5423 §4.1: MessageExpire is by policy, MessageExpunge by somebody."""
    for days in (40, 1):
        deliver(store, MAIL % days, "user/alice/INBOX", received=InternalDate(int(time.time()) - days * DAY))
    set_mailbox(store, store.entry(INBOX), "messagedays: 30\n")
    expire(store, store.entry(INBOX), Rulebook(store), Plan(int(time.time())))
    assert [(body["event"], body["uidset"]) for body in waiting(store)] == [
        ("MessageNew", "1"), ("MessageNew", "2"), ("MessageExpire", "1")]


def test_without_a_file_of_receivers_that_can_be_read_mail_goes_on(store, caplog):
    """Who wanted events before does so still; a store is opened all the same."""
    (store.root / receivers.FILE).write_bytes(b"[{")
    assert not store.recorder.look()
    deliver(store, MAIL % 1, "user/alice/INBOX")
    assert names(store) == ["MessageNew"] and "which events cannot be read" in caplog.text
    store.close()
    reopen(store)
    deliver(store, MAIL % 2, "user/alice/INBOX")
    hear(store, Receiver("all"))
    deliver(store, MAIL % 3, "user/alice/INBOX")
    assert [body["uidset"] for body in waiting(store)] == ["1", "3"]


def test_mailboxes(store):
    box, new = MailboxName("alice", "Box"), MailboxName("alice", "New")
    namespace.create_mailbox(store, box)
    namespace.create_mailbox(store, MailboxName("alice", "Box/Sub"))
    namespace.rename_mailbox(store, box, new)
    deletion.delete_mailbox(store, new)
    subscribe(store, "alice", "INBOX")
    unsubscribe(store, "alice", "INBOX")
    said = [(body["event"], body["mailboxID"].partition(";")[0].partition("/")[2].partition("/")[2]) for body in
            waiting(store)]
    assert [(event, name.split("/", 1)[-1]) for event, name in said] == [
        ("MailboxCreate", "Box"), ("MailboxCreate", "Box/Sub"), ("MailboxRename", "New"), ("MailboxRename", "New/Sub"),
        ("MailboxDelete", "New"), ("MailboxSubscribe", "INBOX"), ("MailboxUnSubscribe", "INBOX")]
    assert [body["oldMailboxID"].partition(";")[0].endswith(end) for body, end in zip(
        waiting(store)[2:4], ("/Box", "/Box/Sub"), strict=True)] == [True, True]


def test_each_event_has_the_name_that_the_mailbox_had_then(store):
    """Also when events that are alike came before it was renamed, and when nobody wants those of the new name."""
    old, new = MailboxName("alice", "Old"), MailboxName("alice", "New")
    hear(store, Receiver("all"), Receiver("old", mailboxes=("user/alice/Old",), types=("Message*",)))
    namespace.create_mailbox(store, old)
    for name in (old, new, old):
        deliver(store, MAIL % 1, str(name))
        deliver(store, MAIL % 2, str(name))
        if name == old:
            namespace.rename_mailbox(store, old, new)
        else:
            namespace.rename_mailbox(store, new, old)
    for who, heard in (("all", ["Old", "Old", "New", "New", "Old", "Old"]), ("old", ["Old"] * 4)):
        assert [body["mailboxID"].partition(";")[0].rpartition("/")[2] for body in waiting(store, who)
                if body["event"] == "MessageNew"] == heard


def test_who_wants_events_now_gets_them(store):
    """Also those that are like events that came before: nobody gets what it wants no more, or what is not its own."""
    one, other = str(INBOX), "user/bob/INBOX"
    every = [(Receiver("all"),), (Receiver("bob", users=("bob",)),), (), (Receiver("all", mailboxes=(one,)),
             Receiver("bob", types=("MessageNew",)), Receiver("read", types=("MessageRead",))), (Receiver("all"),)]
    heard: dict[str, list[tuple[str, str]]] = {"all": [], "bob": [], "read": []}
    for wanted in every:
        hear(store, *wanted)
        for name in (one, other):
            before = uids(store, MailboxName.parse(name))
            deliver(store, MAIL % 1, name)
            if before:
                change_flags(store, store.entry(MailboxName.parse(name)), before[-1:], FlagAction.ADD, SEEN)
            for each in wanted:
                if each.concerns(MailboxName.parse(name).owner, name):
                    heard[each.name] += [(name.split("/")[1], kind) for kind in ("MessageNew", "MessageRead")
                                         if kind in each.wanted and (kind == "MessageNew" or before)]
    for who, events in heard.items():
        assert [(body["user"], body["event"]) for body in waiting(store, who)] == events, who
    hear(store, *map(Receiver, heard))


@pytest.mark.parametrize("count", [1, 2])
def test_what_arrives_with_keywords_says_so(store, count):
    """RFC 5423 §5: flagNames, of one message and of several."""
    for number in range(count):
        deliver(store, MAIL % number, str(INBOX), flags=Flags(Flag.FLAGGED, ("$Important", 'quo"ted')))
    assert [body["flagNames"] for body in waiting(store)] == [["\\Flagged", "$Important", 'quo"ted']] * count


def test_quota(store):
    """RFC 5423 §4.1: the first delivery that is refused, and its end; other limits. Storage is in KiB (RFC 9208)."""
    hear(store, Receiver("all", types=("Quota*",)), Receiver("bob", types=("Quota*",), users=("bob",)))
    roots.set_quota(store, "alice", 5000, 2)
    roots.set_quota(store, "alice", 5000, 2)            # as it was: nothing happens
    for number in (1, 2):
        deliver(store, MAIL % number, "user/alice/INBOX")
    for number in (3, 4):
        outcome, = deliver(store, MAIL % number, "user/alice/INBOX")
        assert outcome.problem is Problem.OVER_QUOTA
    with pytest.raises(StoreError):                     # its client hears that itself
        copy_messages(store, store.entry(INBOX), store.entry(INBOX), [1])
    change_flags(store, store.entry(INBOX), [1], FlagAction.ADD, Flags(Flag.DELETED))
    expunge(store, store.entry(INBOX))
    outcome, = deliver(store, MAIL % 3, "user/alice/INBOX")
    outcome, = deliver(store, MAIL % 4, "user/alice/INBOX")
    roots.set_quota(store, "alice", UNLIMITED, UNLIMITED)
    said = [(body["event"], body["user"], body["messages"], body.get("diskQuota"), body.get("maxMessages"))
            for body in waiting(store)]
    assert said == [("QuotaChange", "alice", 0, 5, 2), ("QuotaExceed", "alice", 2, 5, 2),
                    ("QuotaWithin", "alice", 1, 5, 2), ("QuotaExceed", "alice", 2, 5, 2),
                    ("QuotaChange", "alice", 2, None, None), ("QuotaWithin", "alice", 2, None, None)]
    assert waiting(store)[1]["diskUsed"] == 1 and waiting(store)[1]["vnd.onecopy.quotaRoot"] == "alice"
    assert waiting(store, "bob") == []


def test_limits_that_are_put_back_are_told(store):
    """A change on several partitions that is cut off is undone: the receiver hears of the limits that there are."""
    before = roots.quota(store, "alice")
    roots.set_quota(store, "alice", 1 << 20)
    roots._put_back(store, ALONE, "alice", store.partitions["primary"], before)
    assert [body.get("diskQuota") for body in waiting(store)] == [1024, None]


def test_what_is_undone_leaves_nothing(store):
    entry = store.entry(INBOX)
    deliver(store, MAIL % 1, "user/alice/INBOX")
    before = waiting(store)

    def work(txn: WriteTxn) -> None:
        txn.flag(entry.id, 1, ~0, int(Flag.SEEN))
        raise StoreError(Problem.BUSY)

    with pytest.raises(StoreError):
        store.transact(entry, work)
    assert waiting(store) == before


@pytest.mark.parametrize(("receiver", "heard"), [
    (Receiver("x", types=("Login",)), 0), (Receiver("x", users=("bob",)), 1), (Receiver("x", users=("a*",)), 2),
    (Receiver("x", domains=("example.net",)), 0), (Receiver("x", domains=("",)), 3),
    (Receiver("x", mailboxes=("user/*/INBOX",)), 2), (Receiver("x", types=("mailbox*",)), 1)])
def test_only_who_wants_it_gets_it(store, receiver, heard):
    hear(store, receiver)
    deliver(store, MAIL % 1, "user/alice/INBOX", "user/bob/INBOX")
    namespace.create_mailbox(store, MailboxName("alice", "Box"))
    assert len(names(store, "x")) == heard


def test_without_receivers_nothing_is_written(store):
    hear(store)
    deliver(store, MAIL % 1, "user/alice/INBOX")
    namespace.create_mailbox(store, MailboxName("alice", "Box"))
    assert [each.receivers() for each in outboxes(store)] == [[], []]


def test_a_full_receiver_gets_no_more_and_it_is_counted(store):
    hear(store, Receiver("all", full=True), Receiver("other"))
    deliver(store, MAIL % 1, "user/alice/INBOX")
    assert (names(store), names(store, "other"), store.recorder.lost) == ([], ["MessageNew"], {"all": 1})


def test_after_a_crash_what_was_flushed_is_there_and_comes_first(store):
    deliver(store, MAIL % 1, "user/alice/INBOX")
    store.__dict__ = reopen_after_crash(store).__dict__
    deliver(store, MAIL % 2, "user/alice/INBOX")
    first, second = waiting(store)
    assert (first["uidset"], first["messages"], second["messages"]) == ("1", 1, 2)


def test_the_clock_never_goes_back(store, monkeypatch):
    """A machine whose clock is set back: what comes later is still behind what waits."""
    deliver(store, MAIL % 1, "user/alice/INBOX")
    store.close()
    monkeypatch.setattr("time.time_ns", lambda: 10 ** 9)
    reopen(store)
    deliver(store, MAIL % 2, "user/alice/INBOX")
    assert [body["uidset"] for body in waiting(store)] == ["1", "2"]


def test_the_clock_is_the_same_in_all_environments(store, monkeypatch):
    """So it is told first that a mailbox was made, and then what came into it, also when the clock was set back."""
    namespace.create_mailbox(store, MailboxName("alice", "Box"))
    store.close()
    monkeypatch.setattr("time.time_ns", lambda: 10 ** 9)
    reopen(store)
    deliver(store, MAIL % 1, "user/alice/Box")
    assert names(store) == ["MailboxCreate", "MessageNew"]


def test_what_a_removed_partition_had_not_sent_is_sent(store):
    volumes.add(store, "second")
    partitionmove.move_owner(store, "alice", "second")
    deliver(store, MAIL % 1, "user/alice/INBOX")
    partitionmove.move_owner(store, "alice", "primary")
    volumes.remove(store, "second")
    assert names(store) == ["MessageNew"]


def reopen_after(store: Store, what: Callable[[], object]) -> None:
    what()
    store.close()
    reopen(store)


def missed(store: Store) -> list[str]:
    """Why each receiver is still to be told that events are missing."""
    return [each.missed for each in receivers.read(store.root).all]


def test_after_a_table_was_made_anew_it_is_told(store):
    reopen_after(store, lambda: None)
    assert missed(store) == [""]
    reopen_after(store, lambda: transact(store.mailboxes.env, lambda txn: store.outbox.table.delete(b"c", txn)))
    assert missed(store) == ["databases were rebuilt"]


def test_after_a_snapshot_was_restored_it_is_told(store):
    deliver(store, MAIL % 1, "user/alice/INBOX")
    snapshot = taking.create(store)
    store.close()
    reset.restore(store.root, SMALL, snapshot, exact=True)
    assert missed(store) == ["a snapshot was restored"]
    reopen(store)


def test_a_mailbox_that_moves_to_another_partition_is_not_news(store):
    deliver(store, MAIL % 1, "user/alice/INBOX")
    volumes.add(store, "second")
    partitionmove.move_owner(store, "alice", "second")
    deliver(store, MAIL % 2, "user/alice/INBOX")
    assert [(body["event"], body["uidset"]) for body in waiting(store)] == [("MessageNew", "1"), ("MessageNew", "2")]


# A receiver that has been told everything knows what there is

BOXES = ("A", "B", "C")
FLAGS = (Flags(Flag.SEEN), Flags(Flag.DELETED), Flags(Flag.FLAGGED, ("Work",)), Flags(Flag.DRAFT | Flag.SEEN, ("x",)))
OPERATIONS = st.lists(st.tuples(st.sampled_from(
    ("create", "deliver", "append", "copy", "move", "flags", "expunge", "rename", "delete")),
    st.sampled_from(BOXES), st.sampled_from(BOXES), st.integers(0, 3), st.sampled_from(FlagAction)), max_size=25)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS)
def test_the_stream_of_events_gives_the_same_mailboxes(store, operations):
    for entry in list(store.mailboxes.below("alice")):
        if not entry.name.is_inbox():
            deletion.delete_mailbox(store, entry.name)
    forget(store)
    copy = Copy(there(store, "alice"))
    for what, first, second, number, action in operations:
        try:
            do(store, what, MailboxName("alice", first), MailboxName("alice", second), number, action)
        except StoreError as refused:
            assert refused.problem in (Problem.NO_MAILBOX, Problem.MAILBOX_EXISTS, Problem.BAD_NAME, Problem.GONE)
    for body in waiting(store):
        copy.hear(body)
    assert copy.boxes == there(store, "alice")


def do(store: Store, what: str, one: MailboxName, other: MailboxName, number: int, action: FlagAction) -> None:
    flags = FLAGS[number]
    if what == "create":
        namespace.create_mailbox(store, one)
    elif what == "rename":
        namespace.rename_mailbox(store, one, other)
    elif what == "delete":
        deletion.delete_mailbox(store, one)
    elif what in ("deliver", "append"):
        deliver(store, MAIL % number, str(one), flags=flags if what == "append" else Flags())
    elif what == "flags":
        change_flags(store, store.entry(one), uids(store, one)[number:], action, flags)
    elif what == "expunge":
        expunge(store, store.entry(one))
    else:
        copy_messages(store, store.entry(one), store.entry(other), uids(store, one)[number:], remove=what == "move")
