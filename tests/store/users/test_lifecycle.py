"""Users who are removed, restored, renamed; partitions that come and go."""

import time

import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.accounts.base import Status
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.housekeeping import interrupted
from store.housekeeping.tasks import Round, every_process, one_process
from store.mailboxes import authorization, deletion, namespace, placement, subscribing
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.partitions import partitionmove, volumes
from store.quota import roots
from store.settings import Settings
from store.store import Store
from store.users import lifecycle, renaming
from store.values import Flag, FlagAction, Flags, Secret
from tests.support.stores.stores import PASSWORD, SMALL, deliver, reopen_after_crash

BODY = b"Subject: x\r\n\r\nx\r\n"


def share(store: Store, name: MailboxName, acl: dict[str, str]) -> None:
    transact(store.mailboxes.env, lambda txn: store.mailboxes.write(evolve(store.entry(name), acl=acl), txn))


def everything(store: Store) -> None:
    """Whatever a name may be in."""
    namespace.create_mailbox(store, MailboxName("alice", "Archive"))
    namespace.create_mailbox(store, MailboxName("alice", "Old"))
    deliver(store, BODY, "user/alice/INBOX", "user/alice/Archive", "user/bob/INBOX")
    deletion.delete_mailbox(store, MailboxName("alice", "Old"))
    subscribing.subscribe(store, "alice", "Archive")
    share(store, MailboxName("alice", "Archive"), {"bob": "lr"})
    share(store, MailboxName("bob", "INBOX"), {"alice": "lrs", "-alice": "x"})
    subscribing.subscribe(store, "bob", "user/alice/Archive")
    roots.set_quota(store, "alice", 5000, 10)
    roots.set_quota(store, "alice/Archive", 1000)
    change_flags(store, store.entry(MailboxName("bob", "INBOX")), [1], FlagAction.ADD, Flags(Flag.SEEN), reader="alice")
    for partition in store.partitions.values():
        partition.env.flush()


def everything_is_annas(store: Store) -> None:
    assert store.names("alice") == [] and store.directory.find("alice") is None
    assert [entry.name.path for entry in store.names("anna")] == ["Archive", "INBOX"]
    assert [entry.name.owner for _, entry in store.mailboxes.deleted.all()] == ["anna"]
    assert subscribing.subscriptions(store, "anna") == ["Archive"] and subscribing.subscriptions(store, "alice") == []
    assert subscribing.subscriptions(store, "bob") == ["user/anna/Archive"]
    inbox = store.entry(MailboxName("bob", "INBOX"))
    assert inbox.acl == {"anna": "lrs", "-anna": "x"}
    assert [authorization.may(store, user, inbox, "s") for user in ("anna", "alice")] == [True, False]
    assert (roots.quota(store, "anna").octets, roots.quota(store, "anna").octet_limit) == (len(BODY), 5000)
    assert (roots.quota(store, "anna/Archive").octets, roots.quota(store, "anna/Archive").octet_limit) == (len(BODY),
                                                                                                           1000)
    assert [int(store.open_mailbox(inbox, reader).rows["flags"][0]) for reader in ("anna", "bob")] == [Flag.SEEN, 0]
    assert store.directory.authenticate("anna", Secret(PASSWORD)).user == "anna"


def test_everything_goes_by_the_new_name(store):
    everything(store)
    uids = {entry.name.path: entry.uidvalidity for entry in store.names("alice")}
    renaming.rename_user(store, "alice", "anna")
    everything_is_annas(store)
    assert {entry.name.path: entry.uidvalidity for entry in store.names("anna")} == uids
    deliver(store, BODY, "user/anna/INBOX")
    assert roots.quota(store, "anna").messages == 2


class Cut(Exception):
    """It ends here."""


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize(("owner", "step"), [
    (renaming, "_rename_mailboxes"), (renaming, "_rename_on_partition"), (renaming, "_end")])
def test_a_rename_that_is_cut_off_goes_on_when_done_again(store, faults, owner, step, crash):
    everything(store)
    faults.fail(owner, step, Cut)
    with pytest.raises(Cut):
        renaming.rename_user(store, "alice", "anna")
    faults.mend()
    if crash:
        store.__dict__.update(reopen_after_crash(store).__dict__)
    assert store.directory.find("anna").status is Status.INACTIVE       # mail is refused for now
    with pytest.raises(StoreError):
        store.directory.authenticate("anna", Secret(PASSWORD))
    with pytest.raises(StoreError) as refused:
        renaming.rename_user(store, "bob", "anna")
    assert refused.value.problem is Problem.USER_EXISTS
    renaming.rename_user(store, "alice", "anna")
    everything_is_annas(store)
    with pytest.raises(StoreError) as refused:
        renaming.rename_user(store, "alice", "anna")
    assert refused.value.problem is Problem.NO_USER


