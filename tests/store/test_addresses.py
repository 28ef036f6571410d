"""Addresses in one form: RFC 6531, RFC 6532 §3.1 (NFC), RFC 5890 and RFC 5891 (A-labels)."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis.strategies import text

from store.addresses import canonical, canonical_domain

JOERG = "jörg@xn--bcher-kva.example"


@pytest.mark.parametrize(("written", "form"), [
    ("alice", "alice"), ("Alice@Example.ORG", "alice@example.org"), ("", ""), ("a@b@Example.org", "a@b@example.org"),
    ("JÖRG", "jörg"), ("jo\u0308rg", "jörg"),
    ("jörg@bücher.example", JOERG), ("JÖRG@BÜCHER.Example", JOERG), ("jörg@XN--Bcher-KVA.example", JOERG),
    ("jo\u0308rg@bu\u0308cher.example", JOERG), ("JO\u0308RG@xn--bcher-kva.EXAMPLE", JOERG),
    ("x@例え.テスト", "x@xn--r8jz45g.xn--zckzah"),           # a test domain of IANA's
    ("x@例え。テスト", "x@xn--r8jz45g.xn--zckzah"),           # UTS 46 §4: other full stops
    ("x@ＥＸＡＭＰＬＥ.org", "x@example.org"),
    ("Straße@example.org", "straße@example.org"),             # not that of strasse
    ("a@faß.example", "a@xn--fa-hia.example"),                # IDNA 2008: not fass.example
    ("ΟΔΟΣ", "οδος"), ("\u212aate", "kate"),                  # a Kelvin sign is a K (NFC)
    ("J\u030can", "\u01f0an"),                               # there is no capital in one character
    ("jörg@[IPv6:::1]", "jörg@[ipv6:::1]"),
])
def test_one_form(written, form):
    assert canonical(written) == form
    assert canonical(form) == form


@pytest.mark.parametrize("written", [
    "a@-ü.example", "a@ü..example", "a@ü b.example", "a@ü/b.example", "a@" + "ü" * 64 + ".example", "a@☃.example",
    "a@" + "ü.example." * 30, "a@xn--bcher-kva-.ü", "\udcff", "a\udcffü@example.org", "a@\ud800.example",
    "x" * 601, "ü" * 601])
def test_what_cannot_be_an_address(written):
    with pytest.raises(ValueError):
        canonical(written)


@given(text(max_size=20))
def test_equal_to_a_reader_is_equal(local):
    """Canonical equivalence (Unicode §3.7), and the result is in the form in which it is looked up again."""
    local = local.replace("@", "")
    forms = set()
    for form in ("NFC", "NFD"):
        try:
            forms.add(canonical(unicodedata.normalize(form, local) + "@example.org"))
        except UnicodeEncodeError:
            forms.add("")
    once, = forms
    assert not once or canonical(once) == once == unicodedata.normalize("NFC", once)


def test_a_domain_in_ascii_costs_next_to_nothing(monkeypatch):
    monkeypatch.setattr("idna.encode", None)
    assert canonical("Alice@XN--Bcher-Kva.Example") == "alice@xn--bcher-kva.example"
    assert canonical("Jörg@Example.org") == "jörg@example.org"
    assert canonical_domain("Example.org") == "example.org"
