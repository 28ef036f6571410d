"""A mailbox that nothing has ever been in takes on the UIDVALIDITY that its like had on another server.

INBOX is there from a user's first login on, before the mail is imported. As long as it has given out no UID, nothing
that a client knows can come to mean another message (RFC 3501 §2.3.1.1), be the new UIDVALIDITY the lower one.
"""

from attrs import evolve

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from store.partition.transactions import WriteTxn
from store.problems import problems
from store.rebuild.liveloader import HIGHEST_UIDVALIDITY
from store.store import Store
from store.tables.state import MailboxState, before_skip, state_key


@problems()
def may_adopt(store: Store, entry: MailboxEntry, validity: int) -> bool:
    """Whether `adopt` would give the mailbox that UIDVALIDITY."""
    return _is_free(store, entry, validity) and _is_unused(store.status(entry))


def _is_free(store: Store, entry: MailboxEntry, validity: int) -> bool:
    return store.mailboxes.former.find(str(entry.name)) < validity <= HIGHEST_UIDVALIDITY


def _is_unused(state: MailboxState) -> bool:
    return not (state.messages or state.logged or state.recent > 1)     # UIDNEXT may have skipped ahead after a crash


def adopt(store: Store, entry: MailboxEntry, validity: int) -> MailboxEntry:
    """The mailbox with that UIDVALIDITY, on disk; as it is, where it has given out UIDs, or an earlier one of the name
    may have given out some under it. Raises StoreError NO_MAILBOX, BUSY."""
    if not _is_free(store, entry, validity):
        return entry

    def figures(txn: WriteTxn) -> bool:
        state = txn.state(entry.id)
        if not _is_unused(state):
            return False
        modseq = state.highestmodseq + 1
        txn.set_state(entry.id, state, evolve(state, uidvalidity=validity, uidnext=1, highestmodseq=modseq,
                                              changed=modseq))
        return True

    def row(txn: Txn) -> MailboxEntry:
        store.mailboxes.skip_identities(MailboxId(0), validity, txn)
        now = store.mailboxes.find(entry.name, txn)
        if now is None or now.id != entry.id:
            return entry
        after = evolve(now, uidvalidity=validity)
        store.mailboxes.write(after, txn)
        return after

    # The figures come first, since a delivery that comes in between must see them. What a crash leaves in between, the
    # same command completes.
    if not store.transact(entry, figures):
        return entry
    store.partition_of(entry).flush()
    adopted = transact(store.mailboxes.env, row)
    store.mailboxes.env.flush()
    return adopted


@problems()
def rewind(store: Store, entry: MailboxEntry, uid: int) -> None:
    """Have the mailbox take that UID, which comes from where its UIDVALIDITY comes from, though an unclean end has made
    it skip ahead (`state.UID_SKIP`) while it was being imported.

    Not when it has, or had, a message of that UID or a higher one, nor when a client has seen a higher UIDNEXT,
    be it by STATUS (`uidskip`). Raises StoreError NO_MAILBOX, BUSY.
    """
    gone = store.vanished(entry, store.status(entry).log_since)
    if gone is None:
        return

    def work(txn: WriteTxn) -> None:
        state = txn.state(entry.id)
        before = before_skip(txn.partition.states.get(state_key(entry.id), txn.handle) or b"", txn.partition.epoch)
        rows = txn.load(entry.id)
        last = max([0, *rows["uid"][-1:].tolist(), *gone[-1:].tolist()])
        if before is not None and max(last + 1, before) <= uid < state.uidnext:
            modseq = state.highestmodseq + 1
            txn.set_state(entry.id, state, evolve(
                state, uidnext=max(last + 1, before), highestmodseq=modseq, changed=modseq))

    store.transact(entry, work)
