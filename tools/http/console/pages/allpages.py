"""All pages, in the order in which the navigation has them."""

from collections.abc import Callable

from store.store import Store
from tools.http.api.operationcalls import OperationCalls
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
    storagepages,
    whypages,
)
from tools.http.settings import Settings
from tools.http.webpages import Pages

SECTIONS = (
    overviewpages.SECTION, mailboxpages.SECTION, whypages.SECTION, storagepages.PARTITIONS, storagepages.QUOTAS,
    livepages.CONNECTIONS, livepages.LOGINS, livepages.LOG, recoverypages.RECOVERY, recoverypages.HOUSEKEEPING,
    auditpages.SECTION, outboxpages.SECTION, configpages.SECTION, ownpages.SECTION,
    accesspages.SECTION)


def add_console(pages: Pages, store: Store, calls: OperationCalls, settings: Callable[[], Settings]) -> None:
    """Have the console."""
    Console(store, calls, SECTIONS, settings).add_pages(pages)
