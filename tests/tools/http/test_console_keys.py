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


def codes(page: Answer) -> list[str]:
    return [each.text for each in page.page.all("li") if each.all("code")]


def test_a_key_from_its_registration_to_its_removal(people: Any) -> None:
    store, somebody = people
    person, elsewhere = somebody(), somebody()
    for each in (person, elsewhere):
        each.log_in("dora", path="/console/access")
    assert add_key(person, SecurityKey("https://evil.example"), "theirs").status == 403
    page, key = person.get(ADD), SecurityKey("http://localhost:8080")
    person.get(ADD)                                         # another page has another challenge
    assert add_key(person, key, "blue", page).status == 403
    recovery = codes(add_key(person, key, "<b>blue</b>"))
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
    removing = again.get("/console/access").page.all("form", action="/console/access/key/remove")
    for form in removing:
        again.submit(form)
    late = again.submit(removing[0])
    assert late.status == 404 and "There is no such security key, or not any more" in late.text
    assert "Set up an authenticator app" in (page := again.get("/console/access")).text and not page.page.all("table")


def age(store: Any) -> None:
    """An hour has passed since each login."""
    for path in (store.root / "run" / "sessions").iterdir():
        if path.suffix != ".challenge":
            path.write_text(json.dumps({**json.loads(path.read_text()), "created": time.time() - 3600}))


def asks(answer: Answer) -> bool:
    """Whether it is the page that asks for the password again."""
    return answer.page.all("h1")[0].text == "Confirm that it is you"


def test_who_finds_a_browser_that_is_logged_in_brings_in_no_key(people: Any) -> None:
    """Nor removes one: the password is asked for, and the second factor."""
    store, somebody = people
    person, key = somebody(), SecurityKey("http://localhost:8080")
    person.log_in("dora", path="/console/access")
    recovery = codes(add_key(person, key, "mine"))
    page = person.get(ADD)
    age(store)
    assert asks(add_key(person, SecurityKey("http://localhost:8080"), "theirs", page))
    for path in (ADD, "/console/access/new"):
        asked = person.get(path)
        assert asks(asked) and asks(person.submit(asked.form("/console/access/confirm"), confirm_password="wrong"))
    asked = person.submit(person.get("/console/access").form("/console/access/key/remove"))
    before = dict(person.cookies)
    for password, code in (("wrong", recovery[0]), ("", recovery[0]), ("secret", "000000"), ("x" * 2000, "")):
        assert asks(asked)
        asked = person.submit(asked.form("/console/access/key/remove"), confirm_password=password, confirm_code=code)
    assert asks(asked) and asked.status == 403 and person.get("/console/access").page.all("table")
    after = person.submit(asked.form("/console/access/key/remove"), confirm_password="secret", confirm_code=recovery[1])
    assert after.status == 200 and not after.page.all("table") and not asks(person.get(ADD))
    person.cookies = before
    assert not person.get("/console/access").page.all("nav")        # that session has ended


def test_an_app_password_made_long_after_the_login_wants_the_password(people: Any) -> None:
    store, somebody = people
    person = somebody()
    form = person.log_in("dora", path="/console/access").form("/console/access/make")
    age(store)
    asked = person.submit(form, name="<i>&quot;telephone", service="pop", days="30")
    assert asks(asked) and not person.get("/console/access").page.all("table")
    asked = person.submit(asked.form("/console/access/make"), confirm_password="wrong")
    assert asks(asked) and "The password or the code is wrong." in asked.text
    made = person.submit(asked.form("/console/access/make"), confirm_password="secret")
    assert len(codes(made)) == 1 and '<i>&quot;telephone' in (page := person.get("/console/access")).text
    assert len(codes(person.submit(page.form("/console/access/make"), name="other", service="pop"))) == 1
    age(store)
    asked = person.submit(page.form("/console/access/make"), name="third", service="pop", days="-1")
    wrong = person.submit(asked.form("/console/access/make"), confirm_password="secret")
    assert wrong.status == 400 and len(person.get("/console/access").page.all("tr")) == 3    # and is still logged in
    age(store)
    asked = person.get("/console/access/new")
    assert person.submit(asked.form("/console/access/confirm"), confirm_password="secret", to="own").status == 400
    drawn = person.submit(asked.form("/console/access/confirm"), confirm_password="secret")
    assert drawn.page.all("h1")[0].text == "Set up a second factor"
    token = drawn.form("/console/access/enrol")
    age(store)
    assert asks(person.submit(token, code="000000"))
