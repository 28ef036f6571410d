"""onecopy facts export"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

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
from tools.spark.facts.destinations import Destination
from tools.spark.facts.factfolders import destination, is_uri
from tools.spark.facts.snapshottables import given_up, prepared, taken_for
from tools.spark.sparkcommands import session
from tools.spark.sparksession import plain


def export(invocation: Invocation) -> int:
    """onecopy facts export; exit status 1 when something of the databases cannot be read."""
    arguments = invocation.arguments
    place = arguments.destination
    with session(invocation, "facts export") if is_uri(place) else nullcontext() as spark, plain():
        with temporary("facts") if is_uri(place) else nullcontext() as work:
            to = destination(place, work or Path(), spark)
            try:
                factsexport.read_manifest(to)       # before a snapshot is made for nothing
            except OSError as error:
                raise Failure(f"{place}: {error.strerror or error}", 1) from error
            done = export_to(invocation, to, arguments.name, arguments.processes, arguments.snapshot)
    if arguments.json:
        print_json(attrs.asdict(done))
    else:
        print_facts({"back end": done.store, "as it was": done.moment, "files written": done.written,
                     "unchanged": done.unchanged, "removed": done.removed, "rows": done.rows,
                     "rows written": done.rows_written})
        for finding in done.findings:
            print(f"{finding.where}: {finding.what} (repair: onecopy {finding.repair})")
    return 1 if done.findings else 0


def export_to(invocation: Invocation, to: Destination, name: str | None = None, processes: int | None = None,
              snapshot: str | None = None) -> factsexport.Exported:
    """Export the facts of the store under a name, or that of its host and folder; as they are now, or of a snapshot.
    Raises Failure."""
    root, settings = invocation.config.root, invocation.config.settings("store", Settings)
    try:
        with (_snapshot(root, settings, snapshot) if snapshot is not None else snapshot_for_now(invocation)
              ) as taken, prepared(taken) as folders:
            return factsexport.export(taken, folders, root, to, name=name or factsexport.store_name(root),
                                      domain=settings.default_domain,
                                      processes=processes or max(1, (os.cpu_count() or 1) // 2))
    except StoreError as error:
        raise Failure(str(error), status(error)) from error
    except OSError as error:
        named = f" ({error.filename})" if error.filename else ""
        raise Failure(f"facts cannot be exported to {to.work}: {error.strerror or error}{named}", 1) from error
    except DatabaseFailure as error:
        raise Failure(f"facts cannot be exported: {error}", 1) from error


@contextmanager
def _snapshot(root: Path, settings: Settings, wanted: str) -> Iterator[Snapshot]:
    """The snapshot of that name."""
    found = next((each for each in taking.listed(taking.folder(root, settings)) if each.name == wanted), None)
    if found is None:
        raise Failure(f"there is no snapshot {wanted}", 1)
    yield found


@contextmanager
def snapshot_for_now(invocation: Invocation) -> Iterator[Snapshot]:
    """A snapshot that is made for the time being. The store is open only while it is made: who is killed in an open
    store takes all others with it. Raises Failure, StoreError, OSError."""
    with ExitStack() as on_record:
        with invocation.store() as store:
            made = taken_for(store, "facts export", on_record)
        try:
            yield made
        finally:
            with invocation.store() as store:
                given_up(store, made)
