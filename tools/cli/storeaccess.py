"""The configured store: opened, or made."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from store.errors import StoreError
from store.news.notify import NewsSocket
from store.opening import is_there, make_empty_store, open_store
from store.settings import Settings
from store.store import Store
from tools.cli.later import Later
from tools.cli.options import Config
from tools.exits import Failure, status
from tools.serversettings import tls_folder

# ldap3 takes longer to load than the store, as do TLS and Twisted.
_open_with_directory = Later("tools.cli.outsidedirectory:open_with_directory")
_make_certificate = Later("tools.server.tls.firstcertificate:make")


def open_configured(config: Config, who: str, broken: Callable[[], None] = lambda: None) -> Store:
    """Open the configured store; for `who` and `broken` see Store. Raises Failure."""
    settings = config.settings("store", Settings)
    try:
        if not config.has_outside_directory:
            return open_store(config.root, settings, who=who, broken=broken)
        made: Store = _open_with_directory(config, settings, who, broken)
        return made
    except StoreError as error:
        raise Failure(str(error), status(error)) from error


@contextmanager
def opened(config: Config, who: str) -> Iterator[Store]:
    """The store, open, whose other processes hear of changes. Raises Failure."""
    store = open_configured(config, who)
    news = None
    try:
        news = NewsSocket(store.root, store.news)
        yield store
    finally:
        store.close()               # others hear of what it writes
        if news is not None:
            news.close()


def is_store(root: Path) -> bool:
    """Whether there is a store at `root`."""
    return is_there(root)


def init(root: Path) -> None:
    """Make an empty store at `root`, with a certificate. Raises Failure."""
    try:
        make_empty_store(root)
    except StoreError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"cannot make a store in {root}: {error.strerror}") from error
    _make_certificate(tls_folder(root))
