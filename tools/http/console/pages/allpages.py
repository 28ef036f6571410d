"""All pages, in the order in which the navigation has them."""

from collections.abc import Callable

from store.store import Store
from tools.http.api.operationcalls import OperationCalls
from tools.http.console.consoleframe import Console
from tools.http.console.pages import overviewpages, ownpages
from tools.http.settings import Settings
from tools.http.webpages import Pages

SECTIONS = (overviewpages.SECTION, ownpages.SECTION)


def add_console(pages: Pages, store: Store, calls: OperationCalls, settings: Callable[[], Settings]) -> None:
    """Have the console."""
    Console(store, calls, SECTIONS, settings).add_pages(pages)
