"""The pages of the console for tests that look at all of them: whose each is, what is opened, with names that are made
to do harm; and how one logs in, looks and sends there."""

import json
import os
from pathlib import Path
from urllib.parse import quote

from tests.support.clients import axe
from tests.support.clients.chromium import Browser
from tests.support.clients.consoleclient import Answer, Element, Person
from tests.support.processes import wait
from tests.support.servers.server import PASSWORD, Server
from tests.support.stores import pasthours

LIMIT = 300.0
USER = "<script>alert(1)<_script>"              # a legal user id
BOXES = ("<script>alert(2)<~script>", '"><img src=x onerror=alert(3)>', "javascript:alert(4)", "' OR '1'='1",
         "\u05d0\u05d1 &lt;b&gt; &amp;", "x" * 200)
MESSAGE = ("From: a@example.org\r\nMessage-ID: <\u202e\"><script>alert(5)</script>@example.org>\r\n"
           "Subject: <img src=x onerror=alert(6)>\r\n\r\nx\r\n").encode()
WHO = {"admin": "a", "auditor": "r", "help": "h", "alice": "u"}
EVERYBODY = "arhu"

# Whose each page and each form is: a administrator, r auditor, h helpdesk, u user; a form has POST before its path.
ROLES = {
    "": "ar", "users": "arh", "users/one": "arh",
    **dict.fromkeys(("POST users/status", "POST users/password", "POST users/end", "POST users/quota"), "ah"),
    **dict.fromkeys((f"POST users/{name}" for name in ("rename", "move", "remove", "undelete", "add")), "a"),
    "mailboxes": "arh", "mailboxes/one": "arh",
    **dict.fromkeys((f"POST mailboxes/{name}" for name in (
        "create", "rename", "delete", "undelete", "messages")), "ah"),
    "POST mailboxes/share": "a",
    "why": "arh", "why/message": "ar", "why/quota": "arh", "why/login": "arh",
    "partitions": "ar", "partitions/sharing": "ar", "POST partitions/add": "a", "POST partitions/drain": "a",
    "quotas": "ar", "quotas/report": "a", "POST quotas/report": "a", "POST quotas/set": "a", "POST quotas/remove": "a",
    "connections": "ar", "POST connections/end": "a", "logins": "ar", "POST logins/clear": "a", "log": "a",
    "recovery": "ar", "recovery/diff": "ar", "recovery/mail": "a", "POST recovery/mail/copy": "a",
    **dict.fromkeys((f"POST recovery/{name}" for name in ("create", "verify", "remove", "backup", "archive")), "a"),
    "housekeeping": "ar", **dict.fromkeys((f"POST housekeeping/{name}" for name in ("check", "purge", "expire")), "a"),
    "audit": "ar", "audit/verify": "ar",
    "outbox": "ar", "outbox/one": "a", "POST outbox/retry": "a", "POST outbox/discard": "a",
    "config": "ar", "config/check": "ar", "POST config/reload": "a"}

# What is opened in the browser, and by the auditor.
SHOWN = {
    "mailboxes": {"user": USER}, "mailboxes/one": {"user": USER, "mailbox": BOXES[1], "who": USER},
    "why": {}, "why/message": {"recipient": USER}, "why/quota": {"user": USER}, "why/login": {"user": USER},
    "partitions": {}, "partitions/sharing": {"by": "mailbox"}, "quotas": {"root": USER}, "connections": {},
    "logins": {}, "log": {"match": "alert"}, "recovery": {}, "housekeeping": {}, "audit": {}, "audit/verify": {},
    "outbox": {}, "config": {"list": "all"}, "config/check": {}}
OUTSIDE = """[...document.querySelectorAll("body *")].filter(each => !each.closest(".wide, .skip") &&
    each.getBoundingClientRect().right > innerWidth + 0.5).map(each => each.outerHTML.slice(0, 80))"""

