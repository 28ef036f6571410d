"""date and date-time, both ways: RFC 3501 §9."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imap.wire.dates import date, date_time
from imap.wire.framer import Frame
from imap.wire.grammar import SyntaxProblem
from imap.wire.scanner import Scanner
from store.values import InternalDate
from tests.support.grammar.dates import format_date, format_date_time


def scan(octets):
    return Scanner(Frame((octets,)))


@pytest.mark.parametrize("octets, value", [
    (b'"17-Jul-1996 02:44:25 -0700"', InternalDate(837596665, -420)),       # RFC 3501 §7.4.2
    (b'" 1-Jan-1970 00:00:00 +0000"', InternalDate(0, 0)),
    (b'"31-Dec-1969 23:59:59 +0000"', InternalDate(-1, 0)),
    (b'"29-Feb-2024 12:00:00 +0545"', InternalDate(1709187300, 345)),
])
def test_a_time_is_read_and_written(octets, value):
    assert date_time(scan(octets)) == value
    assert format_date_time(value.seconds, value.zone) == octets


@pytest.mark.parametrize("octets", [b'"1-jan-1970 00:00:00 -0000"', b'"01-JAN-1970 00:00:00 +0000"'])
def test_other_ways_to_write_a_time(octets):
    assert date_time(scan(octets)) == InternalDate(0, 0)


@pytest.mark.parametrize("octets", [
    b"", b"NIL", b'"1-Jan-1970"', b'" 1-Jan-1970 00:00:00"', b'" 1-Jan-1970 24:00:00 +0000"',
    b'" 1-Jan-1970 00:60:00 +0000"', b'" 1-Jan-1970 00:00:61 +0000"', b'" 1-Jan-1970 00:00:00 +0060"',
    b'"30-Feb-2024 00:00:00 +0000"', b'" 0-Jan-1970 00:00:00 +0000"', b'" 1-Foo-1970 00:00:00 +0000"',
    b'" 1-Jan-0000 00:00:00 +0000"', b'" 1-Jan-1970 00:00:00 +0000', b' 1-Jan-1970 00:00:00 +0000',
    b'" 1-Jan-1970 00:00:00 GMT"', b'" 1-Jan-70 00:00:00 +0000"', b'"  1-Jan-1970 00:00:00 +0000"'])
def test_what_is_no_time_is_refused(octets):
    with pytest.raises(SyntaxProblem):
        date_time(scan(octets))


@given(st.integers(-62000000000, 253000000000), st.integers(-1439, 1439))
def test_any_time_comes_back(seconds, zone):
    assert date_time(scan(format_date_time(seconds, zone))) == InternalDate(seconds, zone)


@given(st.integers(), st.integers(-1439, 1439))
def test_a_time_that_no_year_can_hold_is_still_a_time(seconds, zone):
    assert len(format_date_time(seconds, zone)) == 28
    date_time(scan(format_date_time(seconds, zone)))


@pytest.mark.parametrize("octets, day", [
    (b"1-Feb-1994", datetime.date(1994, 2, 1)), (b'"1-Feb-1994"', datetime.date(1994, 2, 1)),
    (b"01-feb-1994", datetime.date(1994, 2, 1)), (b"31-DEC-9999", datetime.date(9999, 12, 31))])
def test_a_date_is_read(octets, day):
    assert date(scan(octets)) == day


@pytest.mark.parametrize("octets", [b"", b"1-Feb", b"30-Feb-1994", b'"1-Feb-1994', b'1-Feb-1994"', b"111-Feb-1994",
                                    b"1-Feb-94", b"1 Feb 1994", b"0-Feb-1994", b"1-Feb-0000"])
def test_what_is_no_date_is_refused(octets):
    with pytest.raises(SyntaxProblem):
        date(scan(octets))


@given(st.dates())
def test_any_date_comes_back(day):
    assert date(scan(format_date(day))) == day
