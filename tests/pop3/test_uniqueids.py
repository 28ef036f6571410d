"""Unique-ids from templates (RFC 1939 §7)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pop3.settings import Settings
from pop3.uniqueids import LIMIT, UniqueIds, parse
from store.tables.uidls import is_legal

VALIDITY, UID = 1234567890, 42          # 0x499602d2, 0x2a

# What other servers' unique-ids look like, from their own listings.
OTHERS = [
    ("%08Xv%08Xu", b"499602d20000002a"), ("%08Xu%08Xv", b"0000002a499602d2"), ("%v.%u", b"1234567890.42"),
    ("%u", b"42"), ("%v-%u", b"1234567890-42"), ("UID%u-%v", b"UID42-1234567890"), ("%Xu", b"2a"), ("%%%03u%%",
                                                                                                    b"%042%"),
    ("%010u%v", b"00000000421234567890"), ("%v%08Xu", b"12345678900000002a"), ("%u.%u", b"42.42"), ("!%u~", b"!42~"),
]


@pytest.mark.parametrize(("template", "made"), OTHERS)
def test_templates(template, made):
    names = UniqueIds(parse(template), VALIDITY)
    assert names.of(UID) == made
    assert names.lines([(1, UID), (17, UID)]) == b"1 %b\r\n17 %b\r\n" % (made, made)
    assert Settings(uidl_format=template).uidl_format == template


@pytest.mark.parametrize(("template", "made"), [
    ("%08Xu%08Xv", b"000000016b02b302"), ("%v.%u", b"1795339010.1"), ("%v-%u", b"1795339010-1"), ("%Xu", b"1"),
    ("UID%u-%v", b"UID1-1795339010"), ("%08Xv%08Xu", b"6b02b30200000001"),
])
def test_templates_mean_what_they_mean_to_dovecot(template, made):
    """As Dovecot 2.3.19 answered UIDL for UID 1 in a mailbox with the UIDVALIDITY 1795339010."""
    assert UniqueIds(parse(template), 1795339010).of(1) == made


@pytest.mark.parametrize("template", [
    "", "%v", "x", "%", "%u%", "%8u", "%0u", "%08", "%xu", "%Uu", "%f", "%g", "%u %v", "%u\t", "%uä", "%u\x7f", "%u%v",
    "%u%u", "%07Xu%v", "%09v%u", "%071u", "%u" + "x" * 61, "%%u"])
def test_what_makes_no_unique_ids_is_refused(template):
    with pytest.raises(ValueError):
        Settings(uidl_format=template)


@given(st.text("%uvX0189.-", max_size=12), st.integers(1, 2**32 - 1), st.lists(st.integers(1, 2**32 - 1), max_size=9))
def test_what_is_accepted_makes_legal_ones_and_a_different_one_for_each_uid(template, validity, uids):
    try:
        form = parse(template)
    except ValueError:
        return
    names = UniqueIds(form, validity)
    made = {uid: names.of(uid) for uid in uids}
    assert all(map(is_legal, made.values()))
    assert len(set(made.values())) == len(made)


owned = st.dictionaries(st.integers(1, 9), st.sampled_from([b"1", b"2", b"2+", b"2++", b"x" * 70, b"9"]), max_size=6
                        ).filter(lambda own: len(set(own.values())) == len(own))


@given(owned)
def test_those_that_were_brought_along_are_kept_and_nobody_else_gets_them(own):
    names = UniqueIds(parse("%u"), 1, own)
    lines = names.lines([(number, number) for number in range(1, 10)]).split(b"\r\n")[:-1]
    made = dict(line.split() for line in lines)
    assert len(made) == 9 and len(set(made.values())) == 9
    for uid in range(1, 10):
        assert made[b"%d" % uid] == names.of(uid) == own.get(uid, names.of(uid))
        if uid not in own:
            assert re.fullmatch(rb"%d\+*" % uid, names.of(uid))


def test_legal_ones():
    assert is_legal(b"!" * LIMIT) and is_legal(b"~")
    for wrong in (b"", b"x" * 71, b" ", b"a b", b"\x7f", b"\xe4", b"a\n"):
        assert not is_legal(wrong)
