r"""Who may do what with whose mailbox (RFC 4314), as the store decides it."""

import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes import deletion, firstuse, namespace
from store.mailboxes.authorization import (
    annotate,
    annotations,
    changeable,
    may,
    may_create,
    parent,
    rights,
    set_acl,
    visible,
)
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.deletion import undelete_mailbox
from store.mailboxes.flagchanges import change_flags
from store.rebuild.recount import rebuild_rights
from store.users import lifecycle
from store.users.renaming import leave_others, rename_user
from store.users.restorable import forget_user
from store.values import Flag, FlagAction, Flags
from tests.support.stores.purging import purge_mailboxes
from tests.support.stores.stores import HASH, deliver, make_store, reopen, reopen_after_crash

EVERYTHING = "lrswipkxtea"
BODY = b"Subject: x\r\n\r\nhello\r\n"


def named(text):
    return MailboxName.parse(text)


@pytest.fixture
def work(store):
    """alice's mailbox Work; carol is in the groups staff and board."""
    firstuse.inbox(store, store.directory.add("carol", HASH))
    store.directory.change("carol", groups=("staff", "board"))
    namespace.create_mailbox(store, named("user/alice/Work"))
    return named("user/alice/Work")


def share(store, name, **entries):
    for identifier, held in entries.items():
        set_acl(store, name, identifier, held)
    return store.entry(name)


def seen_by(store, user):
    return [str(entry.name) for entry in visible(store, user)]


def refused(call, *arguments):
    with pytest.raises(StoreError) as caught:
        call(*arguments)
    return caught.value.problem


# Rights

def test_without_a_list_a_mailbox_is_its_owners_alone(store, work):
    namespace.create_mailbox(store, named("public/news"))
    for name, all_rights in ((work, ["alice"]), (named("public/news"), [])):
        entry = store.entry(name)
        for user in ("alice", "bob", "carol", "nobody", ""):
            assert rights(store, user, entry) == (EVERYTHING if user in all_rights else "")
            assert may(store, user, entry, "r") == (user in all_rights)


def test_users_groups_and_anyone_add_up(store, work):
    entry = share(store, work, **{"bob": "lr", "group:staff": "lrs", "group:board": "i", "anyone": "p"})
    assert rights(store, "bob", entry) == "lrp"
    assert rights(store, "carol", entry) == "lrsip"
    assert rights(store, "alice", entry) == EVERYTHING
    assert rights(store, "", entry) == "p"
    store.directory.change("carol", groups=())
    assert rights(store, "carol", entry) == "p"


def test_negative_rights_are_taken_from_all_that_was_granted(store, work):
    entry = share(store, work, **{"anyone": "lrsp", "-bob": "s", "carol": "w", "-group:board": "ws"})
    assert rights(store, "bob", entry) == "lrp"
    assert rights(store, "carol", entry) == "lrp"
    entry = share(store, work, **{"-anyone": "p"})
    assert rights(store, "", entry) == "lrs"
    assert rights(store, "alice", entry) == EVERYTHING.replace("p", "")


def test_a_stranger_is_not_the_owner_of_public_mailboxes(store, work):
    namespace.create_mailbox(store, named("public/news"))
    entry = share(store, named("public/news"), bob="lrp")
    assert rights(store, "", entry) == ""
    assert not may_create(store, "", named("public/more"))


def test_an_owner_cannot_be_locked_out(store, work):
    entry = share(store, work, **{"alice": "r", "-alice": "lra"})
    assert rights(store, "alice", entry) == "la"
    assert rights(store, "alice", share(store, work, **{"-alice": "", "alice": ""})) == EVERYTHING


# set_acl

def test_what_was_set_is_there_after_a_crash(tmp_path):
    store = make_store(tmp_path / "store")
    inbox = named("user/alice/INBOX")
    share(store, inbox, bob="lrs")
    annotate(store, store.entry(inbox), "/shared/comment", b"x")
    again = reopen_after_crash(store)
    assert again.entry(inbox).acl == {"bob": "lrs"}
    assert seen_by(again, "bob") == ["user/alice/INBOX"]
    assert again.mailboxes.annotations.get(again.entry(inbox).id, "/shared/comment") == b"x"
    assert check(again) == []
    again.close()


