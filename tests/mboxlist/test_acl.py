"""Access control lists by the text of RFC 4314, without a store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mboxlist.acl import MAX_ENTRIES, AclProblem, changed, grantable, is_user, parse_identifier, parse_rights, rights_of

EVERYTHING = "lrswipkxtea"      # §2.1, and the order in which they are shown here
LETTERS = st.text(st.sampled_from(EVERYTHING), max_size=12)
NAMES = st.sampled_from(["alice", "bob", "anyone", "group:staff", "group:board"])
IDENTIFIERS = st.one_of(NAMES, NAMES.map(lambda name: "-" + name))
LISTS = st.dictionaries(IDENTIFIERS, LETTERS, max_size=8)
GROUPS = st.sets(st.sampled_from(["staff", "board", "other"]))


@pytest.mark.parametrize(("text", "rights"), [
    ("", ""), ("lrs", "lrs"), ("srl", "lrs"), ("aetxkpiwsrl", EVERYTHING), ("ll", "l"),
    ("c", "kx"), ("d", "te"), ("lrswipcda", EVERYTHING),        # §2.1.1: what RFC 2086 had in their place
    ("ck", "kx"), ("de", "te")])
def test_rights_that_are_written(text, rights):
    assert parse_rights(text) == rights


@pytest.mark.parametrize("text", ["L", "lrz", "n", "0", " l", "l ", "+l", "lr-", "é", "\x00", "l\r\nr", "\ud800"])
def test_rights_that_do_not_exist(text):
    with pytest.raises(AclProblem):
        parse_rights(text)


@pytest.mark.parametrize("text", ["alice", "bob@example.com", "anyone", "group:staff", "-anyone", "-group:staff",
                                  "-bob", "Jörg", "x" * 255])
def test_identifiers(text):
    assert parse_identifier(text) == text


@pytest.mark.parametrize("text", ["", "-", "--bob", "group:", "-group:", "two words", "a\x00b", "a\r\nb", "\x7f",
                                  "x" * 256, "é" * 128, "\ud800", "\u202e"])
def test_what_is_no_identifier(text):
    with pytest.raises(AclProblem):
        parse_identifier(text)
    with pytest.raises(AclProblem):
        changed({}, text, "l")


@given(LISTS, st.sampled_from(["alice", "bob", "carol"]), GROUPS)
def test_what_is_taken_away_wins_over_all_that_was_granted(acl, user, groups):
    names = [user, "anyone", *("group:" + group for group in groups)]
    granted = {letter for name in names for letter in acl.get(name, "")}
    taken = {letter for name in names for letter in acl.get("-" + name, "")}
    assert set(rights_of(acl, user, groups, owner=False)) == granted - taken


@given(LISTS, GROUPS)
def test_an_owner_can_always_look_up_and_change_the_list(acl, groups):
    held = rights_of(acl, "alice", groups, owner=True)
    assert {"l", "a"} <= set(held)
    names = ["alice", "anyone", *("group:" + group for group in groups)]
    taken = {letter for name in names for letter in acl.get("-" + name, "")}
    if "alice" not in acl:
        assert set(held) == set(EVERYTHING) - taken | {"l", "a"}
    else:
        assert set(held) >= set(acl["alice"]) - taken


@given(LISTS, st.sampled_from(["alice", ""]), GROUPS, st.booleans())
def test_rights_are_in_order_and_each_once(acl, user, groups, owner):
    held = rights_of(acl, user, groups, owner=owner)
    assert held == "".join(letter for letter in EVERYTHING if letter in held)


def test_of_a_stranger_only_anyone_speaks():
    acl = {"anyone": "lp", "bob": "lrs", "group:staff": "w"}
    assert rights_of(acl, "", (), owner=False) == "lp"
    assert rights_of(acl | {"-anyone": "p"}, "", (), owner=False) == "l"


@given(LISTS, IDENTIFIERS, LETTERS)
def test_setacl(acl, identifier, letters):
    """§3.1: without a sign the old rights are replaced, with one they are added to or taken from."""
    acl = {name: rights for name, rights in acl.items() if rights}
    old = set(acl.get(identifier, ""))
    others = {name: rights for name, rights in acl.items() if name != identifier}
    for sign, wanted in (("", set(letters)), ("+", old | set(letters)), ("-", old - set(letters))):
        after = changed(acl, identifier, sign + letters)
        assert set(after.get(identifier, "")) == wanted
        assert (identifier in after) == bool(wanted)
        assert {name: rights for name, rights in after.items() if name != identifier} == others


def test_c_and_d_with_a_sign():
    assert changed({}, "bob", "c") == {"bob": "kx"}
    assert changed({"bob": "lkx"}, "bob", "-c") == {"bob": "l"}
    assert changed({"bob": "l"}, "bob", "+d") == {"bob": "lte"}
    assert changed({"bob": "lte"}, "bob", "-d") == {"bob": "l"}


@pytest.mark.parametrize("modification", ["z", "+z", "-z", "++l", "+-l", "l+r", " l"])
def test_what_is_no_modification(modification):
    with pytest.raises(AclProblem):
        changed({"bob": "l"}, "bob", modification)


def test_the_list_it_came_from_stays_as_it_was():
    acl = {"bob": "l"}
    changed(acl, "bob", "+r")
    assert acl == {"bob": "l"}


def test_a_list_has_a_limit():
    full = {f"user{number}": "l" for number in range(MAX_ENTRIES)}
    with pytest.raises(AclProblem, match="at most"):
        changed(full, "one-more", "l")
    assert len(changed(full, "user0", "lrs")) == MAX_ENTRIES
    assert len(changed(full, "user0", "")) == MAX_ENTRIES - 1
    assert changed(full, "one-more", "") == dict(sorted(full.items()))


def test_listrights():
    """§3.7: the owner always has l and a; each of the others can be granted by itself."""
    assert grantable("alice", owner=True) == ("la", list("rswipkxte"))
    assert grantable("bob", owner=False) == ("", list(EVERYTHING))
    assert grantable("-alice", owner=True) == ("", list(EVERYTHING))


@given(LISTS, LETTERS)
def test_setacl_for_an_owner_changes_what_the_owner_has(acl, letters):
    """§3.1: an owner of whom nothing is said has all rights, so these are what is added to and taken from."""
    acl = {name: rights for name, rights in acl.items() if rights and not name.startswith("-")}
    before = set(acl.get("alice", EVERYTHING))
    others = {name: rights for name, rights in acl.items() if name != "alice"}
    for sign, wanted in (("+", before | set(letters)), ("-", before - set(letters)), ("", set(letters))):
        if sign + letters:
            after = changed(acl, "alice", sign + letters, "alice")
            assert set(rights_of(after, "alice", (), owner=True)) >= wanted | {"l", "a"}
            assert set(after.get("alice", EVERYTHING)) == wanted | {*"la"}      # the list says what is so
            assert {name: rights for name, rights in after.items() if name != "alice"} == others


@pytest.mark.parametrize(("acl", "modification", "after"), [
    ({}, "-w", {"alice": "lrsipkxtea"}), ({}, "+p", {}), ({}, "lrswipkxtea", {}), ({}, "r", {"alice": "lra"}),
    ({"alice": "lr"}, "-lrswipkxtea", {"alice": "la"}), ({"alice": "lra"}, "", {}), ({}, "-", {}),
    ({"alice": "lrsipkxtea"}, "+w", {})])
def test_setacl_for_an_owner(acl, modification, after):
    assert changed(acl, "alice", modification, "alice") == after


def test_negative_rights_of_an_owner_are_as_those_of_others():
    assert changed({}, "-alice", "w", "alice") == {"-alice": "w"}
    assert changed({"-alice": "w"}, "-alice", "-w", "alice") == {}


@pytest.mark.parametrize("user", ["-bob", "-anyone", "-group:staff", "group:staff", "anyone", ""])
def test_a_user_with_the_name_of_something_else_has_nothing_by_it(user):
    """What is taken from bob must not be given to one who is called -bob."""
    acl = {"-bob": EVERYTHING, "group:staff": EVERYTHING, "-group:staff": "l", "-anyone": "p", "anyone": "lrp"}
    assert not is_user(user)
    assert rights_of(acl, user, (), owner=False) == "lr"


@pytest.mark.parametrize("user", ["bob", "b-ob", "anyone2", "group", "groups:x", "jo@group:x"])
def test_users(user):
    assert is_user(user)
