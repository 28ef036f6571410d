"""Header fields: RFC 5322, 2045, 2231, 3282."""

from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.message import headers
from store.message.headers import GROUP_END, Address


def person(name, mailbox, host, route=None):
    return Address(name, route, mailbox, host)


def group(name):
    return Address(None, None, name, None)


ADDRESSES = [
    # RFC 5322 appendix A.1.1 to A.1.3, A.5, A.6.1
    (b"John Doe <jdoe@machine.example>", [person(b"John Doe", b"jdoe", b"machine.example")]),
    (b'"Joe Q. Public" <john.q.public@example.com>', [person(b"Joe Q. Public", b"john.q.public", b"example.com")]),
    (b"Joe Q. Public <john.q.public@example.com>", [person(b"Joe Q. Public", b"john.q.public", b"example.com")]),
    (b"Mary Smith <mary@x.test>, jdoe@example.org, Who? <one@y.test>",
     [person(b"Mary Smith", b"mary", b"x.test"), person(None, b"jdoe", b"example.org"),
      person(b"Who?", b"one", b"y.test")]),
    (b'<boss@nil.test>, "Giant; \\"Big\\" Box" <sysservices@example.net>',
     [person(None, b"boss", b"nil.test"), person(b'Giant; "Big" Box', b"sysservices", b"example.net")]),
    (b"A Group:Ed Jones <c@a.test>,joe@where.test,John <jdoe@one.test>;",
     [group(b"A Group"), person(b"Ed Jones", b"c", b"a.test"), person(None, b"joe", b"where.test"),
      person(b"John", b"jdoe", b"one.test"), GROUP_END]),
    (b"Undisclosed recipients:;", [group(b"Undisclosed recipients"), GROUP_END]),
    (b"Pete(A nice \\) chap) <pete(his account)@silly.test(his host)>",
     [person(b"Pete", b"pete", b"silly.test")]),
    (b"A Group(Some people):Chris Jones <c@(Chris's host.)public.example>, joe@example.org, John <jdoe@one.test>"
     b" (my dear friend); (the end of the group)",
     [group(b"A Group"), person(b"Chris Jones", b"c", b"public.example"), person(None, b"joe", b"example.org"),
      person(b"John", b"jdoe", b"one.test"), GROUP_END]),
    (b"Mary Smith <@node.test,@two.test:mary@example.net>, , jdoe@test  . example",
     [person(b"Mary Smith", b"mary", b"example.net", b"@node.test,@two.test"),
      person(None, b"jdoe", b"test.example")]),
    # RFC 822 left the name in a comment
    (b"jdoe@example.org (John (the) Doe)", [person(b"John (the) Doe", b"jdoe", b"example.org")]),
    (b'"john doe"@example.org', [person(None, b"john doe", b"example.org")]),
    (b"x@[192.0.2.1]", [person(None, b"x", b"[192.0.2.1]")]),
    (b"=?utf-8?Q?J=C3=BCrgen?= <j@example.org>", [person(b"=?utf-8?Q?J=C3=BCrgen?=", b"j", b"example.org")]),
    # broken: a host that is missing is empty, never NIL, which would make it group syntax
    (b"postmaster", [person(None, b"postmaster", b"")]),
    (b"Name <jdoe@example.org", [person(b"Name", b"jdoe", b"example.org")]),
    (b"a@b.test <c@d.test>", [person(b"a@b.test", b"c", b"d.test")]),
    (b"<>", []),
    (b",, ,", []),
    (b'"open <a@b.test>', [person(None, b"open <a@b.test>", b"")]),
    (b"friends: a@b.test", [group(b"friends"), person(None, b"a", b"b.test"), GROUP_END]),
    (b"one:a@b.test;, two:;", [group(b"one"), person(None, b"a", b"b.test"), GROUP_END, group(b"two"), GROUP_END]),
    (b"", []),
]


@pytest.mark.parametrize(("value", "expected"), ADDRESSES)
def test_address_lists(value, expected):
    assert headers.addresses(value) == expected


@settings(deadline=None)
@given(st.lists(st.sampled_from([value for value, _ in ADDRESSES[:8]]), max_size=5))
def test_a_list_is_the_sum_of_its_addresses(values):
    expected = [address for value in values for address in headers.addresses(value)]
    assert headers.addresses(b" , ".join(values)) == expected


