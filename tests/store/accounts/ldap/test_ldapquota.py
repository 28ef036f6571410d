"""Limits as Sun's directories write them: mailQuota, mailMsgQuota."""

import pytest

from store.accounts.ldap.ldapquota import BadQuota, parse_composite, parse_limit
from store.settings import Settings
from store.tables.quotatable import DEFAULT, UNLIMITED, QuotaUse


@pytest.mark.parametrize(("text", "octets"), [
    ("-1", UNLIMITED), ("-2", DEFAULT), ("0", 0), ("1", 1), ("1048576", 1048576), ("50M", 52428800), ("50m", 52428800),
    ("3K", 3072), ("2G", 2147483648), ("4096G", 4398046511104), (" 7 ", 7), ("0M", 0),
])
def test_octets(text, octets):
    assert parse_limit(text) == octets


@pytest.mark.parametrize("text", [
    "", " ", "-", "-3", "-0", "+5", "5T", "5 M", "5MB", "1.5G", "1e9", "0x10", "unlimited", "4097G", "4398046511105",
    "９", "50M;Archive%200M", "1" * 19, "5M\n6M", "5,5", "NaN", "-1M",
])
def test_no_octets(text):
    with pytest.raises(BadQuota):
        parse_limit(text)


def test_messages_have_no_units():
    assert parse_limit("1000", messages=True) == 1000
    assert parse_limit("-1", messages=True) == UNLIMITED
    for text in ("1K", "2147483648", "1M"):
        with pytest.raises(BadQuota):
            parse_limit(text, messages=True)


def test_nothing_is_delivered_under_a_limit_of_zero():
    """0 is a limit in `quota.db`; only in the setting of the default it is none."""
    use = QuotaUse(octet_limit=parse_limit("0"), message_limit=UNLIMITED)
    assert not use.has_room(1, 1, Settings(default_quota=0))
    assert QuotaUse(octet_limit=parse_limit("-1"), message_limit=UNLIMITED).has_room(1 << 50, 1, Settings())
    assert not QuotaUse(octet_limit=parse_limit("-2")).has_room(11, 1, Settings(default_quota=10))


@pytest.mark.parametrize(("text", "own", "parts", "types"), [
    ("50M;#voice%5M;Archive%200M", 52428800, {"Archive": 209715200}, ["#voice"]),      # the example of the manual
    ("50M", 52428800, {}, []),
    ("-1;Archive/2026%-1;Trash%0", UNLIMITED, {"Archive/2026": UNLIMITED, "Trash": 0}, []),
    ("-2; Archive%10K ", DEFAULT, {"Archive": 10240}, []),
    ("1G;My%20Mail%5M", 1 << 30, {"My Mail": 5242880}, []),
    ("1G;Archive%-2", 1 << 30, {"Archive": UNLIMITED}, []),     # a mailbox has no default: no limit of its own
    ("1G;inbox%5", 1 << 30, {"INBOX": 5}, []),
])
def test_composite(text, own, parts, types):
    assert parse_composite(text) == (own, parts, types)


@pytest.mark.parametrize("text", [
    ";Archive%5M",
    "5M;", "5M;Archive", "5M;%5M", "5M;Archive%", "5M;Archive%x", "5M;a%1M;a%2M", "5M;a//b%1M", "5M;..%1M",
    "5M;#voice%x", "Archive%200M", "5M;%FF%5M", "5M" + ";a%1M" * 101, "5M;a%00b%5M",
])
def test_no_composite(text):
    with pytest.raises(BadQuota):
        parse_composite(text)
