"""Users moved from one back end to another, both in this process."""

import threading
import zlib

import pytest
from attrs import evolve

from mboxlist.engine.transact import Deadlock, transact
from mboxlist.names import MailboxName
from store import filelock, hosting, offload
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.accounts.apppasswords.accessrecord import Access, SecurityKey, Totp
from store.accounts.apppasswords.apppassword import make
from store.accounts.builtin import BuiltinDirectory
from store.check.wholecheck import check
from store.delivery import durable, severalmessages
from store.delivery.commit import Target
from store.errors import Problem, StoreError
from store.mailboxes import deletion, firstuse, namespace, subscribing
from store.mailboxes.authorization import annotate, set_acl
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.deletion import deleted_messages, undelete_mailbox, undelete_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.mailboxes.uidllist import give
from store.net.authentication import Authenticator
from store.partitions import volumes
from store.partitions.holding import hold, moves_no_more
from store.partitions.partitionmove import move_owner
from store.quota import roots as quotaroots
from store.store import Store
from store.tables.quotatable import UNLIMITED
from store.usermove import sourceside
from store.usermove.sendmailboxes import MailboxSender
from store.usermove.sourceside import send
from store.users import lastuse
from store.users.accesschanges import change_access
from store.users.restorable import forget_user
from store.values import Flag, FlagAction, Flags, InternalDate, Secret
from tests.support.stores.movepair import LIMIT, ONE, TWO, Line
from tests.support.stores.stores import deliver
from tests.support.stores.whole import give_scripts

BODIES = [b"Subject: %d\r\n\r\n" % n + b"x" * (97 * n) for n in range(6)]
TRACE = b"Return-Path: <a@example.org>\r\nReceived: by one\r\n"


def name(path: str = "INBOX", user: str = "alice") -> MailboxName:
    return MailboxName(user, path)


def move(user: str, source: Store, target: Store):
    line = Line(target, source.settings.host)
    try:
        return send(source, user, target.settings.host, line.connect, tries=0)
    finally:
        line.ended()


def everything(store: Store, user: str = "alice") -> dict:
    """All that a client, an administrator or an `undelete` can know of a user's mailboxes. No ids, and no epochs."""
    found = {}
    for removed, entry in [*((0, entry) for entry in store.names(user)),
                           *(item for item in store.mailboxes.deleted.all() if item[1].name.owner == user)]:
        partition = store.partition_of(entry)
        state = dict(partition.all_states())[entry.id]
        rows = partition.transact(lambda txn, entry=entry: txn.load(entry.id))
        messages = []
        for row in rows:
            with partition.open_message(row) as file:
                cached, = store.cached(evolve(entry, partition=partition.name), rows[rows["uid"] == row["uid"]])
                messages.append((*(int(row[field]) for field in (
                    "uid", "flags", "zone", "keywords", "modseq", "received", "size", "saved")),
                    file.read(0, file.size), cached.envelope, cached.bodystructure))
        own = {(number, reader): flags.tobytes() for number, reader, flags in partition.readers.all(entry.id)}
        gone = sorted((item.when, item.keywords, item.rows["uid"].tolist(), item.rows["flags"].tolist())
                      for item in partition.removed.all() if item.mailbox == entry.id)
        notes = sorted(store.mailboxes.annotations.of(entry.id))
        found[str(entry.name), removed] = (
            entry.uidvalidity, entry.created, entry.special_use, entry.acl, state.uidvalidity, state.uidnext,
            state.highestmodseq, state.changed, state.recent, state.messages, state.unseen, state.deleted, state.octets,
            state.log_since, state.logged, state.removed, state.quota_root, state.keywords, messages, own, gone, notes,
            partition.vanished.all(entry.id), partition.uidls.of(entry.id))
    row = store.directory.user(user)
    account = evolve(row.account, host="", partition="")
    roots = {root: evolve(use, discount=0) for partition in store.partitions.values()
             for root, use in partition.quotas.all() if root == user or root.startswith(user + "/")}
    return {"mailboxes": found, "subscriptions": subscribing.subscriptions(store, user), "row": evolve(row,
                                                                                                       account=account),
            "quota": roots}


