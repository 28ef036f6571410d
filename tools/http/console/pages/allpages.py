"""All pages, in the order in which the navigation has them."""

from collections.abc import Callable, Coroutine
from typing import Any

from store.store import Store
from tools.http.api.operationcalls import OperationCalls
from tools.http.clientconfig import ClientConfig
from tools.http.console.consoleframe import Console
from tools.http.console.pages import (
    accesspages,
    auditpages,
    configpages,
    livepages,
    mailboxpages,
    outboxpages,
    overviewpages,
    ownpages,
    recoverypages,
    secondpages,
    storagepages,
    userpages,
    whypages,
)
from tools.http.settings import Settings
from tools.http.webpages import Pages

SECTIONS = (
    overviewpages.SECTION, userpages.SECTION, mailboxpages.SECTION, whypages.SECTION,
    storagepages.PARTITIONS, storagepages.QUOTAS,
    livepages.CONNECTIONS, livepages.LOGINS, livepages.LOG, recoverypages.RECOVERY, recoverypages.HOUSEKEEPING,
    auditpages.SECTION, outboxpages.SECTION, configpages.SECTION, ownpages.SECTION,
    ownpages.AWAY_SECTION, ownpages.MAILBOXES, recoverypages.OWN_MAIL,
    recoverypages.MAIL, accesspages.SECTION, secondpages.SECTION)


def add_console(pages: Pages, store: Store, calls: OperationCalls, settings: Callable[[], Settings],
                health: Callable[[], Coroutine[Any, Any, dict[str, Any]]], mail: ClientConfig) -> None:
    """Have the console. `settings` and `health` give those of now; `mail` is what mail programs are told."""
    Console(store, calls, SECTIONS, settings, health, mail).add_pages(pages)