def test_it_is_news(store, work):
    heard = []
    store.news.subscribe(store.entry(work).id, lambda: heard.append(1))
    share(store, work, bob="l")
    assert heard == [1]


def test_who_does_not_exist_gets_nothing(store, work):
    for identifier in ("dave", "-dave", "alice2@example.com"):
        assert refused(set_acl, store, work, identifier, "lr") is Problem.NO_USER
        assert refused(set_acl, store, work, identifier, "+l") is Problem.NO_USER
    for identifier, modification in (("bob", "z"), ("", "l"), ("group:", "l"), ("--bob", "l"), ("a b", "l")):
        assert refused(set_acl, store, work, identifier, modification) is Problem.BAD_NAME
    assert refused(set_acl, store, named("user/alice/None"), "bob", "l") is Problem.NO_MAILBOX
    assert store.entry(work).acl == {}


def test_users_are_named_as_the_directory_names_them(store, work):
    assert set_acl(store, work, "BOB@Example.ORG", "l").acl == {"bob": "l"}
    assert set_acl(store, work, "-Bob", "r").acl == {"-bob": "r", "bob": "l"}
    assert set_acl(store, work, "bob@example.org", "").acl == {"-bob": "r"}


def test_rights_can_be_taken_from_one_who_is_no_more(store, work):
    share(store, work, bob="lrs")
    lifecycle.remove_mail(store, "bob")
    store.directory.remove("bob")
    assert set_acl(store, work, "bob", "-s").acl == {"bob": "lr"}
    assert refused(set_acl, store, work, "bob", "+w") is Problem.NO_USER
    assert set_acl(store, work, "bob", "").acl == {}


def test_an_owner_gives_up_rights_one_by_one(store, work):
    """RFC 4314 §3.1: all are there to begin with, though the list does not say so."""
    assert rights(store, "alice", set_acl(store, work, "alice", "-wt")) == "lrsipkxea"
    assert rights(store, "alice", set_acl(store, work, "alice", "+w")) == "lrswipkxea"
    assert rights(store, "alice", set_acl(store, work, "alice", "-lrswipkxtea")) == "la"
    assert rights(store, "alice", set_acl(store, work, "alice", "+lrswipkxtea")) == EVERYTHING
    assert store.entry(work).acl == {}


@pytest.mark.parametrize("user", ["-bob", "anyone", "group:staff", "-group:staff"])
def test_nobody_is_called_like_another_identifier(store, work, user):
    """A user -bob would have what is taken from bob."""
    share(store, work, **{"-bob": "lrs", "group:staff": "lr"})
    assert refused(lambda: store.directory.add(user, HASH)) is Problem.BAD_NAME
    assert refused(rename_user, store, "bob", user) is Problem.BAD_NAME
    assert rights(store, user, store.entry(work)) == ""             # nor by way of a directory that knows such a user
    assert seen_by(store, user) == []


# Which mailboxes a user sees

def test_visible(store, work):
    for name in ("public/news", "public/staff", "user/alice/Old", "user/bob/Notes"):
        namespace.create_mailbox(store, named(name))
    share(store, work, bob="lr", carol="r")
    share(store, named("public/news"), **{"anyone": "lr", "-bob": "l"})
    share(store, named("public/staff"), **{"group:staff": "l"})
    share(store, named("user/bob/Notes"), bob="lr", anyone="l")
    share(store, named("user/alice/Old"), anyone="p")
    assert seen_by(store, "alice") == ["public/news", "user/bob/Notes"]
    assert seen_by(store, "bob") == ["user/alice/Work"]                     # its own mailboxes are not those of others
    assert seen_by(store, "carol") == ["public/news", "public/staff", "user/bob/Notes"]
    namespace.rename_mailbox(store, work, named("user/alice/Job"))
    assert seen_by(store, "bob") == ["user/alice/Job"]
    deletion.delete_mailbox(store, named("user/alice/Job"))
    assert seen_by(store, "bob") == []
    undelete_mailbox(store, named("user/alice/Job"))
    assert seen_by(store, "bob") == ["user/alice/Job"]


