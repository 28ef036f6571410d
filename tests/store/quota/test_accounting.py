"""Accounting: against plain sums by hand, and against the files on disk."""

import os
from fractions import Fraction
from random import Random

import pytest

from mboxlist.names import MailboxName
from store.delivery.commit import Delivered
from store.mailboxes import deletion, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.quota.accounting import Share, fair_shares, sharing
from tests.support.stores.purging import purge
from tests.support.stores.stores import deliver, make_store

TRACE = b"Return-Path: <a@example.org>\r\n"
BODY = b"Subject: %d\r\n\r\n"


def body(number: int, size: int) -> bytes:
    return (BODY % number).ljust(size, b"x")


def on_disk(store) -> dict[str, int]:
    return {name: sum(os.stat(path).st_size for path in partition.files.folder.glob("?/??/*"))
            for name, partition in store.partitions.items()}


def add_up(accounts) -> None:
    """Every level has the same sums."""
    whole = accounts.whole
    for level in (accounts.mailboxes, accounts.users, accounts.domains, accounts.partitions):
        assert sum(share.fair for share in level.values()) == whole.fair
        assert sum(share.octets for share in level.values()) == whole.octets
        assert sum(share.messages for share in level.values()) == whole.messages
        assert all(share.unique + share.shared == share.octets for share in level.values())


def test_an_empty_store(store):
    accounts = sharing(store)
    assert accounts.mailboxes == {"user/alice/INBOX": Share(), "user/bob/INBOX": Share()}
    assert accounts.users == {"alice": Share(), "bob": Share()}
    assert accounts.domains == {"example.org": Share()}
    assert accounts.partitions == {"primary": Share()}
    assert accounts.waiting == {"primary": 0}
    assert fair_shares(store.partitions["primary"]) == {"alice": 0, "bob": 0}


def test_a_file_is_divided_among_its_holders(store):
    """100 octets and a trace header of 30, held by alice in two mailboxes and bob in one; 50 octets of alice's."""
    assert len(TRACE) == 30
    namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    deliver(store, body(1, 101), "user/alice/INBOX", "user/alice/Archive", "user/bob/INBOX", trace=TRACE)
    deliver(store, body(2, 50), "user/alice/INBOX")
    accounts = sharing(store)
    # A file of 131 octets: 66 for alice, who is first, 65 for bob; alice's 66 are 33 for each of her mailboxes.
    # RFC822.SIZE of what LMTP delivered counts the trace header.
    assert accounts.users == {"alice": Share(3, 312, 50, 262, 116, 50), "bob": Share(1, 131, 0, 131, 65, 0)}
    assert accounts.mailboxes == {
        "user/alice/INBOX": Share(2, 181, 50, 131, 83, 50), "user/alice/Archive": Share(1, 131, 0, 131, 33, 0),
        "user/bob/INBOX": Share(1, 131, 0, 131, 65, 0)}
    assert accounts.domains == {"example.org": accounts.whole}
    assert accounts.whole == Share(4, 443, 443, 0, 181, 181)
    assert fair_shares(store.partitions["primary"]) == {"alice": 116, "bob": 65}
    assert on_disk(store) == {"primary": 181}


def test_domains(tmp_path):
    store = make_store(tmp_path / "store", ("alice", "bob", "carol@b.org"))
    deliver(store, body(1, 90), "user/alice/INBOX", "user/bob/INBOX", "user/carol@b.org/INBOX")
    deliver(store, body(2, 40), "user/alice/INBOX", "user/bob/INBOX")
    accounts = sharing(store)
    assert accounts.domains == {"b.org": Share(1, 90, 0, 90, 30, 0), "example.org": Share(4, 260, 80, 180, 100, 40)}
    store.close()


def test_two_copies_in_one_mailbox(store):
    inbox = store.entry(MailboxName("alice", "INBOX"))
    deliver(store, body(1, 60), "user/alice/INBOX")
    copy_messages(store, inbox, inbox, [1])
    assert sharing(store).users["alice"] == Share(2, 120, 120, 0, 60, 60)


def test_what_was_expunged_waits(store):
    deliver(store, body(1, 60), "user/alice/INBOX", "user/bob/INBOX")
    deliver(store, body(2, 40), "user/alice/INBOX")
    remove(store, store.entry(MailboxName("alice", "INBOX")), [1, 2])
    accounts = sharing(store)
    assert accounts.waiting == {"primary": 40}
    assert accounts.users == {"alice": Share(), "bob": Share(1, 60, 60, 0, 60, 60)}
    assert on_disk(store) == {"primary": 100}


