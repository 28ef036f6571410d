"""A user gets another name, in pieces: cut off before any of them, and what others do meanwhile."""

import itertools
from functools import partial

import pytest

from mboxlist.names import MailboxName
from store import offload
from store.accounts.apppasswords.accessrecord import Access
from store.accounts.base import Status, delivery_problem
from store.check.wholecheck import check_all
from store.delivery import durable
from store.delivery.commit import Delivered, Target
from store.errors import Problem, StoreError
from store.filtering import userscripts
from store.finishing import ofusers
from store.finishing.cutoperations import Finishing
from store.mailboxes import authorization, deletion, namespace, subscribing
from store.operations import operationrecord
from store.partition.partition import Partition
from store.quota import roots
from store.users import accesschanges, lifecycle, renaming
from store.values import Secret
from tests.store.users.test_lifecycle import BODY, Cut, everything
from tests.support.stores.stores import PASSWORD, deliver, reopen_after_crash

BOXES = 3
PIECES = 20             # transactions, when each piece is of one


@pytest.fixture
def small(monkeypatch):
    """Each piece is of one."""
    for where, name in ((namespace, "RENAMED"), (renaming, "ROWS"), (roots, "ARRANGED")):
        monkeypatch.setattr(where, name, 1)


@pytest.fixture
def furnished(store):
    everything(store)
    for number in range(BOXES):
        namespace.create_mailbox(store, MailboxName("alice", f"Archive/{number}"))
    deliver(store, BODY, "user/alice/Archive/1")
    return store


def before_piece(faults, number, work):
    """`work` is done before that transaction of a renaming."""
    count = itertools.count()

    def call(real, *given, **options):
        if next(count) == number:
            work()
        return real(*given, **options)

    faults.around(renaming, "transact", call)
    faults.around(Partition, "transact", call)
    return count


def cut():
    raise Cut


def pieces(store, faults):
    """How many transactions a renaming of bob has, who has the same as alice has."""
    count = before_piece(faults, -1, cut)
    renaming.rename_user(store, "alice", "anna")
    faults.mend()
    return next(count)


def judge_cut(store):
    """The check finds nothing, nobody is let in, and mail for either name is put off."""
    assert check_all(store) == []
    for name in ("alice", "anna"):
        account = store.directory.find(name)
        with pytest.raises(StoreError):
            store.directory.authenticate(name, Secret(PASSWORD))
        assert account is None or delivery_problem(account.status) is Problem.USER_INACTIVE
    assert store.directory.find("alice") is not None


def test_all_pieces_make_the_whole(furnished, faults, small):
    many = pieces(furnished, faults)
    assert many == PIECES
    assert [entry.name.path for entry in furnished.names("anna")] == [
        "Archive", *(f"Archive/{number}" for number in range(BOXES)), "INBOX"]
    assert roots.quota(furnished, "anna/Archive").messages == 2
    assert check_all(furnished) == [] and list(furnished.mailboxes.renames.all()) == []


@pytest.mark.parametrize("who", ["typed again", "the next start"])
@pytest.mark.parametrize("piece", range(1, PIECES, 2))
def test_cut_off_before_a_piece(furnished, faults, small, piece, who):
    store = furnished
    before_piece(faults, piece, cut)
    with pytest.raises(Cut):
        renaming.rename_user(store, "alice", "anna")
    faults.mend()
    judge_cut(store)
    if who == "typed again":
        renaming.rename_user(store, "alice", "anna")
    else:
        store.__dict__.update(reopen_after_crash(store).__dict__)
        judge_cut(store)
        ofusers.go_on_renaming(store)
    assert check_all(store) == [] and list(store.mailboxes.renames.all()) == []
    assert roots.quota(store, "anna/Archive").messages == 2 and roots.quota(store, "anna").messages == 1
    assert store.directory.find("alice") is None and store.directory.find("anna").status is Status.ACTIVE
    assert subscribing.subscriptions(store, "bob") == ["user/anna/Archive"]
    with pytest.raises(StoreError) as refused:
        renaming.rename_user(store, "alice", "anna")
    assert refused.value.problem is Problem.NO_USER


def test_a_start_finds_it_by_the_record_of_the_command(furnished, faults, small):
    """The server does it, and says so; a command that is under way is left alone."""
    before_piece(faults, 9, cut)
    with pytest.raises(Cut), operationrecord.begun(
            furnished.root, "user rename", "onecopy user rename", {"old": "alice", "new": "anna"},
            holds=["alice", "anna"]):
        try:
            renaming.rename_user(furnished, "alice", "anna")
        finally:
            faults.mend()
            Finishing().at_start(furnished)
            judge_cut(furnished)
    Finishing().at_start(furnished)
    assert check_all(furnished) == [] and furnished.directory.find("anna").status is Status.ACTIVE