def fill(store: Store) -> None:
    """Everything that a user can have."""
    for body in BODIES:
        deliver(store, body, "user/alice/INBOX", "user/bob/INBOX", trace=TRACE, header=b"Delivered-To: {}\r\n",
                received=InternalDate(1_700_000_000, 90))
    deliver(store, BODIES[2], "user/alice/INBOX")                   # shown without the trace header
    inbox = store.entry(name())
    archive = namespace.create_mailbox(store, name("Archive"), special_use="\\Archive")
    namespace.create_mailbox(store, name("Archive/2026"))
    namespace.create_mailbox(store, name("Gone"))
    change_flags(store, inbox, [2, 3], FlagAction.ADD, Flags(Flag.SEEN, ("$Junk", "later")))
    copy_messages(store, inbox, archive, [1, 2, 3])
    deliver(store, BODIES[1], "user/alice/Gone")
    remove(store, inbox, [5])
    give(store, inbox, {1: b"from-elsewhere-1", 3: b"from-elsewhere-3"})
    deletion.delete_mailbox(store, name("Gone"))
    set_acl(store, name(), "bob", "lrswi")
    change_flags(store, store.entry(name()), [1, 4], FlagAction.ADD, Flags(Flag.SEEN), reader="bob")
    annotate(store, inbox, "/shared/comment", b"\x00\xff all")
    annotate(store, inbox, "/private/comment", b"bob's", "bob")
    lastuse.note(store, {"alice": True}, 1_700_000_000)
    give_scripts(store, "alice")
    subscribing.subscribe(store, "alice", "INBOX")
    subscribing.subscribe(store, "alice", "user/bob/INBOX")
    quotaroots.set_quota(store, "alice", 1_000_000, 500)
    quotaroots.set_quota(store, "alice/Archive", 100_000)
    store.claim_recent(store.entry(name("Archive")))
    store.directory.change("alice", aliases=["al@example.org"], groups=["staff"])


def test_everything_comes_along_and_back(ends):
    one, two = ends
    fill(one)
    before = everything(one)
    done = move("alice", one, two)
    assert everything(two) == before
    assert one.names("alice") == [] and subscribing.subscriptions(one, "alice") == []
    assert (one.directory.find("alice").host, two.directory.find("alice").host) == (TWO, TWO)
    assert two.directory.look_up("al@example.org").user == "alice"
    assert list(one.mailboxes.moves.all()) == list(two.mailboxes.moves.all()) == []
    assert (done.moved.mailboxes, done.moved.files) == (4, 6)
    assert check(one) == check(two) == []
    assert sorted(item.uid for item in deleted_messages(two, two.entry(name()))) == [5]
    assert undelete_messages(two, two.entry(name())) == [8]
    undelete_mailbox(two, name("Gone"))
    before = everything(two)
    assert move("alice", two, one).moved.files == 0             # they wait for the purge there, or bob has them
    assert everything(one) == before
    assert (one.directory.find("alice").host, two.directory.find("alice").host) == (ONE, ONE)


def test_there_is_one_copy_of_each_message_there(ends):
    one, two = ends
    for body in BODIES[:3]:
        deliver(one, body, "user/alice/INBOX", "user/bob/INBOX", trace=TRACE)
    assert move("alice", one, two).moved.files == 3
    assert move("bob", one, two).moved.files == 0
    assert sorted(record.references for _, record in two.partitions["primary"].refs.all()) == [2, 2, 2]
    assert len([path for path in (two.root / "partitions/primary/messages").glob("?/??/*")]) == 3