# New mailboxes

def test_who_may_create(store, work):
    namespace.create_mailbox(store, named("public/news"))
    share(store, work, bob="lk", carol="lrswi")
    share(store, named("public/news"), **{"group:staff": "k"})
    below, deep = named("user/alice/Work/a"), named("user/alice/Work/a/b/c")
    assert parent(store, deep).name == work
    assert [may_create(store, user, below) for user in ("alice", "bob", "carol", "")] == [True, True, False, False]
    assert [may_create(store, user, deep) for user in ("alice", "bob", "carol", "")] == [True, True, False, False]
    top = named("user/alice/Top")
    assert parent(store, top) is None
    assert [may_create(store, user, top) for user in ("alice", "bob", "")] == [True, False, False]
    assert [may_create(store, user, named("public/x")) for user in ("alice", "carol", "")] == [False] * 3
    assert [may_create(store, user, named("public/news/x")) for user in ("alice", "carol", "")] == [False, True, False]
    share(store, work, **{"alice": "lr"})           # who took k from itself has none below either
    assert not may_create(store, "alice", below)


def test_a_mailbox_made_below_a_shared_one_is_shared_alike(store, work):
    share(store, work, **{"bob": "lr", "-carol": "l", "anyone": "l"})
    made = namespace.create_mailbox(store, named("user/alice/Work/2026/May"))
    assert made.acl == store.entry(work).acl == {"-carol": "l", "anyone": "l", "bob": "lr"}
    assert "user/alice/Work/2026/May" in seen_by(store, "bob")
    set_acl(store, work, "bob", "")
    assert store.entry(made.name).acl["bob"] == "lr"        # each has its own list from then on
    assert namespace.create_mailbox(store, named("user/alice/Workshop")).acl == {}


def test_rights_that_are_withdrawn_meanwhile_are_not_inherited(store, work, faults):
    share(store, work, bob="lrs")
    partition = store.partitions["primary"]
    faults.before(partition, "transact", lambda *_: set_acl(store, work, "bob", ""))
    made = namespace.create_mailbox(store, named("user/alice/Work/late"))
    faults.mend()
    assert made.acl == store.entry(made.name).acl == {}
    assert seen_by(store, "bob") == []


def test_a_mailbox_that_lost_its_records_is_shared_as_before(store, work):
    """Not as the one above it, which may be open to more."""
    share(store, work, anyone="lr")
    inner = namespace.create_mailbox(store, named("user/alice/Work/inner"))
    share(store, inner.name, anyone="", bob="lr")
    deletion.destroy(store.partitions["primary"], inner.id, 0)
    store.close()
    reopen(store, store.settings)
    assert store.entry(inner.name).id != inner.id
    assert store.entry(inner.name).acl == {"bob": "lr"}
    assert seen_by(store, "carol") == ["user/alice/Work"]


# Flags (RFC 4314 §4): what a STORE or COPY may not set is left out, and the rest is done, if there is any

ALL = Flag.SEEN | Flag.DELETED | Flag.ANSWERED | Flag.FLAGGED | Flag.DRAFT
ALLOWED = [("lr", Flag(0), False), ("lrs", Flag.SEEN, False), ("lrt", Flag.DELETED, False),
           ("lrw", Flag.ANSWERED | Flag.FLAGGED | Flag.DRAFT, True), ("lrswt", ALL, True)]


def flags_in(store, name, reader):
    mailbox = store.open_mailbox(store.entry(name), reader)
    return [(Flag(int(row["flags"])), mailbox.keyword_names(int(row["keywords"]))) for row in mailbox.rows]


def change(store, entry, action, flags, *, nothing):
    """Bob's STORE; `nothing`: it may change none of these."""
    if nothing:
        assert refused(lambda: change_flags(store, entry, [1], action, flags, reader="bob")) is Problem.NO_PERMISSION
    else:
        change_flags(store, entry, [1], action, flags, reader="bob")


