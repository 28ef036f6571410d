"""All pages, in the order in which the navigation has them."""

from collections.abc import Callable, Coroutine
from typing import Any

from store.store import Store
from tools.http.api.apipages import Api
from tools.http.console.consoleframe import Console
from tools.http.console.pages import overviewpages, ownpages, userpages
from tools.http.settings import Settings
from tools.http.webpages import Pages

SECTIONS = (overviewpages.SECTION, userpages.SECTION, ownpages.SECTION, ownpages.MAILBOXES)


def add_console(pages: Pages, store: Store, api: Api, settings: Callable[[], Settings],
                health: Callable[[], Coroutine[Any, Any, dict[str, Any]]]) -> None:
    """Have the console. `settings` and `health` give those of now."""
    Console(store, api, SECTIONS, settings, health).add_pages(pages)