@pytest.mark.parametrize("there", [b"", TRACE, TRACE.replace(b"one", b"two"), b"Return-Path: <b@example.org>\r\n"])
@pytest.mark.parametrize("here", [b"", TRACE])
def test_octets_stay_whatever_trace_header_the_content_has_there(ends, here, there):
    one, two = ends
    firstuse.inbox(two, two.directory.add("carol", "*", host=TWO))
    deliver(two, BODIES[3], "user/carol/INBOX", trace=there)
    deliver(one, BODIES[3], "user/alice/INBOX", trace=here)
    deliver(one, BODIES[3], "user/alice/INBOX")
    before, hers = everything(one), everything(two, "carol")
    move("alice", one, two)
    assert everything(two) == before and everything(two, "carol") == hers
    assert len(list(two.partitions["primary"].refs.all())) == (1 if here in (b"", there) else 2)


def test_from_several_partitions_to_one(ends):
    one, two = ends
    volumes.add(one, "second")
    deliver(one, BODIES[3], "user/alice/INBOX", trace=TRACE)
    move_owner(one, "bob", "second")
    transact(one.mailboxes.env, lambda txn: one.directory.place("alice", "second", txn))
    namespace.create_mailbox(one, name("There"))
    deliver(one, BODIES[3], "user/alice/There", trace=TRACE)
    before = everything(one)
    before["quota"]["alice"] = evolve(before["quota"]["alice"], octets=2 * before["quota"]["alice"].octets, messages=2)
    move("alice", one, two)
    assert everything(two) == before
    assert {entry.partition for entry in two.names("alice")} == {"primary"}


def test_what_arrives_while_it_goes_on_is_there_once(ends, faults):
    one, two = ends
    deliver(one, BODIES[1], "user/alice/INBOX")
    said = []

    def bring(self):
        said.append(len(self._held))
        if len(said) < 3:
            for _ in range(201):                        # too many for the last pass
                deliver(one, b"Subject: pass %d\r\n\r\n" % len(said), "user/alice/INBOX")
            remove(one, one.entry(name()), [len(said)])
            namespace.create_mailbox(one, name(f"new{len(said)}"))

    faults.before(MailboxSender, "_send_changes", bring)
    move("alice", one, two)
    faults.mend()
    assert said[0] == said[1] == 0
    mailbox = two.open_mailbox(two.entry(name()))
    assert mailbox.uids.tolist() == list(range(3, 404))
    assert [entry.name.path for entry in two.names("alice")] == ["INBOX", "new1", "new2"]


def test_what_the_list_says_may_change_until_the_end(ends, faults):
    one, two = ends
    deliver(one, BODIES[1], "user/alice/INBOX")
    rounds = []

    def change(*_):
        rounds.append(1)
        if len(rounds) == 1:
            namespace.create_mailbox(one, name("made late"))
        elif len(rounds) == 2:
            subscribing.subscribe(one, "alice", "made late")
        elif len(rounds) == 3:
            annotate(one, one.entry(name()), "/shared/comment", b"late")

    faults.after(MailboxSender, "_describe", change)
    move("alice", one, two)
    assert len(rounds) == 4
    assert [entry.name.path for entry in two.names("alice")] == ["INBOX", "made late"]
    assert subscribing.subscriptions(two, "alice") == ["made late"]
    assert [value for _, _, value in two.mailboxes.annotations.of(two.entry(name()).id)] == [b"late"]


def test_nobody_changes_the_list_in_the_step_that_decides(ends, faults):
    """A mailbox that is made when what was sent has been compared would be removed with what is left here."""
    one, two = ends
    entry, refused = one.entry(name()), []

    def late(store, user, host, txn):
        if (store, host) == (one, TWO):
            with pytest.raises(Deadlock):
                transact(one.mailboxes.env, lambda other: one.mailboxes.write(evolve(
                    entry, id=one.mailboxes.next_identity(other)[0], name=name("made late")), other), seconds=0)
            refused.append(1)

    faults.before(hosting, "set_row_host", late)
    move("alice", one, two)
    assert refused == [1]
    assert [entry.name.path for entry in two.names("alice")] == ["INBOX"]