@pytest.mark.parametrize(("held", "allowed", "keywords"), ALLOWED)
def test_a_reader_changes_the_flags_that_it_may(store, work, held, allowed, keywords):
    entry = share(store, work, bob=held)
    assert changeable(store, "bob", entry) == (allowed, keywords)
    deliver(store, BODY, str(work))
    everything = Flags(ALL, ("later",))
    change(store, entry, FlagAction.ADD, everything, nothing=not allowed)
    assert flags_in(store, work, "bob") == [(allowed, ("later",) if keywords else ())]
    assert flags_in(store, work, "alice") == [(allowed & ~Flag.SEEN, ("later",) if keywords else ())]   # \Seen is bob's


@pytest.mark.parametrize(("held", "allowed", "keywords"), ALLOWED)
@pytest.mark.parametrize("action", [FlagAction.REMOVE, FlagAction.REPLACE])
def test_a_reader_takes_away_only_what_it_may(store, work, held, allowed, keywords, action):
    entry = share(store, work, bob="lrswt")
    deliver(store, BODY, str(work))
    everything = Flags(ALL, ("later",))
    change_flags(store, entry, [1], FlagAction.ADD, everything, reader="bob")
    entry = share(store, work, bob=held)
    change(store, entry, action, everything if action is FlagAction.REMOVE else Flags(), nothing=not allowed)
    assert flags_in(store, work, "bob") == [(ALL & ~allowed, () if keywords else ("later",))]


@pytest.mark.parametrize(("held", "allowed", "keywords"), ALLOWED)
def test_a_copy_has_the_flags_that_the_reader_may_set(store, work, held, allowed, keywords):
    entry = share(store, work, bob=held + "i")
    deliver(store, BODY, "user/bob/INBOX", flags=Flags(ALL, ("later",)))
    inbox = store.entry(named("user/bob/INBOX"))
    assert copy_messages(store, inbox, entry, [1], reader="bob") == [1]
    assert flags_in(store, work, "bob") == [(allowed, ("later",) if keywords else ())]


def test_the_owner_and_the_store_itself_change_all(store, work):
    entry = share(store, work, bob="lr")
    assert changeable(store, "alice", entry) == changeable(store, "", entry) == (ALL, True)
    entry = share(store, work, alice="lr")
    assert changeable(store, "alice", entry) == (Flag(0), False)


# Annotations

def test_annotations(store, work):
    entry = store.entry(work)
    annotate(store, entry, "/shared/comment", b"for all")
    annotate(store, entry, "/private/comment", b"", "bob")
    for name, value, user in (("/shared/x", b"x" * 100_000, ""), ("/private/x", b"", ""), ("/shared/x", b"", "bob")):
        assert refused(annotate, store, entry, name, value, user) is Problem.LIMIT
    assert set(store.mailboxes.annotations.of(entry.id)) == {
        ("/shared/comment", "", b"for all"), ("/private/comment", "bob", b"")}
    annotate(store, entry, "/shared/comment", None)
    annotate(store, entry, "/shared/comment", None)
    assert list(store.mailboxes.annotations.of(entry.id)) == [("/private/comment", "bob", b"")]


def test_annotations_stay_until_the_purge(store, work):
    entry = store.entry(work)
    annotate(store, entry, "/shared/comment", b"x")
    deletion.delete_mailbox(store, work)
    assert undelete_mailbox(store, work).id == entry.id
    assert store.mailboxes.annotations.get(entry.id, "/shared/comment") == b"x"
    deletion.delete_mailbox(store, work)
    assert purge_mailboxes(store, now=4_000_000_000) == 1
    assert list(store.mailboxes.annotations.of(entry.id)) == []
    assert refused(annotate, store, entry, "/shared/comment", b"x") is Problem.NO_MAILBOX
    assert list(store.mailboxes.annotations.mailboxes()) == []


