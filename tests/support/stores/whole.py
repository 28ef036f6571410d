"""Whole stores for tests of what brings them back: made at random, with everything in them, and compared."""

import random
import shutil

from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.accounts.base import Account
from store.accounts.builtin import User
from store.filtering import userscripts
from store.mailboxes import deletion, namespace, subscribing
from store.mailboxes.authorization import annotate, set_acl
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.mailboxes.uidllist import give
from store.quota import roots
from store.tables.references import tally
from store.userarea import idxfile, idxreading
from store.users import lastuse
from store.values import Flag, FlagAction, Flags, InternalDate
from tests.support.stores.stores import HASH, deliver, make_store

TRACE = (b"Return-Path: <eve@example.net>\r\nReceived: from a\r\n\tby b with LMTP;\r\n"
         b"\tMon, 1 Jan 2024 00:00:00 +0000\r\n")
ONE, TWO = b"Subject: 1\r\n\r\none\r\n", b"Subject: 2\r\n\r\ntwo two\r\n"
USERS = [User(Account(user, "primary"), HASH) for user in ("alice", "bob", "carol@example.com")]


def lose_databases(root):
    """What is left is what the user area and the message files hold."""
    shutil.rmtree(root / "mboxlist")
    for partition in (root / "partitions").iterdir():
        shutil.rmtree(partition / "index")


def forget_accounts(root):
    """Have no store.idx with an account, as an archive and earlier versions have them."""
    for path in root.glob("partitions/*/users/**/store.idx"):
        there = idxreading.read(path)
        if there.account:
            idxfile.write(path, evolve(there, account=b"", head=evolve(there.head, account=0)))


def in_use(partition):
    """What is known of the message files that mailboxes refer to: without what has been expunged."""
    found = {digest: evolve(record, released=0) for digest, record in partition.refs.all()}
    for item in partition.removed.held():
        for digest, count, check in tally(item.mailbox, item.rows):
            found[digest] = evolve(found[digest], references=found[digest].references - count,
                                check=found[digest].check - check & (1 << 64) - 1)
    return {digest: record for digest, record in found.items() if record.references}


def unused(partition):
    """The names of the other files that are known."""
    return {digest.hex() for digest, _ in partition.refs.all()} - {digest.hex() for digest in in_use(partition)}


def everything(store):
    """All that a rebuild gives back. What depends on the epoch is not in it."""
    partition = store.partitions["primary"]
    boxes = {}
    found = [(0, entry) for entry in store.mailboxes.all()] + list(store.mailboxes.deleted.all())
    states = dict(partition.all_states())
    for when, entry in found:
        state = states[entry.id]
        rows = partition.transact(lambda txn, entry=entry: txn.load(entry.id))
        own = {(reader, number): flags.tobytes() for number, reader, flags in partition.readers.all(entry.id)}
        notes = list(store.mailboxes.annotations.of(entry.id))
        private_headers = [partition.private_headers.find(number) for number in rows["head"].tolist()]
        rows["head"] = 0
        boxes[when, entry] = (rows.tobytes(), private_headers, own, state.removed, state.messages, state.unseen,
                              state.deleted,
                              state.octets, state.keywords, state.quota_root, state.uidvalidity, state.recent, notes,
                              partition.uidls.of(entry.id))
    uses = {root: (use.octets, use.messages, use.octet_limit, use.message_limit)
            for root, use in (*partition.quotas.all(), *partition.quotas.domains())
            if use.octets or use.octet_limit != -2}
    files = {digest: (record, partition.serials.cached([record.serial]))
             for digest, record in in_use(partition).items()}
    users = {user: subscribing.subscriptions(store, user) for user in ("alice", "bob", "carol@example.com")}
    return boxes, uses, files, users, sorted(store.directory.all(), key=lambda account: account.user)


USED = 1_700_000_000            # when alice and bob of a random store logged in last: 2023-11-14


def give_scripts(store, user):
    """Two Sieve scripts, one of which is active."""
    account = store.directory.user(user).account
    userscripts.put(store, account, "main", b'require "fileinto"; fileinto "Archive";')
    userscripts.put(store, account, "Уход", b"keep; # \xe2\x82\xac")
    userscripts.activate(store, user, "main")


