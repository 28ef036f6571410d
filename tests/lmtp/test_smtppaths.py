"""lmtp/smtppaths.py: RFC 5321 §4.1.2 and §4.1.3, table by table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmtp.smtppaths import Address, PathProblem, is_host, literal, path

PATHS = [
    ("<alice@example.org>", Address("alice", "example.org")),
    ("<Postmaster>", Address("Postmaster")),                            # §4.1.1.3
    ("<bench0001>", Address("bench0001")),
    ("<>", None),
    ("<a.b.c@x>", Address("a.b.c", "x")),
    ("<!#$%&'*+-/=?^_`{|}~@x>", Address("!#$%&'*+-/=?^_`{|}~", "x")),    # atext of RFC 5322 §3.2.3
    ("<user%host@relay.example.org>", Address("user%host", "relay.example.org")),
    ("<alice+Archive/2026@example.org>", Address("alice+Archive/2026", "example.org")),
    ('<"alice smith"@example.org>', Address("alice smith", "example.org")),
    ('<"a@b"@example.org>', Address("a@b", "example.org")),
    ('<"a\\"b\\\\c"@example.org>', Address('a"b\\c', "example.org")),
    ('<"\\a"@example.org>', Address("a", "example.org")),
    ('<">"@example.org>', Address(">", "example.org")),
    ("<@relay.example.org:alice@example.org>", Address("alice", "example.org")),       # §F.2
    ("<@one.example,@two.example:alice@example.org>", Address("alice", "example.org")),
    ("<alice@[127.0.0.1]>", Address("alice", "[127.0.0.1]")),
    ("<alice@[IPv6:2001:db8::1]>", Address("alice", "[IPv6:2001:db8::1]")),
    ("<alice@my_host.example.org>", Address("alice", "my_host.example.org")),
    ("<alice@xn--bcher-kva.example>", Address("alice", "xn--bcher-kva.example")),
    (f"<{'a' * 64}@x>", Address("a" * 64, "x")),
    # dots as some providers' addresses have them; they are written in quotes
    ("<a..b@x>", Address("a..b", "x")), ("<.a@x>", Address(".a", "x")), ("<a.@x>", Address("a.", "x")),
]

NOT_PATHS = [
    "", "alice@example.org", "<alice@example.org", "<", "< >", "<@>", "<alice@>", "<@example.org>", "<alice@@x>",
    "<a b@x>", "<.@>", '<"a@x>', '<"a"b@x>', '<""@x>', "<a@-x>", "<a@x->", "<a@x..y>", "<a@.x>",
    "<a@x.>", "<a@[127.0.0.256]>", "<a@[127.0.0.1>", "<a@[IPv6:1::2::3]>", "<a@[]>", "<@relay:>", "<@relay,a@x>",
    "<a\x00b@x>", "<a\rb@x>", '<"a\nb"@x>', "<a\x7f@x>", "<a(comment)@x>", f"<{'a' * 321}@x>", f"<a@{'x.' * 128}x>",
]


@pytest.mark.parametrize(("text", "address"), PATHS)
def test_path(text, address):
    assert path(text) == (address, "")
    assert path(text + " SIZE=1") == (address, " SIZE=1")


@pytest.mark.parametrize("text", NOT_PATHS)
def test_not_a_path(text):
    with pytest.raises(PathProblem):
        path(text)


@pytest.mark.parametrize("address", [address for _, address in PATHS if address])
def test_an_address_is_written_so_that_it_is_read_again(address):
    assert path(f"<{address}>") == (address, "")


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=80))
def test_any_printable_local_part_can_be_written(local):
    assert path(f"<{Address(local, 'example.org')}>") == (Address(local, "example.org"), "")


@given(st.text(st.sampled_from('<>@"\\.,:;[]()+ a1-_\r\n\x00\x7fé'), max_size=60))
def test_junk_is_a_path_or_not_and_what_is_written_of_it_is_clean(text):
    try:
        address, rest = path(text)
    except PathProblem:
        return
    assert text.endswith(rest)
    written = str(address or "")
    assert written.isascii() and (written == "" or written.isprintable())
    assert address is None or path(f"<{address}>") == (address, "")


@pytest.mark.parametrize(("address", "separator", "user", "mailbox"), [
    (Address("alice+Archive/2026", "x"), "+", Address("alice", "x"), "Archive/2026"),
    (Address("alice+a+b"), "+", Address("alice"), "a+b"),
    (Address("alice+"), "+", Address("alice"), ""),
    (Address("alice-lists", "x"), "-", Address("alice", "x"), "lists"),
    (Address("alice+ My Box ", "x"), "+", Address("alice", "x"), " My Box "),
])
def test_a_sub_address_is_divided_at_the_first_separator(address, separator, user, mailbox):
    assert address.divided(separator) == (user, mailbox)


@pytest.mark.parametrize(("address", "separator"), [
    (Address("alice", "x"), "+"), (Address("+box", "x"), "+"), (Address("alice+box", "x"), ""),
    (Address("alice+box", "x"), "-"),
])
def test_no_sub_address(address, separator):
    assert address.divided(separator) is None


def test_the_plain_form_has_no_quotes():
    assert Address("alice smith", "example.org").plain == "alice smith@example.org"
    assert Address("alice").plain == "alice"


@pytest.mark.parametrize("name", ["localhost", "mx.example.org", "mx_1.example.org", "127", "[127.0.0.1]",
                                  "[IPv6:::1]"])
def test_host(name):
    assert is_host(name)


@pytest.mark.parametrize("name", ["", " ", "a b", "a..b", "mx.example.org.", "-", "[", "[]", "[127.0.0.1", "[::1]",
                                  "a\r\nReceived: x", "x" * 256, "a\n", "é.example.org", "<a>", "a;b"])
def test_not_a_host(name):
    assert not is_host(name)


def test_literals():
    assert literal("127.0.0.1") == "[127.0.0.1]"
    assert literal("2001:db8::1") == "[IPv6:2001:db8::1]"
    with pytest.raises(ValueError, match="local"):
        literal("local")