def test_limits_that_are_set_until_the_end_go_along(ends, faults):
    """Until the step that decides: a change of limits is sent, or waits for that step, and is refused."""
    one, two = ends
    archive = namespace.create_mailbox(one, name("Archive"))
    deliver(one, BODIES[1], "user/alice/INBOX", "user/alice/Archive")
    quotaroots.set_quota(one, "alice/Archive", 10_000)
    rounds, refused = [], []

    def change(*_):
        rounds.append(1)
        if len(rounds) == 1:
            quotaroots.remove_quota_root(one, "alice/Archive")
            quotaroots.set_quota(one, "alice/Sent", 20_000)
            quotaroots.set_quota(one, "alice", 300_000, 40)

    def late():
        with pytest.raises(StoreError) as refusal:
            quotaroots.set_quota(one, "alice", 500_000)
        refused.append(refusal.value.problem)

    thread, waits = threading.Thread(target=late), threading.Event()

    def decide(real, *given):
        with (one.root / "run" / "limits.lock").open("rb+") as file:
            assert not filelock.lock_octet(file.fileno(), zlib.crc32(b"alice"), wait=False)
        thread.start()
        assert waits.wait(LIMIT)
        return real(*given)

    faults.before(filelock, "lock_octet", lambda *_, **__: threading.current_thread() is thread and waits.set())

    faults.before(MailboxSender, "_hold", change)
    faults.around(MailboxSender, "_switch", decide)
    move("alice", one, two)
    thread.join(LIMIT)
    assert refused == [Problem.ELSEWHERE]
    limits = {root: (use.octet_limit, use.message_limit) for root, use in two.partitions["primary"].quotas.all()
              if root.startswith("alice")}
    assert limits == {"alice": (300_000, 40), "alice/Sent": (20_000, UNLIMITED)}
    assert two.partition_of(two.entry(name("Archive"))).quota_root(two.entry(name("Archive")).id) == "alice"
    assert archive.uidvalidity == two.entry(name("Archive")).uidvalidity
    for work in (lambda: quotaroots.set_quota(one, "alice", 1), lambda: quotaroots.set_all(one, "alice", {"alice": 1}),
                 lambda: quotaroots.remove_quota_root(one, "alice/Sent")):
        with pytest.raises(StoreError) as refusal:
            work()
        assert refusal.value.problem is Problem.ELSEWHERE
    assert not any(root.startswith("alice") for root, _ in one.partitions["primary"].quotas.all())


def test_a_root_that_is_made_while_the_mailboxes_are_held_has_its_mailboxes_there(ends, faults):
    one, two = ends
    namespace.create_mailbox(one, name("Archive"))
    deliver(one, BODIES[1], "user/alice/Archive")
    faults.after(MailboxSender, "_hold", lambda *_: quotaroots.set_quota(one, "alice/Archive", 10_000))
    move("alice", one, two)
    archive = two.entry(name("Archive"))
    assert two.partition_of(archive).quota_root(archive.id) == "alice/Archive"
    assert quotaroots.quota(two, "alice/Archive").messages == 1


def test_nobody_writes_to_what_has_gone(ends):
    one, two = ends
    inbox = one.entry(name())
    move("alice", one, two)
    for work in (lambda: namespace.create_mailbox(one, name("x")), lambda: subscribing.subscribe(one, "alice", "x"),
                 lambda: firstuse.inbox(one, one.directory.find("alice"))):
        with pytest.raises(StoreError) as refused:
            work()
        assert refused.value.problem is Problem.ELSEWHERE
    with pytest.raises(StoreError) as refused:
        change_flags(one, inbox, [1], FlagAction.ADD, Flags(Flag.SEEN))
    assert refused.value.problem is Problem.NO_MAILBOX


def test_nobody_writes_at_the_end_and_everybody_may_read(ends, faults):
    one, two = ends
    deliver(one, BODIES[1], "user/alice/INBOX")
    said, one.patience = [], 0

    def write(*_):
        inbox = one.entry(name())
        said.append(deliver(one, BODIES[2], "user/alice/INBOX")[0].problem)
        for work in (lambda: change_flags(one, inbox, [1], FlagAction.ADD, Flags(Flag.SEEN)),
                     lambda: remove(one, inbox, [1]), lambda: copy_messages(one, inbox, inbox, [1])):
            with pytest.raises(StoreError) as refused:
                work()
            said.append(refused.value.problem)
        assert one.open_mailbox(inbox).uids.tolist() == [1]

    faults.after(MailboxSender, "_describe", write)
    move("alice", one, two)
    assert said == [Problem.BUSY] * 4
    assert two.open_mailbox(two.entry(name())).uids.tolist() == [1]


