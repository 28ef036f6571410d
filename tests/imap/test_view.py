"""The numbering of a session against a client that believes what it is told (RFC 3501 §7.3, §7.4)."""

import re

import numpy as np
import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imap import view as view_module
from imap.view import Belief, View
from imap.wire.grammar import SyntaxProblem
from imap.wire.scanner import parse_number_set
from store.tables.index import CHUNK, ROW
from store.tables.state import Mailbox, MailboxState, Since

STATE = MailboxState.new(1, 0, "alice")


def mailbox_view(messages, keywords=()):
    """A mailbox of {uid: (flags, keyword bits)}."""
    rows = np.zeros(len(messages), ROW)
    rows["uid"] = sorted(messages)
    rows["flags"] = [messages[uid][0] for uid in sorted(messages)]
    rows["keywords"] = [messages[uid][1] for uid in sorted(messages)]
    rows.flags.writeable = False
    return Mailbox(None, evolve(STATE, uidnext=max(messages, default=0) + 1, keywords=keywords), rows)


def after(old, new):
    """The new view, with what is new in it since the old one: no more chunks are named than must be."""
    before, now = ({int(row["uid"]): row.tobytes() for row in mailbox.rows} for mailbox in (old, new))
    chunks = frozenset((uid - 1) // CHUNK for uid in before if now.get(uid) != before[uid])
    return evolve(new, since=Since(old.state, chunks))


@pytest.fixture(params=["all", "few"])
def looked_at(request, monkeypatch):
    """Whether `merge` looks at all messages, or only at those that may have changed."""
    monkeypatch.setattr(view_module, "FEW", 0 if request.param == "few" else 1 << 30)
    return request.param


class Client:
    r"""What a client knows of its mailbox: for each number the UID and flags, as far as it was told."""

    NAMES = {rb"\Seen": 1, rb"\Answered": 2, rb"\Flagged": 4, rb"\Deleted": 8, rb"\Draft": 16}

    def __init__(self, messages, keywords=()):
        self.uids = sorted(messages)
        self.flags = [messages[uid] for uid in self.uids]
        self.keywords = [word.encode() for word in keywords]

    def hear(self, octets, truth):
        for line in octets.split(b"\r\n")[:-1]:
            number, word = line.split(b" ")[1:3]
            if word == b"EXPUNGE":
                del self.uids[int(number) - 1], self.flags[int(number) - 1]
            elif word == b"EXISTS":
                assert int(number) >= len(self.uids)
                new = sorted(truth)[len(self.uids) - int(number):] if int(number) > len(self.uids) else []
                self.uids += new
                self.flags += [truth[uid] for uid in new]
            elif number == b"FLAGS":
                self.keywords = re.search(rb"Draft ?(.*)\)", line)[1].split()
            elif word == b"FETCH":
                names = re.search(rb"FLAGS \((.*)\)\)", line)[1].replace(rb"\Recent", b"").split()
                bits = sum(1 << at for at, name in enumerate(self.keywords) if name in names)
                self.flags[int(number) - 1] = (sum(self.NAMES.get(name, 0) for name in names), bits)


KINDS = st.sampled_from(["expunge", "add", "flag", "keyword", "nothing"])
STEPS = st.lists(st.tuples(KINDS, st.integers(0, 30), st.integers(0, 31), st.booleans()))


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 12), STEPS, st.sampled_from([1, 25]))
def test_what_a_client_believes_is_so(looked_at, count, steps, apart):
    truth = {uid * apart: (0, 0) for uid in range(1, count + 1)}
    keywords = ()
    top = count * apart
    view = View(mailbox_view(truth), read_only=False)
    client = Client(truth)
    for what, at, flags, expunges in steps:
        uids = sorted(truth)
        if what == "add":
            top += 1 + at % 3
            truth[top] = (flags, 0)
        elif what == "keyword" and len(keywords) < 5:
            keywords = (*keywords, f"k{len(keywords)}")
        elif what == "expunge" and uids:
            del truth[uids[at % len(uids)]]
        elif what == "flag" and uids:
            truth[uids[at % len(uids)]] = (flags, at & (1 << len(keywords)) - 1)
        before = list(client.uids)
        told = view.merge(after(view.mailbox, mailbox_view(truth, keywords)), expunges=expunges)
        client.hear(b"".join(view.responses(told, by_uid=False)), truth)
        assert client.uids == view.uids.tolist() == view.rows["uid"].tolist()
        if expunges:
            assert client.uids == sorted(truth)
        else:
            assert client.uids[:len(before)] == before
        there = view.still_there(np.arange(view.exists))
        assert view.uids[there].tolist() == sorted(truth)
        assert [client.flags[at] for at in there.tolist()] == [truth[uid] for uid in sorted(truth)]


