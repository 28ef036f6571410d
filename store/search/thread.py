"""THREAD: RFC 5256 §3.

Messages are numbers from 0, in the order of the mailbox; dummies, which stand for messages that are not there, are the
numbers from there on. All that can be done to all of them at once is done in numpy; the loops that are left are linear.
"""

from collections import defaultdict

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from store.progress import Progress
from store.readable import Readable
from store.search.columns import Ids, columns_of
from store.search.projection import Numbers, Places
from store.search.sort import sent_times
from store.tables.index import Rows, take
from store.tables.state import Mailbox

NONE = -1                   # instead of the number of a parent
STEPS = 10_000_000          # on the way up a tree, in search of loops, before links are refused unlooked

Mask = NDArray[np.bool_]


@frozen(eq=False)
class Threads:
    """Trees of messages: the roots in their order, and each message's children in theirs.

    Numbers are places among the messages that were threaded; those from `count` on are dummies.
    """

    count: int
    roots: list[int]
    children: dict[int, list[int]]


def ordered_subject(store: Readable, mailbox: Mailbox, found: Places, progress: Progress | None = None) -> Threads:
    """Threads by base subject alone, of the messages at these ascending places. Raises Abandoned."""
    rows = take(mailbox.rows, found)
    columns_of(store).read(store, mailbox, rows, ("subject", "date"), progress or Progress())
    bases, _ = _subjects(store, mailbox, rows)
    times = sent_times(store, mailbox, rows)
    order = np.lexsort((times, bases))
    first = np.ones(len(order), np.bool_)
    first[1:] = np.diff(bases[order]) != 0
    starts = np.flatnonzero(first)
    heads, sizes = order[starts], np.diff(np.append(starts, len(order)))
    children = {int(order[start]): order[start + 1:start + size].tolist()
                for start, size in zip(starts[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True)}
    return Threads(len(found), heads[np.lexsort((heads, times[heads]))].tolist(),
                   children)


def references(store: Readable, mailbox: Mailbox, found: Places, progress: Progress | None = None) -> Threads:
    """Threads by what messages refer to, and then by base subject, of the messages at these ascending places.

    Raises Abandoned.
    """
    rows = take(mailbox.rows, found)
    count = len(rows)
    if not count:
        return Threads(0, [], {})
    columns_of(store).read(store, mailbox, rows, ("ids", "subject", "date"), progress or Progress())
    ids = columns_of(store).ids(mailbox)
    parents = _linked(*_references(ids, ids.places(store, mailbox.entry, rows)), count)
    parents = _pruned(parents, count)
    times = np.concatenate((sent_times(store, mailbox, rows), np.zeros(len(parents) - count, np.int64)))
    return _Forest(parents, times, count).gathered(*_subjects(store, mailbox, rows))


def _subjects(store: Readable, mailbox: Mailbox, rows: Rows) -> tuple[Numbers, Mask]:
    subjects = columns_of(store).subjects(mailbox)
    places = subjects.places(store, mailbox.entry, rows)
    return subjects.base.ids[places], subjects.is_reply[places]


# Step 1: links

def _references(ids: Ids, places: Places) -> tuple[Numbers, Numbers, int]:
    """The references of all messages one after the other, as numbers of messages and dummies; whose they are; and how
    many messages and dummies there are."""
    numbers, everything, size = ids.numbered()
    own, counts = numbers[places], ids.count[places]
    owner = np.repeat(np.arange(len(places)), counts)
    starts = np.repeat(ids.first[places] - (np.cumsum(counts) - counts), counts)
    nodes = np.arange(len(places), len(places) + size)      # each id is a dummy's, unless it is a message's
    nodes[own[::-1]] = np.arange(len(places))[::-1]         # and of two messages the first one's
    return nodes[everything[starts + np.arange(len(owner))]], owner, len(places) + size


def _linked(nodes: Numbers, owner: Numbers, size: int, count: int) -> Numbers:
    """The parent of each message and dummy."""
    last = np.ones(len(owner), np.bool_)
    last[:-1] = owner[1:] != owner[:-1]
    child = np.where(last, owner, np.append(nodes[1:], 0)) if len(owner) else owner
    useful = nodes != child
    if _has_loop(nodes[useful], child[useful], size):
        return _linked_in_turn(nodes, owner, size, count)
    parents = np.full(size, NONE)
    # No link can close a loop, so the order of all links is only that of who comes first. A link between references
    # (step 1.A) counts where none was made before, and is broken when its child's own turn comes (1.B).
    at = np.flatnonzero(~last & useful)
    turn_over = child[at] < count
    turn_over[turn_over] = owner[at[turn_over]] > child[at[turn_over]]
    between = at[turn_over | (child[at] >= count)]
    parents[child[between][::-1]] = nodes[between][::-1]
    parents[owner[last & useful]] = nodes[last & useful]
    return parents


def _has_loop(parent: Numbers, child: Numbers, size: int) -> bool:
    """Whether the links, all of them together, make a loop: whether taking away the lowest ones leaves any."""
    before = 0
    while before != len(parent) and (not before or len(parent) < before - before // 16):
        before = len(parent)
        is_parent = np.zeros(size, np.bool_)
        is_parent[parent] = True
        left = is_parent[child]
        parent, child = parent[left], child[left]
    return len(parent) > 0 and _has_loop_left(parent, child, size)


def _has_loop_left(parent: Numbers, child: Numbers, size: int) -> bool:
    """Whether the links make a loop, for deep trees: link by link, from above."""
    pairs = np.unique(parent * size + child)
    parent, child = np.divmod(pairs, size)
    waiting = np.bincount(child, minlength=size)
    ready: list[int] = np.flatnonzero((waiting == 0) & (np.bincount(parent, minlength=size) > 0)).tolist()
    ends: list[int] = np.cumsum(np.bincount(parent, minlength=size)).tolist()
    children: list[int] = child.tolist()
    left: list[int] = waiting.tolist()
    seen = 0
    while ready:
        one = ready.pop()
        start, end = ends[one - 1] if one else 0, ends[one]
        seen += end - start
        for at in range(start, end):
            below = children[at]
            left[below] -= 1
            if not left[below]:
                ready.append(below)
    return seen < len(pairs)


def _linked_in_turn(nodes: Numbers, owner: Numbers, size: int, count: int) -> Numbers:
    """The parents, made link by link as the RFC has it: for messages whose references contradict each other."""
    parents = [NONE] * size
    is_above = bytearray(size)              # who has been made a parent: no other can be above anybody
    steps = STEPS

    def link(parent: int, child: int) -> None:
        nonlocal steps
        one = parent if is_above[child] or parent == child else NONE
        while one != NONE and one != child and steps:
            one = parents[one]
            steps -= 1
        if one == NONE:
            parents[child] = parent
            is_above[parent] = 1

    of: dict[int, list[int]] = defaultdict(list)
    for one, node in zip(owner.tolist(), nodes.tolist(), strict=True):
        of[one].append(node)
    # One without references has a turn too (1.B): it loses the parent that another's references gave it.
    for one in range(count):
        refers = of.get(one, [])
        for parent, child in zip(refers, refers[1:], strict=False):
            if parents[child] == NONE:
                link(parent, child)
        parents[one] = NONE
        if refers:
            link(refers[-1], one)
    return np.array(parents, np.int64)


# Steps 2 and 3: roots, and no dummies but those that hold several threads together

def _pruned(parents: Numbers, count: int) -> Numbers:
    """The parent of each message: a message, or a dummy at the top with several children, or none."""
    size = len(parents)
    top = np.arange(size)
    dummies = np.arange(count, size)
    above = parents[dummies]
    top[dummies] = np.where(above >= count, above, dummies)
    while True:                             # each round doubles how far up everybody looks
        further = top[top[dummies]]
        if np.array_equal(further, top[dummies]):
            break
        top[dummies] = further
    own = parents[:count].copy()
    under = np.flatnonzero(own >= count)
    highest = top[own[under]]
    own[under] = np.where(parents[highest] == NONE, highest, parents[highest])
    held = np.bincount(own[own >= count], minlength=size)
    alone = own >= count
    alone[alone] = held[own[alone]] < 2
    own[alone] = NONE
    return np.append(own, np.full(size - count, NONE))


class _Forest:
    """Steps 4 to 6. `times` of dummies become those of their first children."""

    def __init__(self, parents: Numbers, times: Numbers, count: int) -> None:
        self.parents = parents
        self.times = times
        self.count = count
        self.place = np.arange(len(parents))        # ties go by the order in the mailbox, a dummy's by its first child
        self._sort()

    def _sort(self) -> None:
        """Sort the children of each by sent date; dummies get the date of their first."""
        below = np.flatnonzero(self.parents != NONE)
        order = below[np.lexsort((below, self.times[below], self.parents[below]))]
        above = self.parents[order]
        starts = np.flatnonzero(np.append(True, above[1:] != above[:-1])) if len(order) else order
        heads, firsts = above[starts], order[starts]
        held = heads >= self.count
        self.times[heads[held]] = self.times[firsts[held]]
        self.place[heads[held]] = firsts[held]
        self._heads, self._order, self._bounds = heads, order, np.append(starts, len(order))

    def _children(self, which: Mask) -> dict[int, list[int]]:
        """The children of these of `heads`, in their order."""
        everybody: list[int] = self._order.tolist()
        starts, ends = self._bounds[:-1][which].tolist(), self._bounds[1:][which].tolist()
        return {head: everybody[start:end]
                for head, start, end in zip(self._heads[which].tolist(), starts, ends, strict=True)}

    def _roots(self) -> Numbers:
        """The top of all threads, by sent date."""
        is_root = self.parents == NONE
        is_root[self.count:] = False
        roots = np.append(np.flatnonzero(is_root), self._heads[self._heads >= self.count])
        return roots[np.lexsort((self.place[roots], self.times[roots]))]

    def gathered(self, bases: Numbers, is_reply: Mask) -> Threads:
        """Step 5, gather threads of one subject, and step 6, sort again."""
        roots = self._roots()
        subjects = bases[self.place[roots]]         # of a dummy that of its first child
        common = np.bincount(subjects, minlength=1)
        common[0] = 0                               # the empty subject
        several = common[subjects] > 1
        if several.any():
            self._gather(roots[several].tolist(), subjects[several].tolist(), is_reply)
            self._sort()
            roots = self._roots()
        return Threads(self.count, roots.tolist(), self._children(np.ones(len(self._heads), np.bool_)))

    def _gather(self, roots: list[int], subjects: list[int], is_reply: Mask) -> None:
        count, parents = self.count, self.parents.tolist()
        of_dummies = self._children(self._heads >= count)
        table: dict[int, int] = {}
        for one, subject in zip(roots, subjects, strict=True):
            kept = table.get(subject)
            if kept is None or (kept < count and (one >= count or (is_reply[kept] and not is_reply[one]))):
                table[subject] = one
        for one, subject in zip(roots, subjects, strict=True):
            kept = table[subject]
            if kept == one:
                continue
            if kept >= count and one >= count:
                for child in of_dummies[one]:
                    parents[child] = kept
            elif kept >= count or (one < count and is_reply[one] and not is_reply[kept]):
                parents[one] = kept
            else:
                table[subject] = parents[one] = parents[kept] = len(parents)
                parents.append(NONE)
        new = len(parents) - len(self.parents)
        self.parents = np.array(parents, np.int64)
        self.times = np.append(self.times, np.zeros(new, np.int64))
        self.place = np.append(self.place, np.zeros(new, np.int64))