@pytest.mark.parametrize("held", [False, True])
def test_mail_on_its_way_to_who_has_gone_must_come_again(ends, held):
    """It had been taken at RCPT: a refusal for good would lose it."""
    one, two = ends
    entries = [one.entry(name()), one.entry(name(user="bob"))]
    staged = [one.stage(entries[0]) for _ in range(2)]
    for each in staged:
        each.write(BODIES[1])
    if held:
        transact(one.mailboxes.env, lambda txn: hosting.set_row_host(one, "alice", TWO, txn))
        one.partitions["primary"].transact(lambda txn: hold(txn, [entries[0].id]))
    else:
        move("alice", one, two)
    found = offload.now(durable.deliver(one, staged[0], [Target(entry) for entry in entries]))
    assert found[0].problem is Problem.ELSEWHERE and found[1].uid == 1
    with pytest.raises(StoreError) as refused:
        offload.now(severalmessages.deliver_all(one, [(staged[1], Target(entries[0]), None)]))
    assert refused.value.problem is Problem.ELSEWHERE
    if held:
        transact(one.mailboxes.env, lambda txn: hosting.set_row_host(one, "alice", ONE, txn))
        one.partitions["primary"].transact(lambda txn: moves_no_more(txn, entries[0].id))


def test_a_move_is_not_begun_while_another_is_not_finished(ends, faults):
    one, two = ends
    faults.fail(sourceside, "clear", StoreError(Problem.DISK_FULL))
    with pytest.raises(StoreError, match="do it again"):
        move("alice", one, two)
    faults.mend()
    with pytest.raises(StoreError) as refused:          # it has been told nothing of what the first one still has
        move("alice", two, one)
    assert refused.value.problem is Problem.BUSY
    assert [each.user for each in sourceside.moves_to_finish(one)] == ["alice"]
    move("alice", one, two)
    move("alice", two, one)
    assert hosting.is_here(one, one.directory.find("alice"))


def test_a_directory_that_cannot_be_told(ends, faults):
    """Nobody moves if that is known before; if not, the user is nowhere else until it can."""
    one, two = ends
    closed = StoreError(Problem.UNAVAILABLE, "The directory is closed")
    deliver(one, BODIES[1], "user/alice/INBOX")
    before = everything(one)
    faults.fail(BuiltinDirectory, "try_set_host", closed)
    with pytest.raises(StoreError, match="^The directory is closed$"):
        move("alice", one, two)
    faults.mend()
    assert one.directory.find("alice").host == ONE and everything(one) == before
    assert two.directory.find("alice") is None
    assert [*one.mailboxes.moves.all(), *two.mailboxes.moves.all()] == []
    faults.fail(BuiltinDirectory, "set_host", closed)
    for _ in range(2):
        with pytest.raises(StoreError, match="The directory is closed"):
            move("alice", one, two)
        assert everything(one) == before and not two.names("alice")
    faults.mend()
    move("alice", one, two)
    assert everything(two) == before and not one.names("alice")


def test_a_user_can_be_removed_whom_one_who_is_elsewhere_has_granted_rights(ends):
    one, _ = ends
    set_acl(one, name(), "bob", "lrs")
    one.directory.change("alice", host=TWO)
    forget_user(one, "bob")
    assert one.entry(name()).acl == {} and one.directory.find("bob") is None
    one.directory.change("alice", host=ONE)


