"""i;unicode-casemap: RFC 5051."""

import pytest

from store.message.collation import casemap, collation_key


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


def test_folding_a_long_text_is_the_same_as_each_of_its_characters():
    others = [chr(code) for code in range(0x80, 0x3000)]
    for at in range(0, len(others), 7):
        text = "a text of which few characters, " + "z".join(others[at:at + 7]) + ", are not of ASCII"
        assert "".join(map(casemap, text)) == casemap(text)


@pytest.mark.parametrize("text", ["\u02b1\u0266", "\u02e0\u0263", "\u0390\u03b9", "\u03b0\u03c5", "\u0587\u0565\u0582"])
def test_what_one_character_becomes_is_not_folded_again_with_another(text):
    for words in (text, text[::-1], "a " + text):
        assert "".join(map(casemap, words)) == casemap(words)


def test_order():
    words = ["b", "A", "ä", "Z", "z\u0301", "Ab", "aa"]
    assert sorted(words, key=collation_key) == ["A", "aa", "Ab", "ä", "b", "Z", "z\u0301"]


def test_lone_surrogates_do_no_harm():
    assert collation_key("a\ud800") == b"A?"