def random_store(root, seed):
    chance = random.Random(seed)
    store = make_store(root, ("alice", "bob", "carol@example.com"))
    for name in ("user/alice/Archive", "user/alice/Archive/2026", "user/alice/Gone", "user/bob/Sent", "public/news/x"):
        namespace.create_mailbox(store, MailboxName.parse(name),
                                 special_use="\\Sent" if name.endswith("Sent") else None)
    for entry in list(store.mailboxes.all()):       # no cursor may be open on what is written
        if entry.name.owner != "bob":
            set_acl(store, entry.name, "bob", "lrswite")
    for step in range(150):
        if step == 100:
            for each in list(store.mailboxes.all()):
                give(store, each, {uid: b"%d-%d" % (each.id, uid)
                                    for uid in store.open_mailbox(each).rows["uid"].tolist()[::2]})
        entries = list(store.mailboxes.all())
        entry, other = chance.choice(entries), chance.choice(entries)
        uids = store.open_mailbox(entry).rows["uid"].tolist()
        some = chance.sample(uids, min(len(uids), chance.randrange(1, 6)))
        match chance.randrange(9):
            case 0 | 1 | 2:
                targets = {str(each.name) for each in chance.sample(entries, 3)}
                body = b"Subject: %d\r\n\r\n%s\r\n" % (chance.randrange(40), b"x" * chance.randrange(300))
                body = chance.choice([b"", b"Received: by relay\r\n", b"Return-Path: <x>\r\n"]) + body
                deliver(store, body, *targets, trace=chance.choice([TRACE, TRACE.replace(b"eve", b"mallory"), b""]),
                        flags=Flags(Flag(chance.randrange(32)), chance.choice([(), ("$Junk",), ("later", "$Junk")])),
                        header=chance.choice([b"", b"Delivered-To: {}\r\n", b"X-Long: {}\r\n" + b"X: y\r\n" * step]),
                        received=InternalDate(chance.randrange(2**31), chance.randrange(-700, 700)))
            case 3:
                copy_messages(store, entry, other, some, remove=bool(chance.randrange(2)))
            case 4 | 5:
                reader = chance.choice(["", "bob"]) if entry.name.owner != "bob" else ""
                change_flags(store, entry, some, chance.choice(list(FlagAction)),
                             Flags(Flag(chance.randrange(32)), (f"word{chance.randrange(5)}",)), reader=reader)
            case 6:
                remove(store, entry, some)
            case 7:
                subscribing.subscribe(store, chance.choice(["alice", "bob"]), chance.choice(["Archive", "INBOX",
                                                                                             "nowhere"]))
            case 8 if not entry.name.is_inbox():
                new = MailboxName(entry.name.owner, f"{entry.name.path}/moved{step}"[-60:])
                if store.mailboxes.find(new) is None and not new.is_below(entry.name):
                    namespace.rename_mailbox(store, entry.name, new)
                store.claim_recent(other)
    inbox = store.entry(MailboxName.parse("user/alice/INBOX"))
    for number in range(3):                     # files that wait for the purge
        found, = deliver(store, b"Subject: gone\r\n\r\n%d\r\n" % number, str(inbox.name), trace=TRACE)
        remove(store, inbox, [found.uid])
    roots.set_quota(store, "alice", 10_000_000, 5000)
    roots.set_quota(store, "alice/Archive", 5_000_000)
    roots.set_quota(store, "public/news", 7_000_000)
    roots.set_quota(store, "@example.com", 900_000_000)
    roots.set_quota(store, "carol@example.com", -1)
    entry = store.entry(MailboxName.parse("user/bob/INBOX"))
    annotate(store, inbox, "/shared/comment", b"\x00\xff everything")
    annotate(store, inbox, "/private/comment", b"bob's", "bob")
    lastuse.note(store, {"alice": True, "bob": False}, USED)
    give_scripts(store, "alice")
    shared = evolve(entry, acl={"alice": "lrs", "-eve": "w"})
    transact(store.mailboxes.env, lambda txn: store.mailboxes.write(shared, txn))
    gone = store.mailboxes.find(MailboxName.parse("user/alice/Gone"))
    if gone is not None:
        deletion.delete_mailbox(store, gone.name)
    return store
