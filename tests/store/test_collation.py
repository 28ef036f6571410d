"""i;unicode-casemap: RFC 5051."""

import pytest

from store.collation import casemap, collation_key


@pytest.mark.parametrize(("text", "folded"), [
    ("", ""), ("abcXYZ 1[]_~", "ABCXYZ 1[]_~"),
    ("é", "E\u0301"), ("É", "E\u0301"), ("e\u0301", "E\u0301"),     # title case, then decomposed
    ("ǆ", "Dz\u030c"), ("ǅ", "Dz\u030c"), ("Ǆ", "Dz\u030c"),
    ("мир", "МИР"), ("й", "И\u0306"), ("ﬁ", "fi"), ("ß", "ß"), ("ẞ", "ẞ"), ("ÿ", "Y\u0308"), ("ａ", "A"), ("①", "1"),
    ("ᾳ", "\u0391\u0345"), ("ǖ", "U\u0308\u0304"), ("日本", "日本"),
])
def test_folded(text, folded):
    assert casemap(text) == folded
    assert collation_key(text) == folded.encode()


def test_folding_is_piece_by_piece():
    text = "Grüße, ΣΊΣΥΦΟΣ σίσυφος ǆ"
    assert "".join(map(casemap, text)) == casemap(text)


def test_order():
    words = ["b", "A", "ä", "Z", "z\u0301", "Ab", "aa"]
    assert sorted(words, key=collation_key) == ["A", "aa", "Ab", "ä", "b", "Z", "z\u0301"]


def test_lone_surrogates_do_no_harm():
    assert collation_key("a\ud800") == b"A?"
