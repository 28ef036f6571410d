"""Second factors as values: codes by time, each once, and recovery codes."""

from base64 import b32encode

import pytest

from store.accounts.apppasswords import recoverycodes, totp
from store.accounts.apppasswords.accessrecord import Access

SECRET = b32encode(b"12345678901234567890").decode()        # RFC 6238 appendix B, for SHA-1


@pytest.mark.parametrize(("now", "code"), [(59, "287082"), (1111111109, "081804"), (1111111111, "050471"),
                                           (1234567890, "005924"), (2000000000, "279037"), (20000000000, "353130")])
def test_the_codes_of_the_rfc(now, code):
    """Appendix B has eight digits, of which apps show the last six."""
    assert totp.step_of(SECRET, code, now) == now // 30
    assert totp.step_of(SECRET, f" {code[:3]} {code[3:]} ", now) == now // 30


def test_clocks_may_differ_by_one_step():
    assert totp.step_of(SECRET, "287082", 59 + 30) == totp.step_of(SECRET, "287082", 59 - 30) == 1
    assert totp.step_of(SECRET, "287082", 59 + 60) is None and totp.step_of(SECRET, "287082", -30) is None


def test_a_code_is_taken_once_and_none_before_it():
    access = totp.enrolled(Access("alice"), SECRET, "287082", 59)
    assert access is not None and totp.taken(access, "287082", 59) is None
    before = totp.pyotp.TOTP(SECRET).generate_otp(0)
    assert totp.taken(access, before, 59) is None
    after = totp.taken(access, totp.pyotp.TOTP(SECRET).generate_otp(2), 60)
    assert after is not None and after.totp.last == 2


@pytest.mark.parametrize("text", ["", "28708", "2870820", "28708x", "２８７０８２", "\0", "a" * 10_000])
def test_what_is_no_code(text):
    assert totp.step_of(SECRET, text, 59) is None
    assert totp.enrolled(Access("alice"), SECRET, text, 59) is None


def test_a_secret_has_160_bits_and_is_read_by_apps():
    secret = totp.new_secret()
    assert len(secret) * 5 == 160 and totp.is_secret(secret) and totp.new_secret() != secret
    assert totp.address_of(secret, "alice@example.org", "onecopy").startswith(
        f"otpauth://totp/onecopy:alice%40example.org?secret={secret}")


def test_recovery_codes_open_once_each_and_only_digests_are_kept():
    access, codes = recoverycodes.renewed(Access("alice"))
    assert len(set(codes)) == 10 and not any(code.replace("-", "") in access.to_bytes().decode() for code in codes)
    for left, code in zip(range(9, -1, -1), codes, strict=True):
        after = recoverycodes.taken(access, code.upper().replace("-", " "))
        assert after is not None and len(after.recovery) == left
        assert recoverycodes.taken(after, code) is None
        access = after
    for junk in ("", "x", "0" * 16, "\ud800", "a" * 100_000):
        assert recoverycodes.taken(access, junk) is None
    renewed, _ = recoverycodes.renewed(recoverycodes.renewed(Access("alice"))[0])
    assert recoverycodes.taken(renewed, codes[0]) is None
