"""Quota counters of an open store beside the records themselves, and what else only such a store knows."""

from collections.abc import Collection, Iterable

from mboxlist.entry import MailboxId
from store.housekeeping import notices
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.quota import roots as quotaroots
from store.quota.roots import all_roots
from store.rebuild.recount import recount
from store.store import Store
from store.tables.counters import counters_of
from store.tables.quotatable import DOMAIN, QuotaUse
from tools.spark.report.lists import class_of_service


def uses(store: Store, users: Iterable[str]) -> dict[str, QuotaUse]:
    """Use and limits of each quota root but those of domains, over all partitions; also of users without a row."""
    return {root: quotaroots.quota(store, root) for root in {*all_roots(store), *users} if not root.startswith(DOMAIN)}


def classes(store: Store, users: Iterable[str]) -> dict[str, str]:
    """The class of service of each of these users who has an account."""
    accounts = filter(None, map(store.directory.find, users))
    return {account.user: class_of_service(account.groups) for account in accounts if not account.removed}


def drift(store: Store, roots: Collection[str]) -> dict[str, tuple[int, int]]:
    """By how many octets and messages the counters of these roots are more than their mailboxes hold, where they are.

    Each root is locked while it is counted, so that a store in use has no drift unless it really has. (What the files
    say may be a minute old.)
    """
    found: dict[str, tuple[int, int]] = {}
    for partition in store.partitions.values():
        mailboxes: dict[str, list[MailboxId]] = {root: [] for root in roots}
        for mailbox, state in partition.all_states():
            if state.quota_root in mailboxes and not state.removed:
                mailboxes[state.quota_root].append(mailbox)
        for root, ids in mailboxes.items():
            octets, messages = _apart(partition, root, ids)
            before = found.get(root, (0, 0))
            found[root] = before[0] + octets, before[1] + messages
    return {root: off for root, off in found.items() if off != (0, 0)}


def _apart(partition: Partition, root: str, mailboxes: Collection[MailboxId]) -> tuple[int, int]:
    def work(txn: WriteTxn) -> tuple[int, int]:
        octets = messages = 0
        for mailbox in mailboxes:
            state = txn.any_state(mailbox)
            if state is None or state.removed or state.quota_root != root:
                continue                        # deleted, or renamed, meanwhile
            counters = counters_of(txn.load(mailbox))
            octets += counters.octets
            messages += counters.messages
        use = partition.quotas.find(root, txn.handle)
        return use.octets - octets, use.messages - messages

    return partition.transact(work)


def fix(store: Store) -> list[str]:
    """Recount everything, as `onecopy reconstruct` does; what was corrected."""
    return [f"{one.where}: {one.what}" for partition in store.partitions.values() for one in recount(store, partition)]


def notify(store: Store) -> list[str]:
    """Send the notices that are due; the roots whose users got one. Raises StoreError."""
    notices.template(store.settings)
    return [root for partition, root in list(notices.pending(store)) if notices.send(store, (partition, root))]
