"""Extended LIST against the definitions of RFC 5258 §3.1, §3.3 and the table of §3.5, over small hierarchies."""

import re
from itertools import product
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imap.verbs import listing
from imap.wire.listing import List, ListOption
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName

LEVELS = "ab"
NAMES = ["/".join(levels) for depth in (1, 2, 3) for levels in product(LEVELS, repeat=depth)]
PATTERNS = ["*", "%", "a", "a/%", "*b", "%/%", "b*", "a/b/%", "%b", ""]
some_names = st.frozensets(st.sampled_from(NAMES), max_size=6)
patterns = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3).map(tuple)


class Stream:
    def __init__(self):
        self.lines = []

    def write(self, line):
        self.lines.append(line.decode())

    async def breathe(self):
        pass


class Session:
    """What a LIST needs of a session: alice has these mailboxes and subscriptions, and bob shares none."""

    def __init__(self, mailboxes, subscribed, special):
        self.user, self.utf8, self.stream = "alice", False, Stream()
        entries = [MailboxEntry(MailboxId(1), MailboxName("alice", name), "primary", 1, 1,
                                "\\Sent" if name in special else None) for name in sorted(mailboxes)]
        subscriptions = SimpleNamespace(of=lambda user: sorted(subscribed))
        self.store = SimpleNamespace(names=lambda user: entries, mailboxes=SimpleNamespace(subscriptions=subscriptions))

    async def change(self, units, work, kind):
        return work()

    def listed(self, command):
        with pytest.raises(StopIteration):
            listing.list_mailboxes(self, command).send(None)
        return dict(map(self.read, self.stream.lines))

    def read(self, line):
        attributes, name, info = re.fullmatch(
            r'\* LIST \(([^)]*)\) "/" (\S+)(?: \("CHILDINFO" \((.*)\)\))?\r\n', line).groups()
        return name, (frozenset(attributes.split()), info)


@pytest.fixture(autouse=True)
def nobody_shares(faults):
    for name, answer in (("visible", ()), ("sees_many", False), ("may", True)):
        faults.around(listing.authorization, name, lambda *_, answer=answer: answer)


def below(name):
    return [other for other in NAMES if other.startswith(name + "/")]


@given(some_names, some_names, some_names, patterns, st.booleans(), st.booleans(), st.booleans())
def test_what_is_listed(mailboxes, subscribed, special, wanted, by_subscription, by_use, recursive):
    select = {option for option, on in [(ListOption.SUBSCRIBED, by_subscription), (ListOption.SPECIAL_USE, by_use),
                                        (ListOption.RECURSIVEMATCH, recursive and (by_subscription or by_use))] if on}
    recursive = ListOption.RECURSIVEMATCH in select
    tests = [re.compile(pattern.replace("*", ".*").replace("%", "[^/]*")) for pattern in wanted if pattern]
    levels = [re.compile(pattern.replace("*", ".*").replace("%", "[^/]*")) for pattern in wanted if pattern[-1:] == "%"]

    def matches(name):
        return any(test.fullmatch(name) for test in tests)

    def is_level(name):
        """A level of the hierarchy at which a `%` at the end of a pattern looks: RFC 3501 §6.3.8."""
        return any(test.fullmatch(name) for test in levels) and not mailboxes.isdisjoint(below(name))

    def meets(name):
        if by_use and (name not in special or name not in mailboxes):
            return False
        return name in subscribed if by_subscription else name in mailboxes or is_level(name)

    expected = {}
    for name in filter(matches, NAMES):
        if meets(name) or recursive and any(meets(other) and not matches(other) for other in below(name)):
            attributes = {"\\HasNoChildren" if mailboxes.isdisjoint(below(name)) else "\\HasChildren"}
            attributes |= {"\\NonExistent"} - ({"\\NonExistent"} if name in mailboxes else set())
            attributes |= {"\\Subscribed"} if by_subscription and name in subscribed else set()
            attributes |= {"\\Sent"} if name in special & mailboxes else set()
            criteria = ['"SUBSCRIBED"'] * by_subscription + ['"SPECIAL-USE"'] * by_use
            info = " ".join(criteria) if recursive and any(map(meets, below(name))) else None
            expected[name] = (frozenset(attributes), info)

    give = select & {ListOption.SUBSCRIBED, ListOption.SPECIAL_USE}
    command = List("", wanted, frozenset(select), frozenset(give), extended=True)
    assert Session(mailboxes, subscribed, special).listed(command) == expected
