"""The console's page Access, and the second step of a login, by a real server."""

import json
import plistlib
import re
import time
from collections.abc import Iterator
from imaplib import IMAP4
from types import SimpleNamespace
from typing import Any

import pyotp
import pytest
import segno

from store import offload
from tests.support.clients import axe
from tests.support.clients.chromium import Browser
from tests.support.clients.consoleclient import Answer, Element, Person
from tests.support.clients.securitykey import SecurityKey
from tests.support.processes.ports import free_port
from tests.support.servers.server import Server
from tools.http.console.pages import accesspages
from tools.http.console.secondfactor import changed
from tools.http.webpages import Refused

USERS = ("admin", "alice", "bob", "carol", "dora", "erin", "frank")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, int]]:
    port = free_port()
    options = {"http.port": str(port), "http.administrators": "admin", "http.second_factor": "administrators",
               "login.slow_first": "0", "store.default_domain": "localhost", "http.mail_name": "mail.example.org",
               "http.submission": "smtp.example.org:465"}
    with Server(tmp_path_factory.mktemp("access"), USERS, options) as server:
        yield server, port
        assert server.stop() == 0
        server.check()


def heading(answer: Answer) -> str:
    return answer.page.all("h1")[0].text


def is_inside(answer: Answer) -> bool:
    """Whether it is a page of who has logged in."""
    return answer.status == 200 and bool(answer.page.all("nav", **{"aria-label": "Pages"}))


def codes(answer: Answer) -> list[str]:
    return [each.text for each in answer.page.all("li") if each.all("code")]


def logs_in(server: Server, user: str, password: str) -> bool:
    client = IMAP4("127.0.0.1", server.imap)
    try:
        client.login(user, password)
    except IMAP4.error:
        return False
    finally:
        client.shutdown()
    return True


def set_up(page: Answer, form: str) -> tuple[str, Answer]:
    """The secret, and the page that comes after the code of it."""
    found = page.form(form)
    secret = found.all("input", name="secret")[0].attributes["value"]
    return secret, page


def test_a_user_makes_sees_and_revokes_an_app_password(served: tuple[Server, int]) -> None:
    server, port = served
    person = Person(port)
    person.log_in("alice")
    made = person.submit(person.get("/console/access").form("/console/access/make"), name="<b>phone</b>",
                         service="imap", days="30")
    password, = codes(made)
    assert made.status == 200 and re.fullmatch(r"([0-9a-z]{4}-){6}[0-9a-z]{4}", password)
    page = person.get("/console/access")
    assert "<b>phone</b>" in page.text and password not in page.text
    assert logs_in(server, "alice", password) and logs_in(server, "alice", "secret")
    assert not logs_in(server, "bob", password)
    other = Person(port)
    assert "phone" not in other.log_in("bob", path="/console/access").text
    after = person.submit(page.form("/console/access/revoke"))
    assert "You have none." in after.text and not logs_in(server, "alice", password)
    noted = server.command("audit", "show", "--kind", "access").count("app password revoked")
    assert noted == 1
    late = person.submit(page.form("/console/access/revoke"))       # in another window, which still shows it
    assert late.status == 404 and "There is no such app password, or not any more" in late.text
    assert server.command("audit", "show", "--kind", "access").count("app password revoked") == noted


def test_a_profile_of_apple_has_the_app_password(served: tuple[Server, int]) -> None:
    """For whoever has made it, as long as it holds, and where it is for IMAP."""
    person = Person(served[1])
    form = person.get("/console/access").form("/console/access/make") if person.log_in("bob").status == 200 else None
    assert form is not None
    made = person.submit(form, name="tablet", service="imap")
    fields = {each.attributes["name"]: each.attributes["value"]
              for each in made.form("/console/access/profile").all("input", type="hidden")}
    answer = person.post("/console/access/profile", fields)
    account, = plistlib.loads(answer.body)["PayloadContent"]
    assert (account["EmailAddress"], account["IncomingPassword"]) == ("bob@localhost", codes(made)[0])
    assert "OutgoingPasswordSameAsIncomingPassword" not in account           # it is not for sending
    assert answer.fields["Content-Type"] == "application/x-apple-aspen-config"
    assert answer.fields["Cache-Control"] == "no-store"
    other = Person(served[1])
    other.log_in("alice")
    token = other.get("/console/access").form("/console/access/make").all("input", name="csrf")[0].attributes["value"]
    for wrong in (fields["password"], "\xff" * 30, "secret", ""):
        assert other.post("/console/access/profile", {"csrf": token, "password": wrong}).status == 400, wrong
    person.submit(person.get("/console/access").form("/console/access/revoke"))
    assert person.post("/console/access/profile", fields).status == 400
    for_fetching = person.submit(form, name="fetching", service="pop")
    assert "access/profile" not in {each.attributes["action"] for each in for_fetching.page.all("form")}
    assert person.post("/console/access/profile", fields | {"password": codes(for_fetching)[0]}).status == 400


