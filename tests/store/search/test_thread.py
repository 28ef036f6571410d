"""THREAD: RFC 5256 §3, against the RFC's steps done one by one, and the sent date of SORT."""

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from store.message.headers import sent
from store.search import thread
from store.search.columns import NO_DATE


class Node:
    """A message, or a dummy, as the RFC speaks of it."""

    def __init__(self, number=None):
        self.number = number
        self.parent = None
        self.children = []

    def link(self, child):
        if child is self or child in self.above():
            return
        child.unlink()
        child.parent = self
        self.children.append(child)

    def unlink(self):
        if self.parent:
            self.parent.children.remove(self)
            self.parent = None

    def above(self):
        found, node = [], self
        while node.parent:
            node = node.parent
            found.append(node)
        return found


def by_the_book(messages):
    """The threads of messages (id, references, subject, is it a reply, time), as nested lists; None is a dummy."""
    nodes, known = [], {}
    for number, (own, *_) in enumerate(messages):
        nodes.append(Node(number))
        if own and own not in known:
            known[own] = nodes[-1]
    for node, (_, references, *_) in zip(nodes, messages, strict=True):                         # step 1
        chain = [known.setdefault(one, Node()) for one in references]
        for parent, child in zip(chain, chain[1:], strict=False):
            if not child.parent:
                parent.link(child)
        node.unlink()
        if chain:
            chain[-1].link(node)
    every = {id(node): node for node in [*nodes, *known.values()]}.values()
    root = Node()
    for node in every:                                                                          # step 2
        if not node.parent:
            node.parent = root
            root.children.append(node)

    def prune(node, top):                                                                       # step 3
        for child in list(node.children):
            prune(child, top=False)
            if child.number is None and (not child.children or not (top and len(child.children) > 1)):
                at = node.children.index(child)
                for one in child.children:
                    one.parent = node
                node.children[at:at + 1] = child.children

    prune(root, top=True)

    def first(node):
        return node if node.number is not None else min(node.children, key=when)

    def when(node):
        return messages[first(node).number][4], first(node).number

    root.children.sort(key=when)                                                                # step 4
    table = {}
    for node in root.children:                                                                  # step 5
        subject = messages[first(node).number][2]
        kept = table.get(subject)
        if subject and (kept is None or (kept.number is not None and (
                node.number is None or (messages[kept.number][3] and not messages[node.number][3])))):
            table[subject] = node
    for node in list(root.children):
        subject = messages[first(node).number][2]
        if not subject or table[subject] is node:
            continue
        kept = table[subject]
        root.children.remove(node)
        if kept.number is None and node.number is None:
            for child in list(node.children):
                kept.link(child)
        elif kept.number is None or (messages[node.number][3] and not messages[kept.number][3]):
            node.parent = None
            kept.link(node)
        else:
            both = table[subject] = Node()
            root.children[root.children.index(kept)] = both
            for one in (kept, node):
                one.parent = None
                both.link(one)

    def shown(node):                                                                            # step 6
        return [node.number, *map(shown, sorted(node.children, key=when))]

    return shown(root)[1:]


def nested(threads):
    """The same form of what the store says."""
    def shown(node):
        return [node if node < threads.count else None, *map(shown, threads.children.get(node, []))]

    return [shown(root) for root in threads.roots]


class Threaded:
    """Messages as the columns of a mailbox, put straight into the steps of the store."""

    def __init__(self, messages):
        names = {}
        number = lambda name: names.setdefault(name, len(names) + 1)                            # noqa: E731
        self.own = np.array([number(own) if own else 0 for own, *_ in messages], np.int64)
        self.count = np.array([len(references) for _, references, *_ in messages], np.int64)
        self.first = np.cumsum(self.count) - self.count
        self.references = np.array([number(one) for _, references, *_ in messages for one in references], np.int64)
        self.size = len(names) + 1
        subjects = {"": 0}
        self.bases = np.array([subjects.setdefault(subject, len(subjects)) for _, _, subject, *_ in messages], np.int64)
        self.is_reply = np.array([is_reply for *_, is_reply, _ in messages], np.bool_)
        self.times = np.array([time for *_, time in messages], np.int64)

    def numbered(self):
        return self.own, self.references, self.size

    def threads(self, *, in_turn=False):
        count = len(self.own)
        nodes, owner, size = thread._references(self, np.arange(count))
        link = thread._linked_in_turn if in_turn else thread._linked
        parents = thread._pruned(link(nodes, owner, size, count), count)
        times = np.concatenate((self.times, np.zeros(len(parents) - count, np.int64)))
        return thread._Forest(parents, times, count).gathered(self.bases, self.is_reply)