def test_who_cannot_be_moved(ends):
    one, two = ends
    firstuse.inbox(two, two.directory.add("bob", "*"))
    cases = {"nobody": Problem.NO_USER, "bob": Problem.USER_EXISTS}
    for user, problem in cases.items():
        with pytest.raises(StoreError) as refused:
            move(user, one, two)
        assert refused.value.problem is problem
    two.directory.add("carol", "*", aliases=["al@example.org"])
    one.directory.change("alice", aliases=["al@example.org"])
    with pytest.raises(StoreError) as refused:
        move("alice", one, two)
    assert refused.value.problem is Problem.USER_EXISTS
    assert hosting.is_here(one, one.directory.find("alice"))
    deliver(one, BODIES[1], "user/alice/INBOX")                     # and the mailboxes have been let go
    assert two.names("alice") == [] and list(two.mailboxes.moves.all()) == []


def test_a_message_that_cannot_be_read_keeps_its_user_where_it_is(ends):
    one, two = ends
    deliver(one, BODIES[3], "user/alice/INBOX")
    row = one.open_mailbox(one.entry(name())).rows[0]
    path = one.partitions["primary"].files.locate(bytes(row["digest"]), int(row["serial"]))
    good = path.read_bytes()
    path.write_bytes(good[:-1] + b"y")
    with pytest.raises(StoreError) as refused:
        move("alice", one, two)
    assert refused.value.problem is Problem.CORRUPT
    assert hosting.is_here(one, one.directory.find("alice")) and two.directory.find("alice") is None
    deliver(one, BODIES[1], "user/alice/INBOX")
    path.write_bytes(good)
    move("alice", one, two)
    assert two.status(two.entry(name())).messages == 2


def test_what_would_be_moved_can_be_counted(ends):
    one, two = ends
    fill(one)
    before = everything(one)
    line = Line(two, ONE)
    peer = line.connect()
    counted = MailboxSender(one, "alice", TWO, peer).count()
    peer.close()
    line.ended()
    assert counted[:3] == (4, 10, 6)
    assert everything(one) == before and two.directory.find("alice") is None
    assert list(two.mailboxes.moves.all()) == [] and list(two.partitions["primary"].refs.all()) == []
    assert move("alice", one, two).moved.files == counted[2]


def test_app_passwords_and_the_second_factor_go_along(ends):
    """They ended, and the user had to make them again. A change that comes too late is refused and not lost; what an
    earlier stay has left holds no more."""
    one, two = ends
    files, there = AccessFiles(one.root), AccessFiles(two.root)
    made, shown = make("telephone", ["imap"], read_only=True, now=1000)
    mine = Access("alice", (made,), Totp("JBSWY3DPEHPK3PXP", 1000), (SecurityKey("id", "blue", "key", 1000),), ("ab",))
    change_access(one, "alice", lambda _: mine)
    there.change("alice", lambda before: before.with_password(make("old", ["imap"], read_only=False, now=1)[0], 2))
    move("alice", one, two)
    assert there.of("alice") == mine and not files.path("alice").exists()
    authenticator = Authenticator.of(two)
    assert authenticator.app_logins.find("alice", Secret(shown.encode()), "imap") == made
    with pytest.raises(StoreError) as refused:
        change_access(one, "alice", lambda before: before.without_passwords([made.id]))
    assert refused.value.problem is Problem.ELSEWHERE and not files.path("alice").exists()
    change_access(two, "alice", lambda before: before.without_second_factor())
    there.path("alice").write_bytes(b"{damaged")
    move("alice", two, one)
    assert files.of("alice").is_empty and not there.path("alice").exists()


def test_another_activation_gives_back_no_app_password(ends):
    """The source does it again when it has not heard the answer; meanwhile one may have been revoked."""
    one, two = ends
    made, _ = make("telephone", ["imap"], read_only=False, now=1000)
    change_access(one, "alice", lambda before: before.with_password(made, 1001))
    line = Line(two, one.settings.host)
    peer = line.connect()
    sender = MailboxSender(one, "alice", two.settings.host, peer, lambda so_far: None)
    gone = sender.run()
    before = sourceside._access(one, "alice")
    peer.activate("alice", gone.id, before)
    change_access(two, "alice", lambda before: before.without_passwords([made.id]))
    sourceside.finish(one, gone, peer)
    peer.close()
    line.ended()
    assert made.id.encode() in before and AccessFiles(two.root).of("alice").is_empty