@pytest.mark.parametrize("piece", [1, 4, 9, PIECES - 1])
def test_mail_that_is_under_way_is_delivered(furnished, faults, small, piece):
    """A relay has been told that the recipient takes mail; then the mailbox has another name."""
    inbox = furnished.entry(MailboxName("alice", "INBOX"))
    def arrives():
        staged = furnished.stage(inbox)
        staged.write(BODY)
        assert isinstance(offload.now(durable.deliver(furnished, staged, [Target(inbox)], None))[0], Delivered)

    before_piece(faults, piece, arrives)
    renaming.rename_user(furnished, "alice", "anna")
    faults.mend()
    assert furnished.status(furnished.entry(MailboxName("anna", "INBOX"))).messages == 2
    assert roots.quota(furnished, "anna").messages == 2 and check_all(furnished) == []


def test_what_is_refused_meanwhile(furnished, faults, small):
    """Nobody changes the names of either, or the rows; others go on."""
    furnished.patience = 0.0
    refused = []

    def others():
        faults.mend()
        for work in (
                lambda: namespace.create_mailbox(furnished, MailboxName("anna", "New")),
                lambda: deletion.delete_mailbox(furnished, furnished.names("alice")[0].name),
                lambda: authorization.set_acl(furnished, furnished.names("anna")[0].name, "bob", "l"),
                lambda: furnished.directory.change("alice", status=Status.ACTIVE),
                lambda: furnished.directory.change("anna", status=Status.ACTIVE),
                lambda: lifecycle.remove_user(furnished, "anna"),
                lambda: renaming.rename_user(furnished, "alice", "zoe"),
                lambda: renaming.rename_user(furnished, "anna", "zoe"),
                lambda: userscripts.activate(furnished, "alice", ""),
                *(partial(work, furnished, name, *given) for name in ("alice", "anna") for work, given in (
                    (subscribing.subscribe, ("New",)), (subscribing.unsubscribe, ("Archive",)),
                    (roots.set_quota, (1000,)), (roots.change_limits, (1000,)),
                    (accesschanges.change_access, (Access.without_second_factor,))))):
            with pytest.raises(StoreError) as error:
                work()
            refused.append(error.value.problem)
        namespace.create_mailbox(furnished, MailboxName("bob", "New"))

    before_piece(faults, 4, others)
    renaming.rename_user(furnished, "alice", "anna")
    assert set(refused) == {Problem.BUSY} and check_all(furnished) == []


@pytest.mark.parametrize("piece", range(1, PIECES, 3))
def test_what_a_client_grants_meanwhile_is_the_users(furnished, faults, small, piece):
    """SETACL takes any name, and tells nothing of it (RFC 4314 §6): whoever gets the old name later has no right by
    that."""
    box = MailboxName("bob", "INBOX")

    def grants():
        faults.mend()
        authorization.set_acl(furnished, box, "alice", "lr", any_name=True)

    before_piece(faults, piece, grants)
    renaming.rename_user(furnished, "alice", "anna")
    held = furnished.entry(box).acl
    assert "alice" not in held and held["anna"] == "lr" and check_all(furnished) == []


@pytest.mark.parametrize("piece", range(1, PIECES, 3))
def test_what_an_owner_takes_away_meanwhile_is_gone(furnished, faults, small, piece):
    box = MailboxName("bob", "INBOX")
    authorization.set_acl(furnished, box, "alice", "lr")

    def takes():
        faults.mend()
        authorization.set_acl(furnished, box, "alice", "")

    before_piece(faults, piece, takes)
    renaming.rename_user(furnished, "alice", "anna")
    assert not {"alice", "anna"} & furnished.entry(box).acl.keys() and check_all(furnished) == []


def test_nobody_hears_of_quota(furnished, faults, small):
    """A user who is over the limit stays so: no event says that there is room again."""
    heard = faults.watch(furnished.partitions["primary"].quotas, "noticed", lambda *given: given[:2])
    roots.set_quota(furnished, "alice", len(BODY))
    with pytest.raises(StoreError):
        roots.admit(furnished, *furnished.quota_of(furnished.entry(MailboxName("alice", "INBOX"))), 1)
    heard.clear()
    renaming.rename_user(furnished, "alice", "anna")
    assert heard == [] and furnished.partitions["primary"].quotas.find("anna").refused