@pytest.mark.parametrize("values", [{"name": ""}, {"name": "x", "days": "-1"}, {"name": "x", "days": "9" * 9},
                                    {"name": "x", "days": "000001" + "9" * 30}, {"name": "x", "days": "0"},
                                    {"name": "x", "days": "000001" + "9" * 5000},
                                    {"name": "x" * 200}])
def test_what_makes_no_sense_is_refused_in_words(served: tuple[Server, int], values: dict[str, str]) -> None:
    person = Person(served[1])
    person.log_in("alice")
    answer = person.submit(person.get("/console/access").form("/console/access/make"), **values)
    assert answer.status == 400 and not codes(answer)


def squares(path: str) -> set[tuple[int, int]]:
    """The dark ones that a path of horizontal strokes of width 1 draws (SVG 1.1 §8.3)."""
    found, x, y = set[tuple[int, int]](), 0.0, 0.0
    for letter, numbers in re.findall(r"([Mmh])([^Mmh]*)", path):
        values = [float(each) for each in re.findall(r"-?[0-9.]+", numbers)]
        if letter == "h":
            found |= {(int(x) + at, int(y)) for at in range(int(values[0]))}
            x += values[0]
        else:
            x, y = (values[0], values[1]) if letter == "M" else (x + values[0], y + values[1])
    return found


def test_a_second_factor_from_its_setting_up_to_its_removal(served: tuple[Server, int]) -> None:
    server, port = served
    person, elsewhere = Person(port), Person(port)
    person.log_in("bob")
    elsewhere.log_in("bob")
    secret, page = set_up(person.get("/console/access/new"), "/console/access/enrol")
    app = pyotp.TOTP(secret)
    drawn = page.page.all("svg")[0].all("path")[1].attributes["d"]
    address = next(each.text for each in page.page.all("code") if each.text.startswith("otpauth://totp/"))
    assert squares(drawn) == {(x + 4, y + 4) for y, row in enumerate(segno.make(address, error="m").matrix)
                              for x, dark in enumerate(row) if dark}
    wrong = person.submit(page.form("/console/access/enrol"), code="000000" if app.now() != "000000" else "000001")
    assert wrong.status == 403 and "The code is wrong" in wrong.text
    enrolled = int(time.time()) // 30
    made = person.submit(wrong.form("/console/access/enrol"), code=app.generate_otp(enrolled))
    recovery = codes(made)
    assert len(recovery) == 10
    assert heading(elsewhere.get("/console/access")) == "Log in to onecopy"        # who had the password alone
    assert not logs_in(server, "bob", "secret")             # mail wants an app password now

    again = Person(port)
    second = again.log_in("bob")
    assert heading(second) == "Second factor" and not second.page.all("nav")
    for path in ("/console/own", "/console/access", "/console/access/new"):
        assert heading(again.get(path)) == "Second factor"
    for step in (enrolled - 1, enrolled):           # an older one, and the one that has been taken
        assert again.submit(second.form("/console/second/code"), code=app.generate_otp(step)).status == 403
    inside = again.submit(second.form("/console/second/code"), code=recovery[0])
    assert is_inside(inside)
    thief = Person(port)
    assert thief.submit(thief.log_in("bob").form("/console/second/code"), code=recovery[0]).status == 403    # once
    assert again.ask("GET", "/console/access/new").status == 409            # no other one in its place
    refused = again.submit(again.get("/console/access").form("/console/access/remove"), code="123456")
    assert refused.status == 403
    removed = again.submit(again.get("/console/access").form("/console/access/remove"), code=recovery[1])
    assert "Set up an authenticator app" in removed.text and logs_in(server, "bob", "secret")


def test_the_cookie_of_the_first_step_is_worth_nothing_after_the_second(served: tuple[Server, int]) -> None:
    server, port = served
    person = Person(port)
    person.log_in("carol")
    secret, page = set_up(person.get("/console/access/new"), "/console/access/enrol")
    recovery = codes(person.submit(page.form("/console/access/enrol"), code=pyotp.TOTP(secret).now()))
    login = Person(port)
    second = login.log_in("carol")
    before = dict(login.cookies)
    login.submit(second.form("/console/second/code"), code=recovery[0])
    assert login.cookies != before
    login.cookies = before
    assert heading(login.get("/console/own")) == "Log in to onecopy"
    server.command("access", "reset", "carol")
    assert is_inside(Person(port).log_in("carol"))