IDS = st.sampled_from(["a", "b", "c", "d", "e", "f", "g"])
MESSAGES = st.lists(st.tuples(st.one_of(st.none(), IDS), st.lists(IDS, max_size=4),
                              st.sampled_from(["", "s", "t"]), st.booleans(), st.integers(0, 3)),
                    min_size=1, max_size=8)


@pytest.mark.long
@settings(deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
@given(MESSAGES)
@example([("a", ["b"], "", False, 0), ("b", ["a"], "", False, 0)])                              # a loop
@example([(None, ["a", "b"], "", False, 0), ("b", [], "", False, 0), (None, ["a", "b"], "", False, 0)])
@example([("a", ["a"], "", False, 0), ("a", ["a"], "", False, 1)])
def test_threads_are_those_of_the_book(messages):
    expected = by_the_book(messages)
    assert nested(Threaded(messages).threads()) == expected
    assert nested(Threaded(messages).threads(in_turn=True)) == expected


@pytest.mark.long
@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.sets(st.integers(0, 30), max_size=3), st.sampled_from(["", "s", "t", "u"]), st.booleans(),
                          st.integers(0, 9)), min_size=1, max_size=30))
def test_threads_of_orderly_mail(messages):
    """References go back only, and come in the order of their messages; some of these are not there."""
    messages = [(f"{number}" if time else None, [f"{one}" for one in sorted(refers) if one < number], *rest, time)
                for number, (refers, *rest, time) in enumerate(messages)]
    assert nested(Threaded(messages).threads()) == by_the_book(messages)


@pytest.mark.long
def test_a_long_chain_and_a_long_loop_take_no_time():
    count = 30_000
    chain = [(f"{at}", [f"{at - 1}"] if at else [], "", False, at) for at in range(count)]
    threads = Threaded(chain).threads()
    assert threads.roots == [0] and len(threads.children) == count - 1
    threads = Threaded([*chain, ("x", [f"{count - 1}", "0"], "", False, count)]).threads()
    assert threads.roots == [0] and len(threads.children) == count - 1


def unix(*when):
    return int(datetime(*when, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(("value", "time"), [
    (b"31 Dec 2000 16:01:33 -0800", unix(2001, 1, 1, 0, 1, 33)),
    (b"Sun, 31 Dec 2000 16:01:33 PST", unix(2001, 1, 1, 0, 1, 33)),
    (b"1 Jan 2001 00:01 +0000", unix(2001, 1, 1, 0, 1)), (b"1 Jan 01 00:01:02 GMT", unix(2001, 1, 1, 0, 1, 2)),
    (b"1 Jan 2001 01:31:00 +0130 (somewhere)", unix(2001, 1, 1, 0, 1)), (b"1 Jan 2001 12:00:00", unix(2001, 1, 1, 12)),
    # an invalid zone is UTC, an invalid time midnight (RFC 5256 §2.2)
    (b"1 Jan 2001 12:00:00 NOWHERE", unix(2001, 1, 1, 12)), (b"1 Jan 2001 12:00:00 +0190", unix(2001, 1, 1, 12)),
    (b"1 Jan 2001 25:00:00 +0000", unix(2001, 1, 1)), (b"1 Jan 2001", unix(2001, 1, 1)),
    (b"1 Jan 2001 noon", unix(2001, 1, 1)), (b"31 Feb 2001 12:00:00 +0000", None), (b"", None), (b"yesterday", None)])
def test_sent_dates(value, time):
    found = sent(value)
    assert (found and found[1]) == time
    assert time != NO_DATE
