"""The configured store: opened, or made."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from store.errors import StoreError
from store.net.notify import NewsSocket
from store.opening import is_there, make_empty_store, open_store
from store.settings import Settings
from store.store import Store
from tools.cli.options import Config
from tools.exits import Failure, status


def open_configured(config: Config, who: str, broken: Callable[[], None] = lambda: None) -> Store:
    """Open the configured store; for `who` and `broken` see Store. Raises Failure."""
    settings = config.settings("store", Settings)
    try:
        if not config.has_outside_directory:
            return open_store(config.root, settings, who=who, broken=broken)
        from tools.cli import outsidedirectory  # here: ldap3 takes longer to load than the store
        return outsidedirectory.open_with_directory(config, settings, who, broken)
    except StoreError as error:
        raise Failure(str(error), status(error)) from error


@contextmanager
def opened(config: Config, who: str) -> Iterator[Store]:
    """The store, open, whose other processes hear of changes. Raises Failure."""
    store = open_configured(config, who)
    try:
        NewsSocket(store.root, store.news)
        yield store
    finally:
        store.close()


def is_store(root: Path) -> bool:
    """Whether there is a store at `root`."""
    return is_there(root)


def tls_folder(root: Path) -> Path:
    """Where the certificate is that init makes."""
    return root / "tls"


def init(root: Path) -> None:
    """Make an empty store at `root`, with a certificate. Raises Failure."""
    from tools.server.tls import firstcertificate  # here: TLS and Twisted take longer to load than the store
    os.umask(0o077)
    try:
        make_empty_store(root)
    except StoreError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"cannot make a store in {root}: {error.strerror}") from error
    firstcertificate.make(tls_folder(root))
