"""onecopy facts export"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import attrs

from mboxlist.engine.transact import Failure as DatabaseFailure
from store.errors import StoreError
from store.filelock import temporary
from store.settings import Settings
from store.snapshots import taking
from store.snapshots.taking import Snapshot
from tools.cli.invocation import Invocation
from tools.cli.output import print_facts, print_json
from tools.exits import Failure, status
from tools.spark.facts import factsexport
from tools.spark.facts.factfolders import destination, is_uri
from tools.spark.facts.snapshottables import prepared
from tools.spark.sparkcommands import session
from tools.spark.sparksession import plain


def export(invocation: Invocation) -> int:
    """onecopy facts export; exit status 1 when something of the databases cannot be read."""
    arguments = invocation.arguments
    place = arguments.destination
    with session(invocation, "facts export") if is_uri(place) else nullcontext() as spark, plain():
        with temporary("facts") if is_uri(place) else nullcontext() as work:
            to = destination(place, work or Path(), spark)
            factsexport.read_manifest(to)           # before a snapshot is made for nothing
            done = _exported(invocation, to)
    if arguments.json:
        print_json(attrs.asdict(done))
    else:
        print_facts({"back end": done.store, "as it was": done.moment, "files written": done.written,
                     "unchanged": done.unchanged, "removed": done.removed, "rows": done.rows,
                     "rows written": done.rows_written})
        for finding in done.findings:
            print(f"{finding.where}: {finding.what} (repair: onecopy {finding.repair})")
    return 1 if done.findings else 0


def _exported(invocation: Invocation, to: Any) -> factsexport.Exported:
    root, settings = invocation.config.root, invocation.config.settings("store", Settings)
    name = invocation.arguments.name or factsexport.store_name(root)
    processes = invocation.arguments.processes or max(1, (os.cpu_count() or 1) // 2)
    try:
        with _snapshot(invocation, settings) as snapshot, prepared(snapshot) as folders:
            return factsexport.export(snapshot, folders, root, to, name=name, domain=settings.default_domain,
                                      processes=processes)
    except StoreError as error:
        raise Failure(str(error), status(error)) from error
    except (OSError, DatabaseFailure) as error:
        raise Failure(f"facts cannot be exported: {error}", 1) from error


@contextmanager
def _snapshot(invocation: Invocation, settings: Settings) -> Iterator[Snapshot]:
    """The snapshot that is meant, or one that is made for the time being: it is on record, so that a start, or
    housekeeping, removes what a killed export leaves. The store is open only while it is made: who is killed in an open
    store takes all others with it."""
    wanted = invocation.arguments.snapshot
    if wanted is not None:
        found = next((each for each in taking.listed(taking.folder(invocation.config.root, settings))
                      if each.name == wanted), None)
        if found is None:
            raise Failure(f"there is no snapshot {wanted}", 1)
        yield found
        return
    with ExitStack() as on_record:
        with invocation.store() as store, store.begun("snapshot create", {}, stops=True):
            made = taking.create(store)
            on_record.enter_context(store.begun("facts export", {"snapshots": [made.name]}, stops=True))
        try:
            yield made
        finally:
            with invocation.store() as store:
                taking.remove(made)
                taking.keep_what_is_needed(store)