def test_a_deleted_mailbox_holds_nothing(store):
    namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    deliver(store, body(1, 60), "user/alice/Archive", "user/bob/INBOX")
    deliver(store, body(2, 40), "user/alice/Archive")
    deletion.delete_mailbox(store, MailboxName("alice", "Archive"))
    accounts = sharing(store)
    assert accounts.waiting == {"primary": 40}
    assert "user/alice/Archive" not in accounts.mailboxes
    assert accounts.users["bob"] == Share(1, 60, 60, 0, 60, 60)
    assert fair_shares(store.partitions["primary"]) == {"alice": 0, "bob": 60}


def by_hand(model: dict[tuple[str, str], list[tuple[int, int]]]) -> dict[str, Fraction]:
    """Fair shares of users as exact fractions. The model: (user, path) -> number and octets of each message's file."""
    holders: dict[tuple[int, int], set[str]] = {}
    for (user, _), messages in model.items():
        for message in messages:
            holders.setdefault(message, set()).add(user)
    shares: dict[str, Fraction] = {}
    for (_, octets), users in holders.items():
        for user in users:
            shares[user] = shares.get(user, Fraction(0)) + Fraction(octets, len(users))
    return shares


@pytest.mark.parametrize("seed", range(8))
def test_fair_shares_and_what_waits_are_the_files_on_disk(tmp_path, seed):
    """Random deliveries, copies, moves, expunges, deletions and purges; the octets are the file system's."""
    random = Random(seed)
    users = ("alice", "bob", "carol@b.org", "dave@b.org", "erin@c.org")
    store = make_store(tmp_path / "store", users)
    model: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    for user in users:
        for path in ("INBOX", "A", "A/B"):
            if path != "INBOX":
                namespace.create_mailbox(store, MailboxName(user, path))
            model[user, path] = {}
    partition = store.partitions["primary"]
    for number in range(40):
        targets = random.sample(sorted(model), min(len(model), random.randint(1, 8)))
        size = random.randint(30, 700)
        with_trace = random.random() < 0.5
        outcomes = deliver(store, body(number, size), *(f"user/{user}/{path}" for user, path in targets),
                           trace=TRACE if with_trace else b"")
        for target, outcome in zip(targets, outcomes, strict=True):
            assert isinstance(outcome, Delivered)
            model[target][outcome.uid] = number, size + len(TRACE) * with_trace
        if random.random() < 0.5:
            source, target = random.sample(sorted(model), 2)
            move = random.random() < 0.5
            uids = [uid for uid in sorted(model[source]) if random.random() < 0.5]
            new = copy_messages(store, store.entry(MailboxName(*source)), store.entry(MailboxName(*target)), uids,
                                remove=move)
            for uid, copy in zip(uids, new, strict=True):
                model[target][copy] = model[source][uid]
                if move:
                    del model[source][uid]
        if random.random() < 0.4:
            box = random.choice(sorted(model))
            for uid in remove(store, store.entry(MailboxName(*box)),
                              [uid for uid in model[box] if random.random() < 0.6]):
                del model[box][uid]
        if random.random() < 0.1:
            box = random.choice([box for box in sorted(model) if box[1] != "INBOX"] or [("alice", "INBOX")])
            if box[1] != "INBOX":
                deletion.delete_mailbox(store, MailboxName(*box))
                del model[box]
        if random.random() < 0.05:
            purge(partition, 1 << 31)
    partition.files.drop_staged_names()

    accounts = sharing(store)
    assert {name: share.fair + accounts.waiting[name] for name, share in accounts.partitions.items()} == on_disk(store)
    add_up(accounts)
    expected = by_hand({box: list(messages.values()) for box, messages in model.items()})
    files = len({message for messages in model.values() for message in messages.values()})
    for user, share in accounts.users.items():
        assert abs(share.fair - expected.get(user, 0)) < files       # less than an octet for each file
    assert fair_shares(partition) == {user: share.fair for user, share in accounts.users.items()}
    for user, share in accounts.users.items():
        mailboxes = [found for name, found in accounts.mailboxes.items() if name.startswith(f"user/{user}/")]
        assert sum(found.fair for found in mailboxes) == share.fair
        assert sum(found.octets for found in mailboxes) == share.octets
        assert sum(found.freed for found in mailboxes) <= share.freed
    assert (sum(share.octets for share in accounts.users.values())
            == sum(octets for messages in model.values() for _, octets in messages.values()))
    store.close()