def test_a_removed_user_can_be_restored_until_the_delay_has_passed(store):
    everything(store)
    store.directory.change("alice", status=Status.INACTIVE)
    now = time.time()
    lifecycle.remove_user(store, "alice", now=now)
    lifecycle.remove_user(store, "alice", now=now + 1000)           # done already
    assert store.directory.find("alice").removed == int(now)
    with pytest.raises(StoreError):
        store.directory.authenticate("alice", Secret(PASSWORD))
    delay = store.settings.user_delay
    assert [list(lifecycle.due(store, now + delay + after)) for after in (-2, 1)] == [[], ["alice"]]
    lifecycle.restore_user(store, "alice")
    assert store.directory.find("alice").status is Status.INACTIVE
    assert list(lifecycle.due(store, now + delay + 1)) == []
    assert len(store.names("alice")) == 2


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.REMOVED])
def test_no_status_but_removed_costs_a_user_its_mail(store, status):
    """That of a deleted user goes, too, when somebody removes the user; and comes back as it was."""
    store.directory.change("alice", status=status)
    assert list(lifecycle.due(store, time.time() + 10 * store.settings.user_delay)) == []
    lifecycle.remove_user(store, "alice")
    lifecycle.restore_user(store, "alice")
    assert store.directory.find("alice").status is status
    renaming.rename_user(store, "alice", "anna")
    assert store.directory.find("anna").status is status


def test_housekeeping_forgets_the_user(store):
    everything(store)
    lifecycle.remove_user(store, "alice", now=time.time() - store.settings.user_delay - 1)
    task, = (task for task in one_process(store) if task.name == "users")
    Round(task, store).step()
    assert store.directory.find("alice") is None and store.names("alice") == []
    assert subscribing.subscriptions(store, "alice") == []
    inbox = store.entry(MailboxName("bob", "INBOX"))
    assert inbox.acl == {} and not authorization.may(store, "alice", inbox, "r")
    assert len(list(store.mailboxes.deleted.all())) == 3        # they can still be brought back
    assert [user.user for user in store.directory.all()] == ["bob"]


def test_what_a_full_disk_kept_from_being_given_back_is_not_taken_off_the_next_user_of_that_name(store, faults):
    """A mailbox is deleted when the list says so; its partition hears of it later where that failed."""
    everything(store)
    with faults:
        faults.fail(deletion, "bury", StoreError(Problem.DISK_FULL))
        deletion.delete_mailbox(store, MailboxName("alice", "Archive"))
    lifecycle.remove_mail(store, "alice")
    for item in list(store.mailboxes.pending.all()):
        interrupted.finish(store, item)
    use = roots.quota(store, "alice")
    assert (use.octets, use.messages) == (0, 0)
    assert check(store) == []


def test_processes_take_up_a_partition_when_they_need_it(store):
    beside = open_store(store.root, SMALL)
    volumes.add(store, "second")
    assert set(beside.partitions) == {"primary"}
    assert volumes.added(beside) == ["second"]
    partitionmove.move_owner(store, "alice", "second")
    assert deliver(beside, BODY, "user/alice/INBOX")[0].uid == 1
    assert set(beside.partitions) == {"primary", "second"}
    third = open_store(store.root, SMALL)
    assert set(third.partitions) == {"primary", "second"}
    volumes.add(third, "third")
    task, = (task for task in every_process(store) if task.name == "partitions")
    Round(task, store).step()
    assert set(store.partitions) == {"primary", "second", "third"}
    with pytest.raises(StoreError) as refused:
        volumes.remove(store, "third")
    assert refused.value.problem is Problem.STORE_IN_USE
    third.close()
    beside.close()
    volumes.remove(store, "third")
    assert not (store.root / "partitions" / "third").exists()


def test_uids_skip_ahead_on_a_partition_that_was_added_before_a_crash(store):
    volumes.add(store, "second")
    partitionmove.move_owner(store, "alice", "second")
    assert deliver(store, BODY, "user/alice/INBOX")[0].uid == 1
    store.__dict__.update(reopen_after_crash(store).__dict__)
    assert deliver(store, BODY, "user/alice/INBOX")[0].uid > 1 << 16


def test_a_partition_whose_volume_is_missing_harms_no_other(store, tmp_path):
    volumes.add(store, "second", tmp_path / "volume")
    partitionmove.move_owner(store, "alice", "second")
    root = store.root
    store.close()
    (tmp_path / "volume").rename(tmp_path / "elsewhere")
    store.__dict__.update(open_store(root, SMALL).__dict__)
    assert deliver(store, BODY, "user/bob/INBOX")[0].uid == 1
    with pytest.raises(StoreError) as refused:
        store.status(store.entry(MailboxName("alice", "INBOX")))
    assert refused.value.problem is Problem.UNAVAILABLE
    (tmp_path / "elsewhere").rename(tmp_path / "volume")
    with pytest.raises(StoreError):                     # nobody has recovered it
        store.status(store.entry(MailboxName("alice", "INBOX")))
    store.close()
    store.__dict__.update(open_store(root, SMALL).__dict__)
    assert store.status(store.entry(MailboxName("alice", "INBOX"))).messages == 0
    assert check(store) == []


@pytest.mark.parametrize("cut", ["_begin", "use_partitions"])
def test_adding_a_partition_that_was_cut_off(store, faults, cut):
    faults.fail(volumes, cut, Cut)
    with pytest.raises(Cut):
        volumes.add(store, "second")
    faults.mend()
    assert set(store.partitions) == {"primary"}
    volumes.add(store, "second")
    partitionmove.move_owner(store, "alice", "second")
    assert deliver(store, BODY, "user/alice/INBOX")[0].uid == 1


def test_where_new_mailboxes_go(store):
    volumes.add(store, "second")
    for chosen, there in (("second", {"second"}), ("least used", {"primary", "second"})):
        store.settings = Settings(default_partition=chosen)
        assert placement.for_new_mail(store) in there
    store.settings = Settings(default_partition="third")
    with pytest.raises(StoreError) as refused:
        placement.for_new_mail(store)
    assert refused.value.problem is Problem.UNAVAILABLE
