"""STORE UNCHANGEDSINCE: RFC 7162 §3.1.3, §3.1.11."""

import pytest

from store.mailboxes.flagchanges import Known, update_flags
from store.values import Flag, FlagAction, Flags

SEEN, FLAGGED = Flags(Flag.SEEN), Flags(Flag.FLAGGED)


@pytest.fixture
def box(place):
    place.have("Box", "one two three")
    return place.entry("Box")


def change(place, box, uids, action, flags, since=None, rows=None):
    known = None if since is None else Known(since, place.store.open_mailbox(box).rows if rows is None else rows)
    update = update_flags(place.store, box, uids, action, flags, known=known)
    return update.gone.tolist(), update.modified.tolist(), dict(zip(update.uids.tolist(), update.modseqs.tolist(),
                                                                    strict=True))


def test_what_was_changed_since_is_left_alone(place, box):
    assert change(place, box, [2], FlagAction.ADD, SEEN) == ([], [], {2: 5})
    assert change(place, box, [1, 2, 3, 9], FlagAction.REPLACE, FLAGGED, since=4) == ([9], [2], {1: 6, 3: 6})
    rows = place.store.open_mailbox(box).rows
    assert rows["flags"].tolist() == [Flag.FLAGGED, Flag.SEEN, Flag.FLAGGED]
    assert rows["modseq"].tolist() == [6, 5, 6]


def test_what_changes_nothing_has_the_modseq_that_it_had(place, box):
    assert change(place, box, [2], FlagAction.ADD, SEEN) == ([], [], {2: 5})
    assert change(place, box, [1, 2], FlagAction.ADD, SEEN) == ([], [], {1: 6, 2: 5})
    assert change(place, box, [1, 2], FlagAction.ADD, SEEN) == ([], [], {1: 6, 2: 5})
    assert place.store.status(box).highestmodseq == 6


def test_nothing_is_changed_when_all_fail(place, box):
    before = place.store.status(box)
    assert change(place, box, [1, 2, 3], FlagAction.ADD, Flags(keywords=("new",)), since=0) == ([], [1, 2, 3], {})
    after = place.store.status(box)
    assert (after.highestmodseq, after.keywords) == (before.highestmodseq, ())


@pytest.mark.parametrize(("theirs", "action", "fails"), [
    (FLAGGED, FlagAction.ADD, False), (FLAGGED, FlagAction.REMOVE, False), (FLAGGED, FlagAction.REPLACE, True),
    (SEEN, FlagAction.ADD, True), (SEEN, FlagAction.REMOVE, True),
    (Flags(keywords=("word",)), FlagAction.ADD, False),
])
def test_another_flag_does_not_make_it_fail(place, box, theirs, action, fails):
    rows = place.store.open_mailbox(box).rows
    change(place, box, [1], FlagAction.ADD, theirs)
    _, modified, done = change(place, box, [1], action, SEEN, since=4, rows=rows)
    assert (modified == [1], 1 in done) == (fails, not fails)


def test_what_the_client_knows_must_be_as_old_as_it_says(place, box):
    change(place, box, [1], FlagAction.ADD, FLAGGED)
    assert change(place, box, [1], FlagAction.ADD, SEEN, since=4)[1] == [1]


def test_keywords_count_too(place, box):
    word = Flags(keywords=("word",))
    rows = place.store.open_mailbox(box).rows
    change(place, box, [1], FlagAction.ADD, word)
    assert change(place, box, [1], FlagAction.REMOVE, word, since=4, rows=rows)[1] == [1]
    assert change(place, box, [1], FlagAction.REMOVE, Flags(keywords=("other",)), since=4, rows=rows)[1] == []
