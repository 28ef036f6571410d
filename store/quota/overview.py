"""What is known of users, mailboxes' names and quota: for commands that need nothing of messages.

An open store has it (`Store`), and much more. Mostly it can be read without opening the store (`look`): where nobody
has the store open, and the last one left it clean, the tables are read as files, behind the shut door, and no
environment is made. Where others have it open, this process joins the environments. Nothing is changed.
"""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Union

from attrs import frozen

from mboxlist import privatefiles
from mboxlist.engine import damagemarks
from mboxlist.engine.kv import AtRest, Env, NeedsRecovery
from mboxlist.engine.transact import Failure
from mboxlist.entry import MailboxEntry
from mboxlist.table import MailboxNames
from store.accounts.builtin import BuiltinDirectory
from store.partition.processes import ProcessRegistry
from store.quota.sums import REBUILD, UNDER_WAY
from store.settings import Settings
from store.tables.domainlimits import Domains
from store.tables.quotatable import QuotaTable

if TYPE_CHECKING:
    from store.store import Store

#: What is known without opening the store, or by an open one.
Overview = Union["Store", "Glimpse"]

_CACHE, _LOCKS = 1 << 20, 1000          # who joins gets what the first process asked for


@frozen
class Ledger:
    """What is known of a partition: its table of use and limits."""

    quotas: QuotaTable


class Glimpse:
    """An overview of a store that this process has not opened; `close` it soon: nobody else may be able to come in.

    Raises Failure, NeedsRecovery, OSError where that cannot be had.
    """

    def __init__(self, root: Path, settings: Settings, process_registry: ProcessRegistry) -> None:
        self.settings = settings
        self._processes = process_registry
        self._envs: list[Env] = []
        try:
            alone = process_registry.alone
            if not alone:
                process_registry.opened()
            names = _at_rest(root) if alone else privatefiles.read_text(root / "run" / "partitions").split()
            if not names or any((root / "partitions" / name / REBUILD).exists() for name in names):
                raise FileNotFoundError(f"not all of {root} can be read")
            self.mailboxes = MailboxNames(self._env(root / "mboxlist"))
            self.partitions = {name: Ledger(QuotaTable(self._env(root / "partitions" / name / "index").table(
                "quota.db", page=4096, glances=True), settings)) for name in names}
            self.domains = Domains(lambda: [each.quotas for each in self.partitions.values()], settings)
            self.directory = BuiltinDirectory(self.mailboxes, settings.default_domain)
        except BaseException:
            self.close()
            raise

    def _env(self, folder: Path) -> Env:
        env = AtRest(folder) if self._processes.alone else Env(
            folder, cache=_CACHE, locks=_LOCKS, recover=False, broken=lambda: None)
        self._envs.append(env)
        return env

    def names(self, owner: str) -> list[MailboxEntry]:
        """All mailboxes of one owner, in order of name."""
        return list(self.mailboxes.below(owner))

    def close(self) -> None:
        """Let the store go."""
        for env in self._envs:
            env.close()
        self._processes.leave()


def look(root: Path, settings: Settings, who: str) -> Glimpse | None:
    """An overview of the store, if it can be had without opening it. `who`: see ProcessRegistry.

    Raises StoreError UNAVAILABLE, OSError.
    """
    if any((root / name).exists() for name in UNDER_WAY) or not (root / "run").is_dir():
        return None
    process_registry = ProcessRegistry(root / "run", who)
    with suppress(Failure, NeedsRecovery, OSError):         # who opens the store finds out what is wrong, and says it
        return Glimpse(root, settings, process_registry)
    return None


def _at_rest(root: Path) -> list[str]:
    """The partitions; none if not everything was left clean."""
    folders = [path for path in (root / "partitions").iterdir() if not path.name.startswith(".")]
    environments = [root / "mboxlist", *(folder / "index" for folder in folders)]
    if any((index / "unclean").exists() or damagemarks.marks(index) or not damagemarks.is_untouched(index)
           for index in environments):
        return []
    return sorted(folder.name for folder in folders)
