"""Why rights are held, why mail is refused, where a message has gone: against what RFC 4314 and the settings say."""

import random
import time

import pytest
from attrs import evolve

from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName
from store.accounts.builtin import User
from store.delivery.commit import Delivered
from store.mailboxes import crosspartition, deletion, namespace
from store.mailboxes.authorization import set_acl
from store.mailboxes.expunge import expunge
from store.quota import roots
from store.store import Store
from store.users import explanation
from store.values import Flag, Flags
from tests.support.stores.stores import deliver

BODY = b"Subject: x\r\n\r\n" + b"x" * 1000 + b"\r\n"


def in_groups(store: Store, user: str, *groups: str) -> None:
    def change(row: User) -> User:
        return evolve(row, account=evolve(row.account, groups=groups))

    store.directory.alter(user, change)                     # type: ignore[attr-defined]


def shared(store: Store, name: str, **entries: str) -> MailboxEntry:
    found = MailboxName.parse(name)
    namespace.create_mailbox(store, found)
    for identifier, rights in entries.items():
        set_acl(store, found, identifier.replace("not_", "-").replace("group_", "group:"), rights)
    return store.entry(found)


def reasons(found: explanation.Access, letter: str) -> set[str]:
    return set(next(each.because for each in found.rights if each.right == letter))


def test_groups_grants_and_what_takes_away(store: Store) -> None:
    in_groups(store, "bob", "staff")
    entry = shared(store, "user/alice/Work", bob="lr", group_staff="rswi", anyone="p", not_bob="s")
    found = explanation.access(store, "bob", entry)
    assert found.held == "lrwip" and found.groups == ("staff",)
    assert reasons(found, "r") == {"the entry bob gives it", "the entry group:staff gives it"}
    assert reasons(found, "s") == {"the entry group:staff gives it", "the entry -bob takes it away"}
    assert reasons(found, "p") == {"the entry anyone gives it"}
    assert reasons(found, "x") == {"no entry gives it"}
    stranger = explanation.access(store, "", entry)
    assert stranger.held == "p"
    assert "to this user it looks as if the mailbox were not there" in stranger.notes


def test_an_owner_keeps_what_cannot_be_taken(store: Store) -> None:
    entry = shared(store, "user/alice/Work", not_alice="lx", bob="r")
    found = explanation.access(store, "alice", entry)
    assert found.held == "lrswipktea"
    assert reasons(found, "l") == {"alice owns the mailbox, and its list does not limit that",
                                   "the entry -alice takes it away", "it cannot be taken from the owner"}
    assert "these entries do not speak of alice: bob" in found.notes


def test_what_is_not_shared_and_who_is_not_there(store: Store) -> None:
    entry = shared(store, "user/alice/Own")
    assert "nothing is shared: the mailbox has no access control list" in explanation.access(store, "bob", entry).notes
    entry = shared(store, "user/alice/Work", bob="r")
    assert "without l it is in no list; a client must know its name" in explanation.access(store, "bob", entry).notes
    with_ghost = evolve(entry, acl={**entry.acl, "ghost": "lr"})
    assert any("ghost" in note and "no such users" in note
               for note in explanation.access(store, "alice", with_ghost).notes)


def test_any_list_is_explained_as_rfc_4314_decides(store: Store) -> None:
    """§2: what any of the user's identifiers grants, less what a negative one takes; the owner of an unnamed entry has
    all, and l and a in any case."""
    chance = random.Random(4314)
    entry = shared(store, "user/alice/Work")
    in_groups(store, "bob", "staff", "night")
    in_groups(store, "alice", "staff")
    for _ in range(150):
        identifiers = chance.sample(["alice", "bob", "anyone", "group:staff", "group:night", "group:other", "-bob",
                                     "-alice", "-anyone", "-group:staff", "carol"], chance.randint(0, 6))
        acl = {name: "".join(chance.sample("lrswipkxtea", chance.randint(1, 8))) for name in identifiers}
        user, groups, owner = chance.choice([("alice", ("staff",), True), ("bob", ("staff", "night"), False),
                                             ("", (), False)])
        mine = [*([user] if user else []), "anyone", *(f"group:{group}" for group in groups)]
        found = explanation.access(store, user, evolve(entry, acl=acl))
        for each in found.rights:
            all_is_its_own = owner and user not in acl
            givers = [] if all_is_its_own else [name for name in mine if each.right in acl.get(name, "")]
            takers = [name for name in mine if each.right in acl.get("-" + name, "")]
            held = (bool(givers) or all_is_its_own) and not takers or owner and each.right in "la"
            assert each.held == held, (acl, user, each)
            said = " ".join(each.because)
            assert {name for name in mine if f"entry {name} gives" in said} == set(givers)
            assert {name for name in mine if f"entry -{name} takes" in said} == set(takers)


