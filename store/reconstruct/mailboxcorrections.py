"""Mailboxes put right by what the databases and `store.idx` say of each other; message files are read where nothing
else tells."""

from collections.abc import Mapping, Sequence
from typing import Any

from mboxlist.entry import MailboxEntry
from store.mend.scoped import correct_rows, correct_some
from store.rebuild import cacherebuild
from store.rebuild.outcome import Outcome
from store.rebuild.recount import recount_some
from store.reconstruct.faults import found as findings
from store.reconstruct.request import Progress, Request
from store.reconstruct.scope import entries_meant, mailboxes_meant, owner_meant
from store.store import Store
from store.userarea import writing
from store.values import RECONSTRUCT, Finding


def correct(request: Request) -> Outcome:
    """Those of a user, or a mailbox and those below it. Raises Refused, StoreError."""
    with request.open_store() as store, request.correcting():
        outcome = Outcome(corrections=correct_rows(store, owner_meant(store, request) or ""))
        scope, entries = mailboxes_meant(store, request), entries_meant(store, request)
        outcome.mailboxes = len(scope)
        if request.force:
            with request.watched() as progress:
                rebuild_cached(store, entries, outcome, request, progress)
        uses: dict[str, Any] = {}
        for name, partition in sorted(store.partitions.items()):
            here = [mailbox for place, mailbox in scope if place == name]
            if here:
                outcome.corrections += correct_some(store, partition, here)
                done, uses[name] = recount_some(store, partition, here)
                outcome.corrections += done
            partition.unwritten.changed.update(here)
            writing.write_round(store, partition, hurry=True)
        if outcome.corrections:         # they may have hidden others
            from store.mend.correctionrounds import mend  # here: nearly always nothing is wrong
            only = {mailbox for _, mailbox in scope}
            mend(store, lambda store: findings(store, request, only), outcome, once=False)
        with request.watched() as progress:
            look_at(store, entries, outcome, progress, deep=request.deep, uses={} if outcome.corrections else uses)
    return outcome


def rebuild_cached(store: Store, entries: Sequence[MailboxEntry], outcome: Outcome, request: Request,
                   progress: Progress) -> None:
    """Cache records of these mailboxes' messages, or of some UIDs, from their files. Raises StoreError."""
    found = cacherebuild.messages_of(store, entries, request.uids)
    outcome.messages = sum(map(len, found.values()))
    tell = _Watched(progress, outcome.messages)
    for name, digests in sorted(found.items()):
        for item in cacherebuild.recache(store.partitions[name], digests, change=not request.check,
                                         verify=request.force, tell=tell):
            if isinstance(item, Finding):
                outcome.findings.append(item)
            elif request.check:
                outcome.left.append(Finding(item.what, item.where, RECONSTRUCT))
            else:
                outcome.corrections.append(item)


def look_at(store: Store, entries: Sequence[MailboxEntry], outcome: Outcome, progress: Progress, *, deep: bool,
            uses: Mapping[str, Any]) -> None:
    """The message files and cache records of these mailboxes: what is missing or has not the right length, or with
    `deep` not the right content. `uses`: by partition what `recount_some` knows of all of their records, or None.

    Raises StoreError.
    """
    found = {name: said for name, said in uses.items() if said is not None}
    if not uses or len(found) < len(uses):
        found = {name: cacherebuild.known(store.partitions[name], digests)
                 for name, digests in cacherebuild.messages_of(store, entries).items()}
    tell = _Watched(progress, sum(map(len, found.values())))
    known = {finding.where for finding in outcome.left + outcome.findings}
    for name, said in sorted(found.items()):
        for item in cacherebuild.look_at(store.partitions[name], said, deep=deep, tell=tell):
            if not isinstance(item, Finding):
                outcome.corrections.append(item)
            elif item.where not in known:
                outcome.findings.append(item)


class _Watched:
    """Sums up how many messages have been read, for who watches."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def __call__(self, count: int) -> None:
        """So many more."""
        self._done += count
        self._progress("messages", self._done, self._total)