def test_who_must_have_one_sets_it_up_before_anything_else(served: tuple[Server, int]) -> None:
    _, port = served
    person = Person(port)
    page = person.log_in("admin")
    assert heading(page) == "Set up a second factor" and not page.page.all("nav")
    assert heading(person.get("/console/access")) == "Set up a second factor"
    secret = page.form("/console/second/enrol").all("input", name="secret")[0].attributes["value"]
    made = person.submit(page.form("/console/second/enrol"), code=pyotp.TOTP(secret).now())
    assert len(codes(made)) == 10
    assert heading(person.get("/console/")) == "Overview"
    assert heading(Person(port).log_in("admin")) == "Second factor"


# Security keys

def wanted(page: Answer, form: str) -> dict[str, Any]:
    """What the page would have the browser ask of a key."""
    found: dict[str, Any] = json.loads(page.form(form).attributes["data-key"])
    return found


def gets_in(person: Person, form: Element, **values: str) -> bool:
    return (person.submit(form, follow=False, **values).status, is_inside(person.get("/console/access"))) == (303, True)


def add_key(person: Person, key: SecurityKey, name: str, page: Answer | None = None) -> Answer:
    page = page or person.get("/console/access/newkey")
    return person.submit(page.form("/console/access/newkey"), name=name,
                         credential=key.create(wanted(page, "/console/access/newkey")))


def test_with_a_security_key_mail_wants_an_app_password(served: tuple[Server, int]) -> None:
    """Until it is removed. All about keys themselves is in `test_console_keys`, in memory."""
    server, port = served
    person, key = Person(port, "localhost"), SecurityKey(f"http://localhost:{port}")
    person.log_in("dora", path="/console/access")
    assert len(codes(add_key(person, key, "blue"))) == 10 and not logs_in(server, "dora", "secret")
    again = Person(port, "localhost")
    asked = again.log_in("dora")
    assert heading(asked) == "Second factor" and not is_inside(again.get("/console/second/newkey"))
    sent = key.get(wanted(asked, "/console/second/key"))
    assert gets_in(again, asked.form("/console/second/key"), credential=sent)
    after = again.submit(again.get("/console/access").form("/console/access/key/remove"))
    assert "Set up an authenticator app" in after.text and logs_in(server, "dora", "secret")
    trail = server.command("audit", "show", "--kind", "access")
    assert trail.count("security key added") == trail.count("security key removed") == 1


def test_a_browser_with_a_security_key(browser: Browser, served: tuple[Server, int]) -> None:
    """The password is asked for when the login is an hour ago; then the script asks the browser, and the browser its
    key, when it is registered and at the next login."""
    server, port = served
    here = f"http://localhost:{port}/console/"
    browser.ask("WebAuthn.enable")
    browser.ask("WebAuthn.addVirtualAuthenticator", options={
        "protocol": "ctap2", "transport": "usb", "hasResidentKey": False, "hasUserVerification": False,
        "automaticPresenceSimulation": True})

    def log_in() -> None:
        browser.open(f"{here}access")
        browser.fill("#user", "frank")
        browser.fill("#password", "secret")
        browser.click("main button", loads=True)

    log_in()
    path, = [path for path in (server.root / "run" / "sessions").iterdir() if
             json.loads(path.read_text())["user"] == "frank"]
    path.write_text(json.dumps({**json.loads(path.read_text()), "created": time.time() - 3600}))
    browser.fill("#name", "telephone")
    browser.click("form[action$=make] button", loads=True)
    assert browser.text("h1") == "Confirm that it is you", browser.text()
    assert axe.violations(browser) == []
    browser.fill("#confirm_password", "secret")
    browser.click("main button", loads=True)
    assert browser.text("h1") == "App password", browser.text()
    browser.open(f"{here}access/newkey")
    browser.fill("#name", "blue")
    browser.click("form[data-key] button", loads=True)
    assert browser.text("h1") == "Recovery codes", browser.text()
    browser.click(".who button", loads=True)
    log_in()
    assert browser.text("h1") == "Second factor"
    assert axe.violations(browser) == []
    browser.click("form[data-key] button", loads=True)
    assert browser.text("h1") == "Your account", browser.text()
    browser.open(f"{here}access")
    assert "never" not in browser.text("[aria-label='Security keys'] tbody")
    assert "blue" in browser.text("[aria-label='Security keys'] tbody")
    assert axe.violations(browser) == [] and browser.errors == []


def test_a_copy_for_reading_changes_no_app_password_and_no_second_factor() -> None:
    """The machine that serves would not hear of it: what was revoked would still hold there, and here again soon."""
    visit: Any = SimpleNamespace(user="alice", console=SimpleNamespace(store=SimpleNamespace(read_only=True)),
                                 form={"secret": "A" * 32, "code": "000000"})
    for change in (changed(visit, lambda before: before), accesspages.enrol(visit), accesspages._remove(visit)):
        with pytest.raises(Refused, match="nothing has been changed"):
            offload.now(change)