# Where links and forms for looking lead from a page; somebody's name is typed where something must be.
LEADING = """[...document.forms].forEach(form => [...form.elements].forEach(each => {
    if (!each.checkValidity()) each.value = "alice"; })),
    [...document.querySelectorAll('a[href^="/console/"]')].map(each => each.href).concat([...document.forms].filter(
        each => each.method == "get").map(each => each.action.split("?")[0] + "?" + new URLSearchParams(
            new FormData(each))))"""
# There are none of these before there is a report, two snapshots, half a login, a key.
LATER = {"quotas/report", "recovery/diff", "own/snapshots", "second", "second/newkey", "access/newkey"}


def log_in(page: Browser, port: int, user: str) -> None:
    """At a browser."""
    page.open(f"http://127.0.0.1:{port}/console/login", 1280)
    page.fill("#user", user)
    page.fill("#password", PASSWORD)
    page.click("button.first", loads=True)


def entered(port: int, user: str) -> Person:
    """Somebody who has logged in, at a plain client."""
    person = Person(port)
    assert person.log_in(user).status == 200
    return person


def address(path: str, values: "dict[str, str] | None" = None) -> str:
    """Of a page, with its query."""
    return f"/console/{path}" + "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in (
        values or {}).items())


def look(page: Browser, port: int, path: str, values: "dict[str, str]") -> None:
    """At a page: nothing that a name says is executed, nothing is asked of anybody else, everybody can use it, also at
    360 px."""
    here = f"http://127.0.0.1:{port}"
    page.requests.clear()
    page.open(here + address(path, values), 360, mobile=True, dark=True)
    assert page.status() == 200, page.text()
    assert page.value("document.documentElement.scrollWidth") <= 360 and page.value(OUTSIDE) == []
    assert (wrong := axe.violations(page)) == [], wrong
    page.window(1280)
    assert page.value("document.documentElement.scrollWidth") <= 1280 and page.value(OUTSIDE) == []
    assert page.dialogs == page.errors == []
    assert all(request.startswith(f"{here}/console/") for request in page.requests)
    assert page.value("document.querySelectorAll('main script, main img, main svg:not(.chart)').length") == 0


def send(person: Person, form: Element, **values: str) -> Answer:
    """Fill in a form and send it; where the progress of what takes longer leads in the end."""
    answer = person.submit(form, **values)
    places = [each.attributes["data-progress"] for each in answer.page.all("p") if "data-progress" in each.attributes]
    if not places:
        return answer
    back, = (link.attributes["href"] for link in answer.page.all("a") if link.text == "Go back without waiting")
    wait.until(lambda: not json.loads(person.ask("GET", places[0]).body)["running"], "it ends", pid=os.getpid(),
               limit=LIMIT)
    return person.get(f"{places[0].replace('&form=json', '')}&back={quote(back, safe='')}")


def take_pictures(server: Server, port: int, shown: Browser, folder: Path) -> None:
    """Of some pages, as docs/console/ has them."""
    server.command("quota", "set", "alice", "--octets", "20M")
    server.command("snapshot", "create")
    pasthours.fill(server.root)
    pages: dict[str, dict[str, str]] = {
        "": {}, "mailboxes": {"user": "alice"}, "why/message": {"recipient": "alice"}, "recovery": {},
        "quotas": {"root": "alice"}, "audit": {}, "users": {}, "users/one": {"user": "alice"}, "own": {},
        "housekeeping": {}, "partitions/sharing": {"by": "user"}}
    for path, values in pages.items():
        for form, (width, mobile, dark) in {"light": (1100, False, False), "dark": (1100, False, True),
                                            "phone": (360, True, False)}.items():
            shown.open(f"http://127.0.0.1:{port}" + address(path, values), width, mobile=mobile, dark=dark)
            file = folder / f"{path.replace('/', '-') or 'overview'}-{form}.png"
            file.write_bytes(shown.screenshot(height=900))