def test_expunges_are_told_from_the_last_to_the_first(looked_at):
    view = View(mailbox_view({uid: (0, 0) for uid in range(1, 6)}), read_only=False)
    told = view.merge(after(view.mailbox, mailbox_view({2: (0, 0), 4: (0, 0)})), expunges=True)
    assert b"".join(view.responses(told, by_uid=False)) == b"* 5 EXPUNGE\r\n* 3 EXPUNGE\r\n* 1 EXPUNGE\r\n"


def test_an_expunge_and_an_arrival_at_once_do_not_hide_each_other(looked_at):
    view = View(mailbox_view({1: (0, 0), 2: (0, 0)}), read_only=False)
    told = view.merge(after(view.mailbox, mailbox_view({2: (0, 0), 3: (0, 0)})), expunges=True)
    assert b"".join(view.responses(told, by_uid=False)) == b"* 1 EXPUNGE\r\n* 2 EXISTS\r\n* 0 RECENT\r\n"
    assert view.uids.tolist() == [2, 3]


def test_a_belief_that_is_right_is_not_contradicted(looked_at):
    view = View(mailbox_view({1: (0, 0), 2: (0, 0)}), read_only=False)
    belief = Belief(np.array([0, 1]), np.array([1, 1], np.uint16), np.array([0, 0], np.uint64))
    told = view.merge(after(view.mailbox, mailbox_view({1: (1, 0), 2: (5, 0)})), expunges=False, belief=belief)
    assert b"".join(view.responses(told, by_uid=True)) == b"* 2 FETCH (UID 2 FLAGS (\\Seen \\Flagged))\r\n"


@pytest.mark.parametrize(("octets", "by_uid", "wanted"), [
    (b"1", False, [0]), (b"2:1", False, [0, 1]), (b"*", False, [2]), (b"*:1", False, [0, 1, 2]),
    (b"3,1,2:3", False, [0, 1, 2]), (b"4", False, None), (b"1:4", False, None), (b"10", True, [0]),
    (b"11", True, []), (b"25:11", True, [1]),
    (b"100:*", True, [2]), (b"*", True, [2]), (b"1:*", True, [0, 1, 2]), (b"30,10", True, [0, 2]), (b"1:9", True, []),
])
def test_sets_name_messages(octets, by_uid, wanted):
    view = View(mailbox_view({10: (0, 0), 20: (0, 0), 30: (0, 0)}), read_only=False)
    if wanted is None:
        with pytest.raises(SyntaxProblem):
            view.positions(parse_number_set(octets, 10), by_uid=by_uid)
    else:
        assert view.positions(parse_number_set(octets, 10), by_uid=by_uid).tolist() == wanted


def test_recent_messages_are_counted_and_found():
    view = View(mailbox_view({uid: (0, 0) for uid in (1, 5, 6, 9)}), read_only=False)
    view.add_recent(1, 2)
    view.add_recent(6, 7)
    view.add_recent(7, 10)
    assert view.recent_count() == 3
    assert view.recent_of(view.rows).tolist() == [True, False, True, True]


def test_the_first_unseen_message_is_found():
    assert View(mailbox_view({1: (1, 0), 4: (3, 0), 7: (2, 0)}), read_only=False).first_unseen() == 3
    assert View(mailbox_view({1: (1, 0)}), read_only=False).first_unseen() is None
    assert View(mailbox_view({}), read_only=False).first_unseen() is None


@pytest.mark.parametrize("number", [1, 64, 65, 576, 577, 2576, 2577, 5000])
def test_the_first_unseen_message_of_many_is_found(number):
    many = {uid: (1 if uid < number else uid % 2, 0) for uid in range(1, 5001)} | {number: (0, 0)}
    assert View(mailbox_view(many), read_only=False).first_unseen() == number


def changed(mailbox, uid, modseq):
    """A view in which that message has another MODSEQ, as after a change of flags and back."""
    rows = mailbox.rows.copy()
    rows["modseq"][rows["uid"] == uid] = modseq
    return evolve(mailbox, rows=rows, state=evolve(mailbox.state, highestmodseq=modseq))


def test_a_modseq_is_told_of_flags_that_the_client_knows(looked_at):
    first = mailbox_view({1: (0, 0), 2: (0, 0), 3: (0, 0)})
    view = View(first, read_only=False)
    belief = Belief(np.array([1]), np.array([0], np.uint16), np.array([0], np.uint64), np.array([0], np.uint64))
    told = view.merge(after(view.mailbox, changed(first, 2, 7)), expunges=False, belief=belief)
    assert b"".join(view.responses(told, by_uid=False, enabled={b"CONDSTORE"})) == b"* 2 FETCH (UID 2 MODSEQ (7))\r\n"


def test_a_modseq_that_the_client_knows_is_not_told(looked_at):
    first = mailbox_view({1: (0, 0), 2: (0, 0), 3: (0, 0)})
    view = View(first, read_only=False)
    belief = Belief(np.array([1]), np.array([0], np.uint16), np.array([0], np.uint64), np.array([7], np.uint64))
    told = view.merge(after(view.mailbox, changed(first, 2, 7)), expunges=False, belief=belief)
    assert b"".join(view.responses(told, by_uid=False, enabled={b"CONDSTORE"})) == b""


