"""Repair of what `verifyjob.verify` found, as far as the store has the octets.

Files that have another message's name get their own; then the plan is applied (`planlive.apply_live`), which exchanges
index and cache records and recounts everything; then every damaged `store.idx` is rewritten, and files that only say
again what another one says go. Files that nothing refers to go with `sweep`. Then come the rounds of `store/mend`, as
in a reconstruct. Contents that are gone stay gone.

Done twice, the second time does nothing; cut off, it is done again.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from mboxlist.engine.btree import Txn
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.transact import transact
from store.check.wholecheck import check_all
from store.mend import correctionrounds, listrows, lostfigures
from store.partition.partition import Partition
from store.rebuild.emptying import make_folders
from store.rebuild.outcome import Correction, Outcome
from store.store import Store
from store.userarea import writing
from store.userarea.paths import owner_of, remove_file
from store.userarea.writing import right_place
from tools.spark.rebuild.plan import Plan
from tools.spark.rebuild.planlive import apply_live
from tools.spark.verify.kinds import Fault, message_at
from tools.spark.verify.verifyjob import Verified


def mend(store: Store, plan: Plan, found: Verified, *, sweep: bool = False) -> Outcome:
    """Put right what was found; with `sweep` remove the files that nobody knows.

    Raises BadPlan, StoreError, OSError.
    """
    done: list[Correction] = []
    for partition in store.partitions.values():
        make_folders(partition.folder)
    done += listrows.correct_list(store) + lostfigures.restore_figures(store)
    for (name, digest), path in sorted(found.misnamed.items()):
        done += _rename(store.partitions[name], digest, path)
    applied = apply_live(store, plan)
    applied.corrections[:0] = done
    for name, partition in store.partitions.items():
        here = [fault for fault in found.faults if fault.kind.startswith("idx-")
                and fault.where.startswith(f"{partition.folder}/")]
        applied.corrections += _write_again(store, partition, here) if here else []
        if sweep:
            applied.corrections += [correction for fault in found.own if fault.kind == "message-stranger"
                                    and fault.partition in ("", name)
                                    for correction in _sweep(partition, fault.where)]
    applied.left.clear()                # it says how things were before the rounds
    correctionrounds.mend(store, check_all, applied)
    return applied


def _rename(partition: Partition, digest: bytes, path: str) -> list[Correction]:
    """Give a message file that has another name its own, if that is still missing."""
    right = Path(partition.files.path(digest))

    def work(txn: Txn) -> bool:
        partition.refs.find_to_change(digest, txn)         # nobody brings, or purges, it meanwhile
        if right.exists() or not os.path.exists(path):
            return False
        os.link(path, right)
        sync_folder(right.parent)
        os.unlink(path)
        return True

    return [Correction("its file had another name", message_at(digest))] if transact(partition.env, work) else []


def _write_again(store: Store, partition: Partition, faults: Sequence[Fault]) -> list[Correction]:
    """Rewrite damaged store.idx, and remove those that are not where a mailbox's file belongs."""
    places = {str(right_place(partition, *place)): mailbox for mailbox, _ in list(partition.all_states())
              if (place := store.known(mailbox)) is not None}
    wrong = {fault.where for fault in faults}
    partition.unwritten.changed.update(places[where] for where in wrong if where in places)
    writing.write_round(store, partition, hurry=True)
    done = [Correction("it was rewritten", where) for where in sorted(wrong & places.keys())]
    for where in sorted(wrong - places.keys()):
        mailbox = owner_of(Path(where))
        place = None if mailbox is None else store.known(mailbox)
        if mailbox is not None and place is not None and owner_of(right_place(
                store.partition_of(place[0]), *place)) == mailbox and remove_file(partition, Path(where), mailbox):
            done.append(Correction("it was removed: the mailbox has its file elsewhere", where))
    return done


def _sweep(partition: Partition, path: str) -> list[Correction]:
    """Remove a file in messages/ that is still unknown, or that is in another folder than its own."""
    if not path.startswith(f"{partition.files.folder}/") or not os.path.isfile(path):
        return []
    try:
        digest = bytes.fromhex(os.path.basename(path))
    except ValueError:
        digest = b""

    def work(txn: Txn) -> bool:
        if digest and partition.refs.find_to_change(digest, txn) is not None and path == partition.files.path(digest):
            return False                    # it came meanwhile
        os.unlink(path)
        return True

    return [Correction("nobody knew this file: it was removed", path)] if transact(partition.env, work) else []