def test_addresses_have_a_limit():
    assert len(headers.addresses(b"a@b.test," * 2 * headers.ADDRESSES)) == headers.ADDRESSES
    assert len(headers.addresses(b"(c) a@b.test," * 2 * headers.ADDRESSES)) == headers.ADDRESSES


@pytest.mark.parametrize("before", [0, 1, headers.ADDRESSES - 2, headers.ADDRESSES - 1, headers.ADDRESSES])
def test_a_group_that_the_limit_cuts_is_ended(before):
    """RFC 3501 §7.4.2: a group begins with one address structure and ends with another."""
    found = headers.addresses(b"a@b.test," * before + b"group:" + b"a@b.test," * headers.ADDRESSES)
    edges = [one for one in found if one.host is None]
    assert edges in ([headers.Address(None, None, b"group", None), headers.GROUP_END], [])
    assert len(found) <= headers.ADDRESSES + 1


@pytest.mark.parametrize(("value", "kind", "params"), [
    (b"text/plain; charset=us-ascii (Plain text)", (b"TEXT", b"PLAIN"), [(b"CHARSET", b"us-ascii")]),   # RFC 2045 §5.1
    (b'text/plain; charset="us-ascii"', (b"TEXT", b"PLAIN"), [(b"CHARSET", b"us-ascii")]),
    (b'multipart/mixed;boundary="a;b=\\"c"; x=1', (b"MULTIPART", b"MIXED"), [(b"BOUNDARY", b'a;b="c'), (b"X", b"1")]),
    (b"Text / HTML ;; ;charset = utf-8 ; foo; bar=2;", (b"TEXT", b"HTML"), [(b"CHARSET", b"utf-8"), (b"BAR", b"2")]),
    (b'image/png; name="open', (b"IMAGE", b"PNG"), [(b"NAME", b"open")]),
    (b"multipart/mixed; boundary=a=b/c?d", (b"MULTIPART", b"MIXED"), [(b"BOUNDARY", b"a=b/c?d")]),
    (b'(com"ment) text/x (b);(c) a(d)=(e)"(kept)"', (b"TEXT", b"X"), [(b"A", b"(kept)")]),
    (b"text", None, []),
    (b"", None, []),
    (b"/plain; a=b", None, [(b"A", b"b")]),
])
def test_content_type(value, kind, params):
    assert headers.content_type(value) == kind
    assert list(headers.parameters(value)) == params


@pytest.mark.parametrize(("value", "expected"), [
    # RFC 2231 §3, §4, §4.1
    (b'm/x; name*0="ftp://"; name*1="cs.utk.edu/x"', b"ftp://cs.utk.edu/x"),
    (b"a/x; name*=us-ascii'en-us'This%20is%20%2A%2A%2Afun%2A%2A%2A", b"This is ***fun***"),
    (b"a/x; name*0*=us-ascii'en'This%20is%20even%20more%20; name*1*=%2A%2A%2Afun%2A%2A%2A%20; name*2=\"isn't it!\"",
     b"This is even more ***fun*** isn't it!"),
    (b"a/x; name*1=b; name*0=a; name*3=d", b"ab"),
    (b"a/x; name*x=b", None),
    (b"a/x; other=b", None),
    (b"a/x; name*0=a; name=plain", b"plain"),
])
def test_parameter_continuations(value, expected):
    assert headers.parameter(headers.parameters(value), b"NAME") == expected