def test_flags_come_with_uid_and_modseq_and_uids_in_vanished(looked_at):
    view = View(mailbox_view({uid: (0, 0) for uid in range(1, 6)}), read_only=False)
    told = view.merge(after(view.mailbox, changed(mailbox_view({2: (0, 0), 4: (1, 0)}), 4, 9)), expunges=True)
    assert b"".join(view.responses(told, by_uid=False, enabled={b"CONDSTORE", b"QRESYNC"})) == (
        b"* VANISHED 1,3,5\r\n* 2 FETCH (UID 4 FLAGS (\\Seen) MODSEQ (9))\r\n")


def test_a_view_knows_up_to_where_all_has_been_told(looked_at):
    view = View(changed(mailbox_view({1: (0, 0), 2: (0, 0)}), 2, 5), read_only=False)
    assert view.modseq == 5
    view.merge(after(view.mailbox, changed(mailbox_view({2: (1, 0)}), 2, 7)), expunges=False)
    view.merge(after(view.mailbox, changed(mailbox_view({2: (0, 0)}), 2, 8)), expunges=False)
    assert view.modseq == 5
    view.merge(view.mailbox, expunges=True)
    assert view.modseq == 8
    view.merge(after(view.mailbox, changed(mailbox_view({2: (1, 0)}), 2, 9)), expunges=False)
    assert view.modseq == 9


def test_an_arrival_a_change_and_an_expunge_far_apart(looked_at):
    """200 messages in four chunks: each of the three is in another one."""
    first = {uid: (0, 0) for uid in range(1, 201)}
    view = View(mailbox_view(first), read_only=False)
    now = {**first, 150: (4, 0), 201: (0, 0)}
    del now[20]
    new = after(view.mailbox, mailbox_view(now))
    assert new.since.chunks == {0, 2}
    told = view.merge(new, expunges=False)
    assert b"".join(view.responses(told, by_uid=False)) == (
        b"* 201 EXISTS\r\n* 0 RECENT\r\n* 150 FETCH (FLAGS (\\Flagged))\r\n")
    again = after(view.mailbox, mailbox_view({**now, 151: (1, 0)}))
    told = view.merge(again, expunges=True, always=np.array([10]))
    assert b"".join(view.responses(told, by_uid=False)) == (
        b"* 20 EXPUNGE\r\n* 11 FETCH (FLAGS ())\r\n* 150 FETCH (FLAGS (\\Seen))\r\n")


def test_beliefs_and_what_is_always_told_beside_a_change_elsewhere(looked_at):
    first = {uid: (0, 0) for uid in range(1, 201)}
    view = View(mailbox_view(first), read_only=False)
    new = after(view.mailbox, mailbox_view({**first, 5: (1, 0), 100: (2, 0)}))
    belief = Belief(np.array([4, 150]), np.array([1, 8], np.uint16), np.array([0, 0], np.uint64))
    told = view.merge(new, expunges=False, belief=belief, always=np.array([60]))
    assert b"".join(view.responses(told, by_uid=False)) == (
        b"* 61 FETCH (FLAGS ())\r\n* 100 FETCH (FLAGS (\\Answered))\r\n* 151 FETCH (FLAGS ())\r\n")


def test_what_is_new_since_another_picture_is_not_believed(looked_at):
    first = mailbox_view({uid: (0, 0) for uid in range(1, 201)})
    view = View(first, read_only=False)
    new = mailbox_view({**{uid: (0, 0) for uid in range(1, 201)}, 100: (1, 0)})
    told = view.merge(evolve(new, since=Since(evolve(first.state), frozenset())), expunges=False)
    assert b"".join(view.responses(told, by_uid=False)) == b"* 100 FETCH (FLAGS (\\Seen))\r\n"


def test_what_has_vanished_untold_keeps_its_number_while_others_change(looked_at):
    first = {uid: (0, 0) for uid in range(1, 131)}
    view = View(mailbox_view(first), read_only=False)
    now = {uid: flags for uid, flags in first.items() if uid != 2}
    view.merge(after(view.mailbox, mailbox_view(now)), expunges=False)
    told = view.merge(after(view.mailbox, mailbox_view({**now, 3: (1, 0), 130: (2, 0)})), expunges=False)
    assert b"".join(view.responses(told, by_uid=True)) == (
        b"* 3 FETCH (UID 3 FLAGS (\\Seen))\r\n* 130 FETCH (UID 130 FLAGS (\\Answered))\r\n")
    told = view.merge(view.mailbox, expunges=True)
    assert b"".join(view.responses(told, by_uid=False)) == b"* 2 EXPUNGE\r\n"
