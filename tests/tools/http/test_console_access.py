"""The console's page Access, and the second step of a login, by a real server."""

import re
import time
from collections.abc import Iterator
from imaplib import IMAP4

import pyotp
import pytest

from tests.support.clients.consoleclient import Answer, Person
from tests.support.processes.ports import free_port
from tests.support.servers.server import Server

USERS = ("admin", "alice", "bob", "carol")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, int]]:
    port = free_port()
    options = {"http.port": str(port), "http.administrators": "admin", "http.second_factor": "administrators",
               "login.slow_first": "0", "store.default_domain": "localhost"}
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
    assert "app password revoked" in server.command("audit", "show", "--kind", "access")


@pytest.mark.parametrize("values", [{"name": ""}, {"name": "x", "days": "-1"}, {"name": "x", "days": "9" * 9},
                                    {"name": "x", "days": "000001" + "9" * 30}, {"name": "x", "days": "0"},
                                    {"name": "x", "days": "000001" + "9" * 5000},
                                    {"name": "x" * 200}])
def test_what_makes_no_sense_is_refused_in_words(served: tuple[Server, int], values: dict[str, str]) -> None:
    person = Person(served[1])
    person.log_in("alice")
    answer = person.submit(person.get("/console/access").form("/console/access/make"), **values)
    assert answer.status == 400 and not codes(answer)


def test_a_second_factor_from_its_setting_up_to_its_removal(served: tuple[Server, int]) -> None:
    server, port = served
    person, elsewhere = Person(port), Person(port)
    person.log_in("bob")
    elsewhere.log_in("bob")
    secret, page = set_up(person.get("/console/access/new"), "/console/access/enrol")
    app = pyotp.TOTP(secret)
    wrong = person.submit(page.form("/console/access/enrol"), code="000000" if app.now() != "000000" else "000001")
    assert wrong.status == 403 and "The code is wrong" in wrong.text
    made = person.submit(wrong.form("/console/access/enrol"), code=app.now())
    recovery = codes(made)
    assert len(recovery) == 10
    assert heading(elsewhere.get("/console/access")) == "Log in to onecopy"        # who had the password alone
    assert not logs_in(server, "bob", "secret")             # mail wants an app password now

    again = Person(port)
    second = again.log_in("bob")
    assert heading(second) == "Second factor" and not second.page.all("nav")
    for path in ("/console/own", "/console/access", "/console/access/new"):
        assert heading(again.get(path)) == "Second factor"
    older = app.generate_otp(int(time.time()) // 30 - 1)        # or taken already
    assert again.submit(second.form("/console/second/code"), code=older).status == 403
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
