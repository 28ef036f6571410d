"""Pages of the console in a browser: by keyboard, on a phone, in the dark, and for who does not see them."""

from collections.abc import Iterator

import pytest

from tests.support.clients import axe
from tests.support.clients.chromium import Browser
from tests.support.processes.ports import free_port
from tests.support.servers.server import Server
from tests.support.stores import pasthours

PAGES = ("", "?span=month", "users", "users/one?user=alice", "own", "own/mailboxes", "own/mailbox?name=INBOX",
         "own/away",
         "nothing")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the console of a server in use."""
    port = free_port()
    options = {"http.port": str(port), "http.administrators": "alice", "store.default_domain": "localhost"}
    with Server(tmp_path_factory.mktemp("look"), ("alice", "bob"), options) as server:
        server.command("quota", "set", "bob", "--octets", "1K")
        server.command("mailbox", "create", "alice", "A" * 100, "Old")
        server.command("mailbox", "delete", "alice", "Old", "--yes")
        server.command("deliver", "alice", octets=b"Subject: x\r\n\r\nHello.\r\n")
        pasthours.fill(server.root)
        yield f"http://127.0.0.1:{port}/console/"


def test_a_person_without_a_mouse_logs_in_and_out(browser: Browser, served: str) -> None:
    browser.open(served)
    assert browser.value("document.activeElement.name") == "user"
    browser.fill("#user", "alice")
    browser.fill("#password", "secret")
    browser.value("document.querySelector('#password').focus()")
    browser.press("Enter", loads=True)
    assert browser.text("h1") == "Overview"
    browser.press("Tab")
    assert browser.value("document.activeElement.className") == "skip"      # past the navigation, at once
    browser.value("document.querySelector('.who button').focus()")
    browser.press("Enter", loads=True)
    assert browser.text("h1") == "Log in to onecopy" and "You have logged out." in browser.text()


def test_a_sentence_in_a_table_is_read_on_a_phone(browser: Browser, served: str) -> None:
    """A column of long texts is not so narrow that a row of it fills the screen; the table is moved sideways."""
    browser.open(served)
    browser.fill("#user", "alice")
    browser.fill("#password", "secret")
    browser.click("main button", loads=True)
    for page in ("audit", "log"):
        browser.open(served + page, 360, mobile=True)
        assert browser.value("Math.min(...[...document.querySelectorAll('tbody td:last-child')].map(each => "
                             "each.offsetWidth))") >= 280, page


def test_each_page_for_everybody(browser: Browser, served: str) -> None:
    """Nothing serious is found by axe, nothing is wider than a phone, and nothing is asked of elsewhere or fails."""
    browser.open(served)
    assert axe.violations(browser) == []
    browser.fill("#user", "alice")
    browser.fill("#password", "secret")
    browser.click("main button", loads=True)
    browser.open(served, 1100)
    cut = "[...document.querySelectorAll('.card .wide')].filter(each => each.scrollWidth > each.clientWidth).length"
    assert browser.value(cut) == 0, "a table of the overview is cut off"
    for page in PAGES:
        browser.open(served + page, 1280)
        assert axe.violations(browser) == [], page
        browser.open(served + page, 360, mobile=True, dark=True)
        assert axe.violations(browser) == [], page
        assert browser.value("document.documentElement.scrollWidth") <= 360, page
        outside = [each for each in browser.requests if not each.startswith((served, "data:"))]    # its own icons
        assert outside == []
        assert page == "nothing" or browser.errors == [], (page, browser.errors)
