"""Security keys at the console, in memory: registered, shown at the next login, removed, and nobody else's."""

import http.client
import io
import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import define
from twisted.internet.task import Clock

from store.accounts.builtin import BuiltinDirectory
from store.accounts.passwords import hash_password
from store.net.admission import AdmissionControl
from store.opening import make_empty_store, open_store
from store.values import Secret
from tests.support.clients.consoleclient import Answer, Element, Person, _looked_at
from tests.support.clients.securitykey import SecurityKey
from tests.support.conversations.wire import Wire
from tools.http import protocol
from tools.http.console.consoleframe import Console
from tools.http.console.pages import accesspages, secondpages
from tools.http.settings import Settings
from tools.http.webpages import Pages

ADD, SHOW = "/console/access/newkey", "/console/second/key"


class _Octets:
    def __init__(self, octets: bytes) -> None:
        self.octets = octets

    def makefile(self, *_: Any) -> io.BytesIO:
        return io.BytesIO(self.octets)


@define
class Near(Person):
    """A person without a network between."""

    factory: Any = None
    clock: Any = None

    def ask(self, method: str, path: str, body: bytes = b"", **fields: str) -> Answer:
        wire = Wire(self.factory, self.clock, "127.0.0.1")
        head = {"Host": f"{self.host}:{self.port}", "Connection": "close", "Content-Length": str(len(body)), **{
            name.replace("_", "-"): value for name, value in fields.items()}}
        if self.cookies:
            head["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        wire.send("".join((f"{method} {path} HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in head.items()),
                           "\r\n")).encode() + body)
        got = http.client.HTTPResponse(cast(Any, _Octets(wire.received())), method=method)
        got.begin()
        for line in got.headers.get_all("Set-Cookie") or ():
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
        return _looked_at(Answer(got.status, dict(got.headers.items()), got.read(), Element("", {})))


@pytest.fixture
def people(tmp_path: Any) -> Iterator[Any]:
    make_empty_store(tmp_path / "store")
    store = open_store(tmp_path / "store")
    cast(BuiltinDirectory, store.directory).add("dora", hash_password(Secret(b"secret")))
    chosen, pages, clock = Settings(), Pages(), Clock()
    calls = cast(Any, SimpleNamespace(prepare=lambda: None))
    Console(store, calls, (accesspages.SECTION, secondpages.SECTION), lambda: chosen,
            cast(Any, None)).add_pages(pages)
    factory = protocol.factory(pages, chosen, clock, AdmissionControl.from_settings("http", chosen))
    yield store, lambda host="localhost": Near(8080, host, factory=factory, clock=clock)
    store.close()


def wanted(page: Answer, form: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.form(form).attributes["data-key"])
    return found


def gets_in(person: Person, form: Element, **values: str) -> bool:
    status = person.submit(form, follow=False, **values).status
    return status == 303 and bool(person.get("/console/access").page.all("nav"))


def add_key(person: Person, key: SecurityKey, name: str, page: Answer | None = None) -> Answer:
    page = page or person.get(ADD)
    return person.submit(page.form(ADD), name=name, credential=key.create(wanted(page, ADD)))


def test_a_key_from_its_registration_to_its_removal(people: Any) -> None:
    store, somebody = people
    person, elsewhere = somebody(), somebody()
    for each in (person, elsewhere):
        each.log_in("dora", path="/console/access")
    assert add_key(person, SecurityKey("https://evil.example"), "theirs").status == 403
    page, key = person.get(ADD), SecurityKey("http://localhost:8080")
    person.get(ADD)                                         # another page has another challenge
    assert add_key(person, key, "blue", page).status == 403
    recovery = [each.text for each in add_key(person, key, "<b>blue</b>").page.all("li") if each.all("code")]
    assert len(recovery) == 10 and not elsewhere.get("/console/access").page.all("nav")
    add_key(person, SecurityKey("http://localhost:8080"), "second")
    assert "<b>blue</b>" in (page := person.get("/console/access")).text and "never" in page.text

    again = somebody()
    asked = again.log_in("dora", path="/console/access")
    assert not asked.page.all("nav")
    wrong = again.submit(asked.form(SHOW), credential=SecurityKey("http://localhost:8080").get(wanted(asked, SHOW)))
    assert wrong.status == 403 and "no security key of yours" in wrong.text
    sent = key.get(wanted(wrong, SHOW))
    assert gets_in(again, wrong.form(SHOW), credential=sent)
    thief = somebody()
    assert thief.submit(thief.log_in("dora").form(SHOW), credential=sent).status == 403     # it was for another page
    other = somebody("127.0.0.1")               # for which browsers have no keys
    asked = other.log_in("dora")
    assert "data-key" not in str(asked.page) and gets_in(other, asked.form("/console/second/code"), code=recovery[0])
    for _ in range(2):
        again.submit(again.get("/console/access").page.all("form", action="/console/access/key/remove")[0])
    assert "Set up an authenticator app" in (page := again.get("/console/access")).text and not page.page.all("table")


def test_who_finds_a_browser_that_is_logged_in_cannot_bring_in_a_key(people: Any) -> None:
    store, somebody = people
    person = somebody()
    person.log_in("dora", path="/console/access")
    add_key(person, SecurityKey("http://localhost:8080"), "mine")
    page = person.get(ADD)
    for path in (store.root / "run" / "sessions").iterdir():
        if path.suffix != ".challenge":
            path.write_text(json.dumps({**json.loads(path.read_text()), "created": time.time() - 3600}))
    answer = add_key(person, SecurityKey("http://localhost:8080"), "theirs", page)
    assert answer.status == 403 and "Log out and in again first" in answer.text
    assert person.ask("GET", ADD).status == person.ask("GET", "/console/access/new").status == 403
    assert person.submit(person.get("/console/access").form("/console/access/key/remove")).status == 403
