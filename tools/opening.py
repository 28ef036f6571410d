"""The configured store: opened, or made."""

import os
from collections.abc import Callable
from pathlib import Path

import store.settings
from store.errors import Problem, StoreError
from store.store import Store
from tools.config import Config
from tools.errors import Failure
from tools.settings import Tls


def open_store(config: Config, who: str, broken: Callable[[], None] = lambda: None) -> Store:
    """Open the configured store; for `who` and `broken` see Store. Raises Failure."""
    try:
        return Store(config.root, config.settings("store", store.settings.Settings), who=who, broken=broken)
    except StoreError as error:
        raise Failure(str(error), status(error)) from error


def status(error: StoreError) -> int:
    """The exit status for a refusal of the store."""
    return 2 if error.problem in (Problem.NO_STORE, Problem.STORE_IN_USE) else 1


def is_store(root: Path) -> bool:
    """Whether there is a store at `root`."""
    return (root / "mboxlist").is_dir()


def tls_folder(root: Path) -> Path:
    """Where the certificate is that init makes."""
    return root / "tls"


def init(root: Path) -> None:
    """Make an empty store at `root`, with a certificate. Raises Failure."""
    from tools.tls import Certificates  # here: it loads much that no other command needs
    os.umask(0o077)
    try:
        Store.make(root)
    except StoreError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"cannot make a store in {root}: {error.strerror}") from error
    Certificates.from_settings(Tls(), tls_folder(root))
