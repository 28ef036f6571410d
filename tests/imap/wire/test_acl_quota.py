"""The commands and responses of RFC 4314 §7 and RFC 9208 §7, as octets and as values."""

import pytest

from imap.wire.accesscontrol import (
    DeleteAcl,
    GetAcl,
    ListRights,
    MyRights,
    SetAcl,
    format_acl,
    format_listrights,
    format_myrights,
)
from imap.wire.commands import BadCommand, parse_command
from imap.wire.framer import Frame
from imap.wire.quotaroots import GetQuota, GetQuotaRoot, SetQuota, format_quota, format_quotaroot


@pytest.mark.parametrize("parts, value", [
    ((b"a SeTacl INBOX/Drafts David lrswida",), SetAcl("INBOX/Drafts", "David", "lrswida")),
    ((b"a SETACL INBOX/Drafts Chris +cda",), SetAcl("INBOX/Drafts", "Chris", "+cda")),
    ((b'a SETACL x -Fred ""',), SetAcl("x", "-Fred", "")),
    ((b"a SETACL x anyone -",), SetAcl("x", "anyone", "-")),
    ((b"a SETACL x {5}", "jörg".encode(), b" lr"), SetAcl("x", "jörg", "lr")),
    ((b"a DeleteAcl INBOX Fred",), DeleteAcl("INBOX", "Fred")),
    ((b"a getacl &AOk-",), GetAcl("é")),
    ((b"a LISTRIGHTS ~/Mail/saved smith",), ListRights("~/Mail/saved", "smith")),
    ((b"a MYRIGHTS INBOX",), MyRights("INBOX")),
    ((b'a GETQUOTA "!partition/sda4"',), GetQuota("!partition/sda4")),
    ((b'a GETQUOTA ""',), GetQuota("")),
    ((b"a GETQUOTAROOT INBOX",), GetQuotaRoot("INBOX")),
    ((b'a SETQUOTA "#user/alice" (STORAGE 510 message 9223372036854775807)',),
     SetQuota("#user/alice", ((b"STORAGE", 510), (b"MESSAGE", 9223372036854775807)))),
    ((b"a SETQUOTA x ()",), SetQuota("x", ())),
])
def test_commands(parts, value):
    assert parse_command(Frame(parts)) == (b"a", value)


@pytest.mark.parametrize("line", [
    b"SETACL", b"SETACL x", b"SETACL x y", b"SETACL x y lr z", b"SETACL x  lr", b'SETACL x "" lr', b"SETACL x - lr",
    b"SETACL x --y lr", b'SETACL x "a b" lr', b"DELETEACL x", b"DELETEACL x y z", b'DELETEACL x ""', b"GETACL",
    b"GETACL x y", b"LISTRIGHTS x", b"LISTRIGHTS x y z", b"LISTRIGHTS x -", b"MYRIGHTS", b"MYRIGHTS x y",
    b"SETACL INBOX/Drafts John lrQswicda", b"SETACL INBOX/Drafts John lrqswicda",       # RFC 4314 §3.1
    b"SETACL x y +q", b"SETACL x y -0", b"SETACL x y +-l", b"SETACL x y l+",
    b"GETQUOTA", b"GETQUOTA x y", b"GETQUOTAROOT", b"GETQUOTAROOT x y", b"SETQUOTA x", b"SETQUOTA x STORAGE 1",
    b"SETQUOTA x (STORAGE)", b"SETQUOTA x (STORAGE -1)", b"SETQUOTA x (STORAGE 1 MESSAGE)", b"SETQUOTA x (STORAGE 1",
    b"SETQUOTA x ( STORAGE)", b"SETQUOTA x (STORAGE 9223372036854775808)", b"SETQUOTA x (STORAGE 1)x",
    b"SETQUOTA x (" + b" ".join([b"A 1"] * 17) + b")"])
def test_bad_syntax(line):
    with pytest.raises(BadCommand) as refused:
        parse_command(Frame((b"tag " + line,)))
    assert refused.value.tag == b"tag" and refused.value.problem.status == b"BAD"
    assert refused.value.problem.public.isascii()


def test_an_identifier_that_is_not_utf8_is_bad():
    with pytest.raises(BadCommand):
        parse_command(Frame((b"a SETACL x {1}", b"\xff", b" lr")))


@pytest.mark.parametrize("octets, expected", [
    # RFC 4314 §2.1.1: c beside k or x, d beside t or e
    (format_myrights("INBOX", "lr"), b"* MYRIGHTS INBOX lr\r\n"),
    (format_myrights("INBOX", "lrk"), b"* MYRIGHTS INBOX lrkc\r\n"),
    (format_myrights("INBOX", "lrx"), b"* MYRIGHTS INBOX lrxc\r\n"),
    (format_myrights("a b", "te"), b'* MYRIGHTS "a b" ted\r\n'),
    (format_myrights("INBOX", ""), b'* MYRIGHTS INBOX ""\r\n'),
    (format_acl("INBOX", [("Fred", "lrswi"), ("-Fred", "wet"), ("anyone", "lk")]),
     b"* ACL INBOX Fred lrswi -Fred wetd anyone lkc\r\n"),
    (format_acl("x", []), b"* ACL x\r\n"),
    (format_acl("x", [("jörg", "l"), ('a"b', "l"), ("nil", "l")]),
     '* ACL x {5}\r\njörg l "a\\"b" l "nil" l\r\n'.encode()),
    (format_listrights("archive/imap", "anyone", "", "lrswipkxtea"),
     b'* LISTRIGHTS archive/imap anyone "" l r s w i p k x t e a c d\r\n'),
    (format_listrights("x", "smith", "la", "rk"), b"* LISTRIGHTS x smith la r k c\r\n"),
    (format_quota("", [(b"STORAGE", 10, 512)]), b'* QUOTA "" (STORAGE 10 512)\r\n'),
    (format_quota("#user/alice", [(b"STORAGE", 54, 111), (b"MESSAGE", 42, 1000)]),
     b"* QUOTA #user/alice (STORAGE 54 111 MESSAGE 42 1000)\r\n"),
    (format_quota("x y", []), b'* QUOTA "x y" ()\r\n'),
    (format_quotaroot("INBOX", ["#user/alice", "a(b"]), b'* QUOTAROOT INBOX #user/alice "a(b"\r\n'),
    (format_quotaroot("comp.mail.mime", []), b"* QUOTAROOT comp.mail.mime\r\n"),
])
def test_responses(octets, expected):
    assert octets == expected
