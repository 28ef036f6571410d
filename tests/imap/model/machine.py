"""Three sessions on one mailbox, side by side with what each of them believes and with what is true."""

import re
import time
from typing import ClassVar

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from store.check.wholecheck import check
from store.mailboxes import deletion, namespace
from store.mailboxes.authorization import set_acl
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import expunge, remove
from store.mailboxes.flagchanges import change_flags
from store.tables.index import CHUNK
from store.values import Flag, FlagAction, Flags
from tests.imap.model.client import Sent, lines_of
from tests.imap.model.commands import LINES, NUMBERED, READING, STORING, WISHES
from tests.imap.model.session import Session
from tests.imap.model.world import GUEST, OWNER, Mail, World
from tests.support.conversations.scripts import content
from tests.support.stores.purging import purge_mailboxes

KINDS = st.sampled_from(["", "IMAP4rev2", "CONDSTORE", "QRESYNC", "QRESYNC IMAP4rev2", "CONDSTORE IMAP4rev2"])
RESYNCING = st.sampled_from(["CONDSTORE", "QRESYNC", "QRESYNC IMAP4rev2"])
CHANGES = st.sampled_from(["flag", "unflag", "expunge", "move", "copy"])
USERS = (OWNER, OWNER, GUEST)
RIGHTS = ["lrswipkxte", "lrswipkxte", "lrs", "lr", "lrsw", "lrwt", "lrite"]
CLIENTS = st.integers(0, 2)
BREAK = st.none() | st.integers(0, 12)


