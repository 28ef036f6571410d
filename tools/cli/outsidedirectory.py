"""A store whose users are those of an LDAP directory."""

from collections.abc import Callable
from functools import partial

import store.settings
from mboxlist.table import MailboxList
from store.accounts.builtin import BuiltinDirectory
from store.accounts.ldap.ldapdirectory import LdapDirectory
from store.accounts.ldap.ldapentry import Here
from store.accounts.ldap.ldapprofiles import MapSettings
from store.accounts.ldap.ldapsettings import Settings
from store.mailboxes import placement
from store.opening import open_store
from store.store import Store
from store.users.provisioning import take_over_account
from tools.cli.options import Config
from tools.exits import Failure


def open_with_directory(config: Config, settings: store.settings.Settings, who: str, broken: Callable[[],
                                                                                                      None]) -> Store:
    """Open it; its directory knows what this back end is, and the store what the directory says beside accounts.

    Raises StoreError, Failure.
    """
    opened = open_store(config.root, settings, who=who, broken=broken, directory=partial(_directory, config))
    directory = opened.directory
    assert isinstance(directory, LdapDirectory)
    directory.on_found = partial(take_over_account, opened)
    directory.here = lambda: Here(opened.settings.host, frozenset(opened.partitions), placement.for_new_mail(opened))
    return opened


def _directory(config: Config, mailboxes: MailboxList, default_domain: str) -> BuiltinDirectory:
    """The directory that the settings name. Raises Failure."""
    try:
        return LdapDirectory(mailboxes, default_domain, config.settings("directory", Settings),
                             config.settings("directory", MapSettings))
    except OSError as error:
        raise Failure(f"directory: {error.filename or ''}: {error.strerror or error}") from None
    except ValueError as error:
        raise Failure(f"directory: {error}") from None
