"""What a look beside the servers has found of one mailbox, or one quota root: whether it is so, found out by a
transaction that locks no more than that. Where mail comes all the time a look finds something of each mailbox that mail
has come to meanwhile, however often it looks; and nobody waits for a mailbox to be looked at alone.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import partial

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxId
from mboxlist.usermoves import Phase
from store.check.mailboxcheck import NONE, ROOT, UNLIKE, Mailboxes, look_at_one, wrong_use
from store.partition.partition import Partition
from store.store import Store
from store.values import Finding

TRIES = 3               # of a root, while mailboxes come to it


def confirmed(store: Store, partition: Partition, found: Iterable[Finding], mailboxes: Mailboxes
              ) -> tuple[list[Finding], set[str]]:
    """What is so of what was `found`; and the places of which this does not tell: for another look at everything."""
    wrong, others, roots, suspects = list[Finding](), set[str](), set[str](), set[MailboxId]()
    for finding in found:
        if finding.where in mailboxes.suspects and not finding.what.endswith(UNLIKE):
            suspects |= mailboxes.suspects[finding.where]
        elif finding.where.startswith(ROOT):
            roots.add(finding.where.removeprefix(ROOT))
        else:
            others.add(finding.where)
    for mailbox in sorted(suspects):
        wrong += transact(partition.env, partial(_look_at_mailbox, store, partition, mailbox, mailboxes), reads=True)
    for root in sorted(roots):
        wrong += _look_at_root(partition, root)
    return wrong, others


def _look_at_mailbox(store: Store, place: Partition, mailbox: MailboxId, before: Mailboxes, txn: Txn) -> list[Finding]:
    """Its figures first: whoever changes anything of it changes these. What it had none of to be undeleted it may have
    by now, and nothing is told of that."""
    state = place.any_state(mailbox, txn)
    if state is None:
        return []                           # it is gone
    removed = place.removed.uids(mailbox, txn) if mailbox in before.removed else NONE
    coming = mailbox in store.mailboxes.moves.mailboxes(Phase.COMING)
    return list(look_at_one(store, place, mailbox, state, removed, txn, coming=coming))


def _look_at_root(place: Partition, root: str) -> Iterator[Finding]:
    """Wrong is what is wrong for the mailboxes that were charged to it before, and are after."""
    charged = _charged_to(place, root)
    for _ in range(TRIES):
        finding = transact(place.env, partial(_wrong_use, place, root, charged), reads=True)
        before, charged = charged, _charged_to(place, root)
        if finding is None or charged == before:
            yield from filter(None, (finding,))
            return


def _charged_to(place: Partition, root: str) -> list[MailboxId]:
    return sorted(mailbox for mailbox, state in place.all_states() if state.quota_root == root)


def _wrong_use(place: Partition, root: str, mailboxes: Collection[MailboxId], txn: Txn) -> Finding | None:
    """Figures first, in order of id, as everybody locks them."""
    states = [state for mailbox in mailboxes if (state := place.any_state(mailbox, txn)) is not None
              and state.quota_root == root and not state.removed]
    return wrong_use(root, place.quotas.find(root, txn), sum(state.octets for state in states),
                     sum(state.messages for state in states))