def test_nothing_is_noted_of_a_deleted_mailbox(store, work):
    entry = store.entry(work)
    deletion.delete_mailbox(store, work)
    assert refused(annotate, store, entry, "/shared/comment", b"x") is Problem.NO_MAILBOX


def test_each_sees_its_own_annotations_and_those_for_all(store, work):
    entry = store.entry(work)
    for name, value, user in (("/shared/comment", b"for all", ""), ("/private/comment", b"bob's", "bob"),
                              ("/private/comment", b"carol's", "carol"), ("/private/color", b"red", "carol")):
        annotate(store, entry, name, value, user)
    assert annotations(store, entry, "bob") == {"/shared/comment": b"for all", "/private/comment": b"bob's"}
    assert annotations(store, entry, "carol") == {
        "/shared/comment": b"for all", "/private/comment": b"carol's", "/private/color": b"red"}
    assert annotations(store, entry, "alice") == {"/shared/comment": b"for all"}


# Users who get another name, or go

def test_rights_follow_a_renamed_user(store, work):
    namespace.create_mailbox(store, named("public/news"))
    share(store, work, **{"bob": "lr", "-bob": "s", "anyone": "ls", "carol": "l"})
    share(store, named("public/news"), bob="lrp")
    annotate(store, store.entry(work), "/private/comment", b"bob's", "bob")
    rename_user(store, "bob", "robert")
    assert store.entry(work).acl == {"robert": "lr", "-robert": "s", "anyone": "ls", "carol": "l"}
    assert seen_by(store, "robert") == ["public/news", "user/alice/Work"]
    assert rights(store, "robert", store.entry(work)) == "lr"
    assert list(store.mailboxes.granted.of(["bob"])) == []
    assert store.mailboxes.annotations.get(store.entry(work).id, "/private/comment", "robert") == b"bob's"


def test_rights_go_with_a_forgotten_user(store, work):
    share(store, work, **{"bob": "lr", "-bob": "s", "anyone": "l"})
    forget_user(store, "bob")
    assert store.entry(work).acl == {"anyone": "l"}
    firstuse.inbox(store, store.directory.add("bob", HASH))           # another person
    assert rights(store, "bob", store.entry(work)) == "l"


@pytest.mark.parametrize("becomes", ["robert", None])
def test_a_mailbox_that_comes_back_knows_it_too(store, work, becomes):
    """Otherwise the next user who is called bob would have rights that were given to another."""
    share(store, work, **{"bob": "lr", "-bob": "s", "anyone": "l"})
    deletion.delete_mailbox(store, work)
    if becomes:
        rename_user(store, "bob", becomes)
    else:
        forget_user(store, "bob")
    undelete_mailbox(store, work)
    assert store.entry(work).acl == ({becomes: "lr", f"-{becomes}": "s"} if becomes else {}) | {"anyone": "l"}


def test_an_acl_that_is_changed_while_its_users_name_is_taken_out_of_all(store, work, faults):
    """The list has been read, and the change is committed before the row is written again."""
    share(store, work, bob="lr")

    def late(real, txn=None):
        yield from list(real(txn))
        changed = evolve(store.entry(work), acl={"bob": "lr", "carol": "lr"})
        transact(store.mailboxes.env, lambda other: store.mailboxes.write(changed, other), seconds=0)
        faults.mend()

    faults.around(store.mailboxes, "all", late)
    leave_others(store, "bob", None)
    assert store.entry(work).acl == {"carol": "lr"}
    assert check(store) == []


def test_a_right_that_is_taken_away_while_the_table_of_rights_is_mended(store, work, faults):
    entry = share(store, work, bob="lr")
    transact(store.mailboxes.env, lambda txn: store.mailboxes.granted.update(entry, None, txn))

    def late(real, granted, entries):
        yield from list(real(granted, entries))
        transact(store.mailboxes.env, lambda txn: store.mailboxes.write(evolve(entry, acl={}), txn), seconds=0)

    faults.around(type(store.mailboxes.granted), "differences", late)
    assert rebuild_rights(store) == []
    faults.mend()
    assert store.mailboxes.granted.of(["bob"]) == set()
    assert check(store) == []