@pytest.mark.parametrize(("value", "expected"), [
    # RFC 2231 §3 and §4.1, whose examples these are
    (b'message/external-body; access-type=URL; URL*0="ftp://"; URL*1="cs.utk.edu/pub/moore/bulk-mailer.tar"',
     [(b"ACCESS-TYPE", b"URL"), (b"URL", b"ftp://cs.utk.edu/pub/moore/bulk-mailer.tar")]),
    (b"application/x-stuff; title*0*=us-ascii'en'This%20is%20even%20more%20; title*1*=%2A%2A%2Afun%2A%2A%2A%20; "
     b'title*2="isn\'t it!"',
     [(b"TITLE*", b"us-ascii'en'This%20is%20even%20more%20%2A%2A%2Afun%2A%2A%2A%20isn%27t%20it!")]),
    # in any order, and where the first one stands
    (b"a/b; x*1=two; y=z; x*0=one", [(b"Y", b"z"), (b"X", b"onetwo")]),
    # one that is encoded by itself stays as it is; so does what lacks its beginning, and what follows a gap
    (b"a/b; x*=utf-8''%C3%A4", [(b"X*", b"utf-8''%C3%A4")]),
    (b"a/b; x*1=two", [(b"X*1", b"two")]),
    (b"a/b; x*0=one; x*2=three", [(b"X", b"one"), (b"X*2", b"three")]),
    # the same name twice: the first counts
    (b"a/b; x=1; x*0=2; x*1=3", [(b"X", b"1")]),
    (b"a/b; x*01=1; x**=2; x*0=3; x*0=4", [(b"X*01", b"1"), (b"X**", b"2"), (b"X", b"3")]),
    # a first piece in the clear
    (b'a/b; x*0="a b%"; x*1*=%20c', [(b"X*", b"''a%20b%25%20c")]),
])
def test_continuations_are_put_together(value, expected):
    assert list(headers.joined(headers.parameters(value))) == expected


def test_parameters_have_a_limit():
    assert len(headers.parameters(b"a/b" + b"; c=d" * 1000)) == headers.PARAMETERS


HEADER = (b"Subject: one\r\n two\r\n\tthree\r\nsubject: later\r\nTo: a@b.test\nTO : c@d.test\r\nTo:\r\n"
          b"no colon\r\nX-Other: x\r\nCc:\r\n\r\n")


def test_fields_are_unfolded_and_the_first_counts_but_address_lists_add_up():
    assert headers.select(HEADER, frozenset((b"subject", b"to", b"cc")), {b"to"}) == {
        b"subject": b"one two\tthree", b"to": b"a@b.test, c@d.test", b"cc": b""}


def test_every_field_of_a_name():
    assert headers.every(HEADER, b"subject") == [b"one two\tthree", b"later"]
    assert headers.every(HEADER, b"no colon") == []


@pytest.mark.parametrize(("value", "expected"), [
    (b"Fri, 21 Nov 1997 09:55:06 -0600", date(1997, 11, 21)),              # RFC 5322 A.1.1
    (b"21 Nov 97 09:55:06 GMT", date(1997, 11, 21)),                       # A.6.2
    (b"Thu,\t13\tFeb 1969 23:32 -0330 (Newfoundland Time)", date(1969, 2, 13)),
    (b"1 jan 49 00:00 Z", date(2049, 1, 1)),
    (b"1 Jan 103 00:00 Z", date(2003, 1, 1)),
    (b"(comment) 3 Mar 2026 00:00:00 +0000", date(2026, 3, 3)),
    (b"31 Feb 2026 00:00:00 +0000", None),
    (b"1 Foo 2026", None),
    (b"yesterday", None),
    (b"", None),
])
def test_the_day_of_a_date_field(value, expected):
    found = headers.sent(value)
    assert (found and date(1970, 1, 1) + timedelta(found[0])) == expected


def test_languages_and_tokens():
    assert headers.languages(b"en, de (German) ,,fr") == (b"en", b"de", b"fr")
    assert headers.token(b" (x) Base64 (y)") == b"BASE64"
    assert headers.token(b";") == b""


PIECES = st.lists(st.sampled_from([b"a", b"@", b"<", b">", b",", b";", b":", b'"', b"\\", b"(", b")", b"[", b"]", b".",
                                   b" ", b"=", b"*", b"/", b"\xff", b"\0", b"\r", b"text/plain", b"a@b"]), max_size=30)


@settings(deadline=None)
@given(PIECES.map(b"".join))
def test_junk_is_read_without_complaint(value):
    for address in headers.addresses(value):
        assert address.mailbox is not None or address == GROUP_END
    headers.parameter(headers.parameters(value), b"A")
    headers.content_type(value)
    headers.sent(value)
    headers.languages(value)
    assert b"(" not in headers.without_comments(value) or b'"' in value or b"\\" in value
