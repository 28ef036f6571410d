"""The configured store: opened, or made."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import store.settings
from mboxlist.table import MailboxList
from store.accounts.builtin import BuiltinDirectory
from store.errors import Problem, StoreError
from store.mailboxes import placement
from store.opening import is_there, make_empty_store, open_store
from store.store import Store
from tools.cli.exits import Failure
from tools.cli.options import Config


def open_configured(config: Config, who: str, broken: Callable[[], None] = lambda: None) -> Store:
    """Open the configured store; for `who` and `broken` see Store. Raises Failure."""
    settings = config.settings("store", store.settings.Settings)
    try:
        if not config.has_outside_directory:
            return open_store(config.root, settings, who=who, broken=broken)
        opened = open_store(config.root, settings, who=who, broken=broken, directory=partial(_outside, config))
    except StoreError as error:
        raise Failure(str(error), status(error)) from error
    _tell(opened)
    return opened


def _outside(config: Config, mailboxes: MailboxList, default_domain: str) -> BuiltinDirectory:
    """The directory that the settings name. Raises Failure."""
    from store.accounts.ldap.ldapdirectory import LdapDirectory
    from store.accounts.ldap.ldapprofiles import MapSettings
    from store.accounts.ldap.ldapsettings import Settings  # here: as above
    try:
        return LdapDirectory(mailboxes, default_domain, config.settings("directory", Settings),
                             config.settings("directory", MapSettings))
    except OSError as error:
        raise Failure(f"directory: {error.filename or ''}: {error.strerror or error}") from None
    except ValueError as error:
        raise Failure(f"directory: {error}") from None


def _tell(opened: Store) -> None:
    """Have the directory know what this back end is, and the store what the directory says beside accounts."""
    from store.accounts.ldap.ldapdirectory import LdapDirectory  # here: see above
    from store.accounts.ldap.ldapentry import Here
    from store.users.provisioning import settle_account
    directory = opened.directory
    assert isinstance(directory, LdapDirectory)
    directory.settled = partial(settle_account, opened)
    directory.here = lambda: Here(opened.settings.host, frozenset(opened.partitions), placement.for_new_mail(opened))


def status(error: StoreError) -> int:
    """The exit status for a refusal of the store."""
    return 2 if error.problem in (Problem.NO_STORE, Problem.STORE_IN_USE) else 1


def is_store(root: Path) -> bool:
    """Whether there is a store at `root`."""
    return is_there(root)


def tls_folder(root: Path) -> Path:
    """Where the certificate is that init makes."""
    return root / "tls"


def init(root: Path) -> None:
    """Make an empty store at `root`, with a certificate. Raises Failure."""
    from tools.server.settings import Tls  # here: they load much that no other command needs
    from tools.server.tls.contexts import Certificates
    os.umask(0o077)
    try:
        make_empty_store(root)
    except StoreError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"cannot make a store in {root}: {error.strerror}") from error
    Certificates.from_settings(Tls(), tls_folder(root))