class Machine(RuleBasedStateMachine):
    """See the module's text."""

    place: ClassVar[object]
    made: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        Machine.made += 1
        path = f"Box{Machine.made}"
        namespace.create_mailbox(self.place.store, self.place.name(path))
        self.world = World(self.place, path)
        self.share(self.world.rights)
        self.sessions = [Session(self.world, user, number) for number, user in enumerate(USERS)]
        self.delivered = 0

    def share(self, rights: str) -> None:
        set_acl(self.place.store, self.world.entry.name, GUEST, rights)
        self.world.rights = rights

    @initialize(kinds=st.tuples(KINDS, KINDS, KINDS), count=st.integers(0, 5), boundary=st.booleans())
    def begin(self, kinds, count, boundary):
        if boundary:                # so that the messages are in two chunks of the index
            self.skip_uids(CHUNK - 3)
        for _ in range(count):
            self.deliver(0)
        for session, kind in zip(self.sessions, kinds, strict=True):
            session.open(kind, examine=False, sync=True, choice=0, lines=None)

    def skip_uids(self, last: int) -> None:
        """Messages with the UIDs up to this one have been here."""
        store, world = self.place.store, self.world
        there = [self.place.deliver(world.path, content("gone"))]
        while there[-1] < last:
            there += copy_messages(store, world.entry, world.entry, there[:last - there[-1]])
        remove(store, world.entry, there)
        world.last = there[-1]

    def ready(self, number: int) -> Session:
        """The session, connected and not in IDLE."""
        session = self.sessions[number]
        if session.wire is None:
            session.open(session.kind, examine=False, sync=True, choice=3, lines=None)
        elif session.idle is not None:
            session.done()
        return session

    def noticed(self) -> None:
        """Those in IDLE hear at once; nobody else hears anything."""
        for session in self.sessions:
            if session.wire is not None:
                session.wire.settle()
                if session.idle is not None:
                    session.news()
                else:
                    session.quiet()

    @rule(number=CLIENTS, wish=WISHES)
    def one_command(self, number, wish):
        self.ready(number).say([wish], None)
        self.noticed()

    @rule(number=CLIENTS, wishes=LINES)
    def pipelined(self, number, wishes):
        self.ready(number).say(wishes, None)
        self.noticed()

    @rule(number=CLIENTS, wishes=LINES, lines=st.integers(0, 12), kind=KINDS)
    def broken(self, number, wishes, lines, kind):
        session = self.ready(number)
        session.say(wishes, lines)
        session.kind = kind
        self.noticed()

    @rule(number=CLIENTS, examine=st.booleans(), sync=st.booleans(), choice=st.integers(0, 11), lines=BREAK, kind=KINDS)
    def come_back(self, number, examine, sync, choice, lines, kind):
        session = self.sessions[number]
        if session.wire is not None:
            session.drop()
        session.open(kind, examine=examine, sync=sync, choice=choice, lines=lines)
        self.noticed()

    @rule(number=CLIENTS, ending=st.sampled_from(["CLOSE", "UNSELECT", "SELECT"]), examine=st.booleans())
    def leave(self, number, ending, examine):
        session = self.ready(number)
        if ending != "SELECT":
            sent = Sent(session.tag(), ending, ending.lower())
            session.wire.send(f"{sent.tag} {ending}\r\n".encode())
            got = list(lines_of(session.wire.received()))
            assert len(got) == 1, "no expunge is told"
            self.world.carry_out(session.user, sent, got[0].text, [], read_only=session.read_only)
            assert "HIGHESTMODSEQ" not in got[0].text                   # RFC 7162 §3.2.8
        session.drop()
        self.noticed()

    @rule(number=CLIENTS)
    def idle(self, number):
        self.ready(number).begin_idle()
        self.noticed()

    @rule(number=CLIENTS)
    def noop(self, number):
        """Then what a client believes is true."""
        session = self.ready(number)
        session.send([Sent(session.tag(), "NOOP", "noop")], None)
        session.compare()
        self.noticed()

    @rule(flags=st.integers(0, 3))
    def deliver(self, flags):
        self.delivered += 1
        subject = f"d{self.delivered}"
        system = Flag(0) if not flags else [Flag.SEEN, Flag.FLAGGED, Flag.DELETED][flags - 1]
        uid = self.place.deliver(self.world.path, content(subject), Flags(system))
        names = {Flag.SEEN: "\\Seen", Flag.FLAGGED: "\\Flagged", Flag.DELETED: "\\Deleted"}
        self.world.add(uid, Mail(subject).with_flags(OWNER, frozenset([names[system]] if flags else [])))
        self.noticed()

    @rule(what=CHANGES, pick=st.integers(0, 63))
    def elsewhere(self, what, pick):
        """Somebody who is no session here changes the mailbox."""
        world, store = self.world, self.place.store
        uids = [uid for at, uid in enumerate(list(world.mails)[:6]) if pick >> at & 1]
        if what == "expunge":
            expunge(store, world.entry)
            world.expunge(set(world.mails))
        elif uids and what == "move":
            copy_messages(store, world.entry, self.place.entry("INBOX"), uids, remove=True)
            world.mails = {uid: mail for uid, mail in world.mails.items() if uid not in uids}
        elif uids and what == "copy":
            new = copy_messages(store, world.entry, world.entry, uids)
            for uid, old in zip(new, uids, strict=True):
                mail = world.mails[old]
                world.add(uid, Mail(mail.subject).with_flags(OWNER, mail.shown(OWNER)))
        elif uids:
            action = FlagAction.ADD if what == "flag" else FlagAction.REMOVE
            change_flags(store, world.entry, uids, action, Flags(Flag.FLAGGED | Flag.DELETED))
            for uid in uids:
                old = world.mails[uid].flags
                both = {"\\Flagged", "\\Deleted"}
                world.mails[uid].flags = old | both if what == "flag" else old - both
        self.noticed()

    @rule(what=st.sampled_from(["flag", "expunge", "move"]), pick=st.integers(1, 63), number=CLIENTS, wish=NUMBERED)
    def meanwhile(self, what, pick, number, wish):
        """Somebody changes the mailbox before a client that must not be told of expunges now says something."""
        session = self.ready(number)
        self.elsewhere(what, pick)
        session.say([wish], None)
        self.noticed()

    @rule(number=CLIENTS, what=CHANGES, pick=st.integers(1, 63), choice=st.integers(0, 11), lines=BREAK, kind=RESYNCING)
    def away(self, number, what, pick, choice, lines, kind):
        """Somebody changes the mailbox while a client is not there."""
        session = self.ready(number)
        session.drop()
        self.elsewhere(what, pick)
        session.open(kind, examine=False, sync=True, choice=choice, lines=lines)
        self.noticed()

    @rule(number=CLIENTS, wish=STORING)
    def test_and_set(self, number, wish):
        """A client changes what has, or has not, been changed since it looked (UNCHANGEDSINCE, if it knows that)."""
        session = self.ready(number)
        session.send([Sent(session.tag(), "NOOP", "noop")], None)
        session.say([evolve(wish, more=wish.more % 8)], None)
        self.noticed()

    @rule(number=st.integers(0, 1), wish=READING)
    def read_again(self, number, wish):
        r"""A client reads what another has just made unseen, before it is told of that."""
        session, other = self.ready(number), self.ready(1 - number)
        for one, store in ((session, "+"), (other, "-")):
            if one.belief.messages and not one.read_only:
                one.send([Sent(one.tag(), f"STORE 1:* {store}FLAGS (\\Seen)", "store", list(one.belief.messages),
                               frozenset({"\\Seen"}), store, at={
                                   at: mail.true for at, mail in enumerate(one.belief.messages, 1)})], None)
        session.say([wish], None)
        self.noticed()

    @rule(rights=st.sampled_from(["lrwt", "lrite"]), wish=READING)
    def read_without_s(self, rights, wish):
        r"""The guest reads a message, and may change flags, but not \\Seen."""
        session = self.ready(USERS.index(GUEST))
        self.other_rights(rights)
        if session.idle is None:
            session.say([wish], None)
        self.noticed()

    @rule(rights=st.sampled_from(RIGHTS))
    def other_rights(self, rights):
        self.share(rights)
        for session in self.sessions:
            if session.wire is not None:
                session.wire.settle()
                for line in lines_of(session.wire.received()):
                    assert session.idle is not None
                    assert re.match(r"\* (FLAGS|OK \[PERMANENTFLAGS)", line.text), line.text

    @invariant()
    def each_message_is_as_it_must_be(self):
        for user in (OWNER, GUEST):
            assert self.world.found(user) == self.world.shown(user), f"what {user} sees"

    @invariant()
    def nothing_is_lost(self):
        for session in self.sessions:
            if session.belief is not None and session.cache:
                rows = self.world.fresh(session.user).rows
                session.no_loss(dict(zip(rows["uid"].tolist(), rows["modseq"].tolist(), strict=True)))

    def teardown(self) -> None:
        store = self.place.store
        try:
            for session in self.sessions:
                if session.wire is not None:
                    if session.idle is not None:
                        session.done()
                    session.send([Sent(session.tag(), "NOOP", "noop")], None)
                    session.compare()
            assert check(store) == []
        finally:
            for session in self.sessions:
                if session.wire is not None:
                    session.drop()
            deletion.delete_mailbox(store, self.world.entry.name)
            purge_mailboxes(store, time.time() + store.settings.purge_delay + 1)
