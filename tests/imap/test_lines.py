"""Lines about many messages at once are the same as those about one (RFC 3501 §7.4.2, §9)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from imap.lines import DATE_FORM, dates, expunged, flag_lists, format_lines
from imap.wire.flags import format_flags
from store.tables.index import ROW, joined, put, take
from tests.support.grammar.dates import format_date_time

KEYWORDS = tuple(f"k{number}" for number in range(64))


@given(st.lists(st.tuples(st.integers(0, 31), st.integers(0, 2 ** 64 - 1), st.booleans()), max_size=40))
def test_flags_are_rendered_as_one_by_one(messages):
    rows = np.zeros(len(messages), ROW)
    rows["flags"] = [flags for flags, _, _ in messages]
    rows["keywords"] = [bits for _, bits, _ in messages]
    recent = np.array([recent for _, _, recent in messages], np.bool_)
    assert flag_lists(rows, recent, KEYWORDS) == [
        format_flags(flags, tuple(name for at, name in enumerate(KEYWORDS) if bits >> at & 1), is_recent)
        for flags, bits, is_recent in messages]


@given(st.lists(st.tuples(st.integers(-2 ** 31, 2 ** 34), st.integers(-24 * 60, 24 * 60)), min_size=1, max_size=40))
def test_dates_are_rendered_as_one_by_one(messages):
    rows = np.zeros(len(messages), ROW)
    rows["received"] = [seconds for seconds, _ in messages]
    rows["zone"] = [zone for _, zone in messages]
    assert format_lines(DATE_FORM + b"\n", dates(rows)).splitlines() == [format_date_time(*one) for one in messages]


def test_a_form_is_filled_for_each_message():
    assert format_lines(b"* %d X %b\r\n", ([1, 2], [b"a", b"50%"])) == b"* 1 X a\r\n* 2 X 50%\r\n"
    assert expunged(np.array([0, 4], np.intp)) == b"* 5 EXPUNGE\r\n* 1 EXPUNGE\r\n"


def test_records_are_taken_and_put():
    rows = np.zeros(5, ROW)
    rows["uid"] = [1, 2, 3, 4, 5]
    assert take(rows, np.array([4, 0]))["uid"].tolist() == [5, 1]
    both = joined(rows[:2], rows[4:])
    assert both["uid"].tolist() == [1, 2, 5]
    put(both, np.array([1]), rows[3:4])
    assert both["uid"].tolist() == [1, 4, 5]
    assert rows["uid"].tolist() == [1, 2, 3, 4, 5]