def test_quota_says_what_is_full_since_when_and_until_when(store: Store) -> None:
    namespace.create_mailbox(store, MailboxName.parse("user/alice/Trash"), special_use="\\Trash")
    for mailbox in ("user/alice/INBOX", "user/alice/INBOX", "user/alice/Trash"):
        deliver(store, BODY, mailbox)
    size = len(BODY)
    roots.set_quota(store, "alice", 3 * size + 10)
    assert explanation.quota(store, "alice").roots[0].verdict == "nearly full"
    before = int(time.time())
    outcome, = deliver(store, BODY, "user/alice/INBOX")
    assert not isinstance(outcome, Delivered)
    roots.set_quota(store, "alice", 3 * size)
    grace = store.settings.quota_grace
    found = explanation.quota(store, "alice", now=before + 60)
    root, = found.roots
    assert root.verdict == "refused for now" and not root.default and root.charged == 3 * size
    assert root.refused_since is not None and before <= root.refused_since <= time.time()
    assert root.refused_for_good == root.refused_since + grace
    assert explanation.quota(store, "alice", now=root.refused_for_good).roots[0].verdict == "refused for good"
    assert [(row["mailbox"], row["octets"], row["messages"]) for row in found.mailboxes] == [
        ("INBOX", 2 * size, 2), ("Trash", size, 1)]
    assert {(row["mailbox"], row["octets"]) for row in found.largest} == {("INBOX", size), ("Trash", size)}
    assert any(line.startswith("Trash holds") for line in found.advice)
    assert any("onecopy quota set alice" in line for line in found.advice)


def test_expunged_messages_wait_and_do_not_count(store: Store) -> None:
    deliver(store, BODY, "user/alice/INBOX", flags=Flags(Flag.DELETED))
    deliver(store, BODY, "user/alice/INBOX")
    expunge(store, store.entry(MailboxName.parse("user/alice/INBOX")))
    found = explanation.quota(store, "alice")
    assert found.waiting == (len(BODY), 1) and found.roots[0].charged == len(BODY)
    assert found.roots[0].default and found.roots[0].octet_limit is None and found.advice == ()


def test_roots_of_mailboxes_and_domains_are_there(store: Store) -> None:
    namespace.create_mailbox(store, MailboxName.parse("user/alice/Archive"))
    roots.set_quota(store, "alice/Archive", 5000)
    roots.set_quota(store, "@example.org", 1_000_000)
    assert [root.root for root in explanation.quota(store, "alice").roots] == [
        "alice", "alice/Archive", "@example.org"]


@pytest.mark.parametrize("what", ["there", "moved", "expunged", "deleted"])
def test_where_a_message_has_gone(store: Store, what: str) -> None:
    name = MailboxName.parse("user/alice/Work")
    entry = namespace.create_mailbox(store, name)
    deliver(store, BODY.replace(b"Subject: x", b"Subject: y"), str(name), flags=Flags(Flag.DELETED))
    outcome, = deliver(store, BODY, str(name), flags=Flags(Flag.DELETED))
    assert isinstance(outcome, Delivered)
    digest = bytes(store.open_mailbox(entry).rows["digest"][1]).hex()
    if what == "moved":
        other = namespace.create_mailbox(store, MailboxName.parse("user/alice/Other"))
        crosspartition.copy(store, entry, other, [2], remove=True)
    elif what == "expunged":
        expunge(store, entry)
    elif what == "deleted":
        deletion.delete_mailbox(store, name)
    said = explanation.fate(store, digest, entry.id, outcome.uid)
    assert said.startswith({
        "there": "it is there: user/alice/Work, UID 2", "moved": "it is now in user/alice/Other, UID 1",
        "expunged": "it was expunged from user/alice/Work", "deleted": "the mailbox has been deleted"}[what])
