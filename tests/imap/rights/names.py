r"""LIST and LSUB: exactly the names that `l` grants, with what `r` and the other rights say of them.

RFC 3501 §6.3.8, §6.3.9; RFC 4314 §4; RFC 5258 §3; RFC 5819 §2; RFC 8440 §3.
"""

import re

from tests.imap.rights.model import Truth, above, shown_rights
from tests.imap.rights.talk import Talk, expect

STATUS_ITEMS = "MESSAGES UIDNEXT UIDVALIDITY UNSEEN DELETED"


def list_everything(talk: Talk) -> None:
    """LIST "" "*": mailboxes, and the names above them, which are no mailboxes to a user without `l` on them."""
    truth = talk.truth
    expected = {}
    for name in truth.listed() | truth.levels():
        expected[name] = {children(truth, name)} | (
            set() if "r" in truth.held(name) and name in truth.listed() else {"\\Noselect"})
    answer = talk.well('LIST "" "*"', "LIST")
    assert listed(answer, "LIST") == expected


def list_with_more(talk: Talk) -> None:
    """LIST with everything that can be asked for: only mailboxes, none of which is told of without its right."""
    truth = talk.truth
    answer = talk.say(f'LIST "" "*" RETURN (SUBSCRIBED CHILDREN SPECIAL-USE MYRIGHTS STATUS ({STATUS_ITEMS}))')
    expect(answer, "OK", "", ("LIST", "STATUS", "MYRIGHTS"))
    expected = {}
    for name in truth.listed():
        expected[name] = {children(truth, name)} | ({"\\Subscribed"} if name in truth.subscribed else set()) | (
            set() if "r" in truth.held(name) else {"\\Noselect"})
    assert listed(answer, "LIST") == expected
    assert rights_in(answer) == {name: shown_rights(truth.held(name)) for name in truth.listed()}
    figures = {text.split(" ")[2]: text for text in answer.of("STATUS")}
    assert figures.keys() == {name for name in truth.listed() if "r" in truth.held(name)}
    for name, text in figures.items():
        check_status(talk, name, text)


def list_levels(talk: Talk) -> None:
    """LIST of what is directly below the parent, by an extended command."""
    truth, parent = talk.truth, talk.family.parent
    here = {name for name in truth.listed() | truth.levels() if name.rpartition("/")[0] == parent}
    answer = talk.well(f'LIST "{parent}/" % RETURN (MYRIGHTS)', "LIST", "MYRIGHTS")
    expected = {}
    for name in here:
        told = set() if "r" in truth.held(name) else {"\\Noselect"}
        expected[name] = {children(truth, name)} | (told if name in truth.listed() else {"\\NonExistent"})
    assert listed(answer, "LIST") == expected
    assert rights_in(answer) == {name: shown_rights(truth.held(name)) for name in here & truth.listed()}


def list_subscribed(talk: Talk) -> None:
    """LIST (SUBSCRIBED RECURSIVEMATCH) "" "%": a name above one that is subscribed to, which the user may know of."""
    truth = talk.truth
    known = shown_subscriptions(truth)
    expected = {}
    for name in {top(name) for name in known}:
        expected[name] = {children(truth, name)} | ({"\\Subscribed"} if name in known else set()) | (
            set() if name in truth.listed() else {"\\NonExistent"})
    answer = talk.well('LIST (SUBSCRIBED RECURSIVEMATCH) "" "%"', "LIST")
    found = {name: attributes - {"\\Noselect"} for name, attributes in listed(answer, "LIST").items()}
    assert found == expected
    with_child = {name for name in expected if any(other.startswith(name + "/") for other in known)}
    assert {name_in(text) for text in answer.of("LIST") if "CHILDINFO" in text} == with_child


def list_special(talk: Talk) -> None:
    """LIST (SPECIAL-USE): the user's own have none here, and what others' are for is nothing to the user."""
    talk.well('LIST (SPECIAL-USE) "" "*"')
    talk.well('LIST "" ""', "LIST")


def list_hidden(talk: Talk) -> None:
    """LIST of one name: nothing where `l` is missing, as if it were not there."""
    truth, name = talk.truth, talk.family.mailbox
    there = {name} & (truth.listed() | truth.levels())
    assert set(listed(talk.well(f'LIST "" {name}', "LIST"), "LIST")) == there
    for secret in ("user/bob/Qp20/Qp21", "user/carol/%", "public/Qp23*"):
        assert not talk.well(f'LIST "" "{secret}"', "LIST").lines


def lsub(talk: Talk) -> None:
    """LSUB with "*"."""
    answer = talk.well('LSUB "" "*"', "LSUB")
    assert listed(answer, "LSUB").keys() == shown_subscriptions(talk.truth)


def lsub_levels(talk: Talk) -> None:
    """LSUB with "%": a name that is subscribed to, or stands for those below it."""
    known = shown_subscriptions(talk.truth)
    expected = {top(name): set() if top(name) in known else {"\\Noselect"} for name in known}
    assert listed(talk.well('LSUB "" "%"', "LSUB"), "LSUB") == expected


LISTS = (list_everything, list_everything, list_with_more, list_levels, list_subscribed, list_special, list_hidden)


def shown_subscriptions(truth: Truth) -> set[str]:
    """RFC 4314 §4, LSUB: of names that are not the user's own those that it may look up, or that stand for such."""
    return {name for name in truth.subscribed
            if truth.own(name) or name in truth.listed() or truth.has_listed_below(name)}


def check_status(talk: Talk, name: str, text: str) -> None:
    """A STATUS response must be true."""
    box = talk.truth.boxes[name]
    figures = dict(re.findall(r"([A-Z]+) (\d+)", text.rpartition("(")[2]))
    if box.number >= 90:
        return                                          # not kept count of
    assert int(figures["MESSAGES"]) == len(box.messages), text
    assert int(figures["UNSEEN"]) == sum("\\Seen" not in flags for flags in box.messages.values()), text
    assert int(figures["DELETED"]) == sum("\\Deleted" in flags for flags in box.messages.values()), text
    assert int(figures["UIDVALIDITY"]) == box.validity, text
    assert int(figures["UIDNEXT"]) > max(box.messages, default=0), text


def children(truth: Truth, name: str) -> str:
    """RFC 3348: whether there is anything below, which the user may know of."""
    return "\\HasChildren" if truth.has_listed_below(name) else "\\HasNoChildren"


def top(name: str) -> str:
    return above(name)[-1] if "/" in name else name


def name_in(text: str) -> str:
    found = re.fullmatch(r'\* (?:LIST|LSUB) \([^)]*\) "/" (\S+)(?: .*)?', text)
    assert found, text
    return found[1]


def listed(answer, kind: str) -> dict[str, set[str]]:
    """The names of a LIST or LSUB, and their attributes."""
    found = {name_in(text): set(text.partition("(")[2].partition(")")[0].split()) for text in answer.of(kind)}
    assert len(found) == len(answer.of(kind)), answer.octets
    return found


def rights_in(answer) -> dict[str, set[str]]:
    """The MYRIGHTS responses."""
    return {text.split(" ")[2]: set(text.split(" ")[3].strip('"')) for text in answer.of("MYRIGHTS")}
