"""Filters (RFC 4515) and distinguished names (RFC 4514), against what the RFCs say by example."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.accounts.ldap.ldapnames import check_filter, compared_dn, escape, escape_value, fill, is_below, parse_dn


def unescaped(value: str) -> bytes:
    """RFC 4515 §3, read the other way: valueencoding = 0*(normal / escaped)."""
    assert not re.search(r"[()*\x00]", value), "these are not `normal`"
    return re.sub(rb"\\([0-9a-fA-F]{2})", lambda match: bytes.fromhex(match[1].decode()), value.encode())


@pytest.mark.parametrize(("value", "escaped"), [
    ("Parens R Us (for all your parenthetical needs)", r"Parens R Us \28for all your parenthetical needs\29"),
    ("*", r"\2a"),
    ("C:\\MyFile", r"C:\5cMyFile"),
    ("\0\0\0\4", r"\00\00\00\04"),
    ("Lučić", r"Lu\c4\8di\c4\87"),
    ("alice@example.org", "alice@example.org"),
    ("", ""),
])
def test_the_examples_of_rfc_4515(value, escaped):
    assert escape(value) == escaped


@given(st.text(max_size=40))
@settings(max_examples=150)
def test_an_escaped_value_is_one_value_again(value):
    try:
        octets = value.encode()
    except UnicodeEncodeError:
        octets = value.encode("utf-8", "surrogatepass")
    assert unescaped(escape(value)) == octets
    assert escape(value).isascii()


@given(st.text(max_size=30), st.text(max_size=30))
@settings(max_examples=100)
def test_whatever_is_filled_in_the_filter_stays_what_it_is(user, domain):
    text = fill("(&(uid={user})(|(a={domain})(b=x)))", {"user": user, "domain": domain})
    assert text.count("(") == text.count(")") == 5
    assert "*" not in text
    check_filter(text)


def test_what_is_filled_in_is_not_filled_again():
    assert fill("(a={user})", {"user": "{domain}", "domain": "x"}) == "(a={domain})"


def test_a_place_without_a_value_is_refused():
    with pytest.raises(ValueError, match="there is no {whose}: user"):
        fill("(a={whose})", {"user": "x"})


@pytest.mark.parametrize("text", ["", "a=b", "(a=b", "(a=b))", "(a=b)(c=d)", "()", ")(", "(a=b)x"])
def test_what_is_no_filter(text):
    with pytest.raises(ValueError, match="not one filter"):
        check_filter(text)


@pytest.mark.parametrize(("text", "found"), [       # RFC 4514 §4
    ("UID=jsmith,DC=example,DC=net", ((("uid", "jsmith"),), (("dc", "example"),), (("dc", "net"),))),
    ("OU=Sales+CN=J.  Smith,DC=example,DC=net",
     ((("cn", "J.  Smith"), ("ou", "Sales")), (("dc", "example"),), (("dc", "net"),))),
    (r'CN=James \"Jim\" Smith\, III,DC=example,DC=net',
     ((("cn", 'James "Jim" Smith, III'),), (("dc", "example"),), (("dc", "net"),))),
    (r"CN=Before\0dAfter,DC=example,DC=net", ((("cn", "Before\rAfter"),), (("dc", "example"),), (("dc", "net"),))),
    ("1.3.6.1.4.1.1466.0=#04024869", ((("1.3.6.1.4.1.1466.0", "#04024869"),),)),
    (r"CN=Lu\C4\8Di\C4\87", ((("cn", "Lučić"),),)),
    ("", ()),
    ("cn = Marie , ou= x y ,o=z", ((("cn", "Marie"),), (("ou", "x y"),), (("o", "z"),))),
    (r"cn=\ leads and trails\ ,o=z", ((("cn", " leads and trails "),), (("o", "z"),))),
    (r"cn=a\=b\+c\;d\<e\>\#\\", ((("cn", "a=b+c;d<e>#\\"),),)),
])
def test_distinguished_names(text, found):
    assert parse_dn(text) == found


@pytest.mark.parametrize("text", ["alice", "=x", "cn=a,", "cn=a,,o=b", r"cn=a\q", "cn=a\\", "c n=a", "cn=a+"])
def test_what_is_no_distinguished_name(text):
    with pytest.raises(ValueError, match="not a distinguished name"):
        parse_dn(text)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), min_size=1, max_size=4))
@settings(max_examples=150)
def test_names_that_are_written_are_read(values):
    text = ",".join(f"cn={escape_value(value)}" for value in values)
    assert [rdn[0][1] for rdn in parse_dn(text)] == values


@pytest.mark.parametrize(("dn", "base", "below"), [
    ("cn=a,ou=Groups,dc=example,dc=org", "OU=groups, DC=Example,DC=ORG", True),
    ("ou=groups,dc=example,dc=org", "ou=groups,dc=example,dc=org", True),
    ("cn=a,ou=mygroups,dc=example,dc=org", "ou=groups,dc=example,dc=org", False),
    (r"cn=ou\=groups\,dc\=example\,dc\=org", "dc=example,dc=org", False),
    ("dc=org", "dc=example,dc=org", False),
    ("dc=org", "", True),
])
def test_below(dn, base, below):
    assert is_below(dn, base) is below


def test_equal_names_are_equal_however_they_are_written():
    assert compared_dn("CN=Sales  People+OU=x, DC=org") == compared_dn(r"ou=X+cn=sales\20people,dc=ORG")
