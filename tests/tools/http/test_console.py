"""The web console of a real server: who gets in, as whom, and what a browser of somebody else can do."""

import json
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.consoleclient import Person
from tests.support.processes.ports import free_port
from tests.support.servers.server import PROGRAM, Server

USERS = ("admin", "help", "auditor", "alice", "bob")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, int]]:
    """A server with people of each role."""
    port = free_port()
    options = {"http.port": str(port), "http.tls_port": str(free_port()), "http.administrators": "admin",
               "http.helpdesk": "help=localhost", "http.auditors": "auditor", "login.slow_first": "0",
               "store.default_domain": "localhost"}
    with Server(tmp_path_factory.mktemp("console"), USERS, options) as server:
        yield server, port
        assert server.stop() == 0
        server.check()


def test_under_tls_the_cookie_is_for_tls_alone(served: tuple[Server, int]) -> None:
    """RFC 6265bis §4.1.3.2: a browser takes __Host- only with Secure, from a secure page, without Domain."""
    server, port = served
    for address, name, end in ((f"https://127.0.0.1:{server.options['http.tls_port']}", "__Host-onecopy=", "; Secure"),
                               (f"http://127.0.0.1:{port}", "onecopy=", "")):
        done = subprocess.run(["curl", "-sk", "-D", "-", "--max-time", "180", f"{address}/console/login"],
                              capture_output=True, text=True, check=True)
        line = next(each for each in done.stdout.splitlines() if each.startswith("Set-Cookie: "))
        assert line.startswith(f"Set-Cookie: {name}") and line.endswith(f"; HttpOnly; SameSite=Strict{end}"), line


def test_who_has_not_logged_in_sees_the_form_alone(served: tuple[Server, int]) -> None:
    person = Person(served[1])
    for path in ("/console/", "/console/own", "/console/progress?id=x", "/console/nothing", "/console"):
        answer = person.get(path)
        assert answer.status == 200 and answer.page.all("h1")[0].text == "Log in to onecopy"
        assert not answer.page.all("nav")
    assert person.ask("POST", "/console/logout").fields["Location"].startswith("/console/login")


@pytest.mark.parametrize(("user", "title"), [("admin", "Overview"), ("auditor", "Overview"), ("alice", "Your account")])
def test_each_role_has_its_first_page(served: tuple[Server, int], user: str, title: str) -> None:
    answer = Person(served[1]).log_in(user)
    assert answer.status == 200 and answer.page.all("h1")[0].text == title
    assert ("Overview" in [link.text for link in answer.page.all("nav")[0].all("a")]) == (user != "alice")


def test_a_page_of_another_role_is_refused_in_words(served: tuple[Server, int]) -> None:
    person = Person(served[1])
    person.log_in("alice")
    assert person.ask("GET", "/console/").fields["Location"] == "/console/own"
    assert person.get("/console/nothing").status == 404


def test_a_wrong_password(served: tuple[Server, int]) -> None:
    server, port = served
    person = Person(port)
    answer = person.log_in("alice", "wrong")
    assert answer.status == 403 and "The user name or the password is wrong." in answer.text
    assert answer.text == person.log_in("nobody", "wrong").text         # nobody learns who is there
    assert 'refused: login address=127.0.0.1 user="alice" service=http' in server.log.read_text()
    assert person.get("/console/own").page.all("h1")[0].text == "Log in to onecopy"


def test_a_form_of_another_page_does_nothing(served: tuple[Server, int]) -> None:
    """Cross-site request forgery: the cookie alone is not enough, nor the token with another page's Origin."""
    port = served[1]
    person = Person(port)
    page = person.log_in("alice")
    form = page.form("/console/logout")
    token = form.all("input", name="csrf")[0].attributes["value"]
    tokens: list[dict[str, str]] = [{}, {"csrf": ""}, {"csrf": "0" * 64}]
    elsewhere = ("http://evil.example", "null", None, f"http://127.0.0.1:{port}0")
    for origin, values in (*(("", each) for each in tokens), *((each, {"csrf": token}) for each in elsewhere)):
        person.origin = origin
        assert person.post("/console/logout", values, follow=False).status == 403, (origin, values)
    person.origin = ""
    assert person.get("/console/own").page.all("h1")[0].text == "Your account"
    other = Person(port)
    other.log_in("bob")
    assert other.post("/console/logout", {"csrf": token}, follow=False).status == 403     # that is alice's


def test_somebody_cannot_be_logged_in_by_another_page(served: tuple[Server, int]) -> None:
    port = served[1]
    person = Person(port)
    form = person.get("/console/login").form("/console/login")
    token = form.all("input", name="csrf")[0].attributes["value"]
    values = {"user": "bob", "password": "secret", "next": "/console/"}
    assert person.post("/console/login", values, follow=False).status == 403
    person.origin = "http://evil.example"
    assert person.post("/console/login", {**values, "csrf": token}, follow=False).status == 403
    assert Person(port).post("/console/login", {**values, "csrf": token}, follow=False).status == 403


def test_a_session_ends(served: tuple[Server, int]) -> None:
    """At logout, at another password, and with the user: what its browser shows then is of no use."""
    server, port = served
    server.add_users(["carol"])
    folder = server.root / "run" / "sessions"
    person, other = Person(port), Person(port)
    before = dict(Person(port).cookies)
    page = person.log_in("carol")
    shown = dict(person.cookies)
    assert shown and shown != before
    answer = person.submit(page.form("/console/logout"))
    assert "You have logged out." in answer.text and not person.cookies.keys() - {"onecopy"}
    person.cookies = shown
    assert person.get("/console/own").page.all("h1")[0].text == "Log in to onecopy"
    other.log_in("carol")
    server.command("user", "set", "carol", "--password-stdin", octets=b"another\n")
    assert other.get("/console/own").page.all("h1")[0].text == "Log in to onecopy"
    other.log_in("carol", "another")
    server.command("user", "set", "carol", "--status", "disabled")
    assert other.get("/console/own").page.all("h1")[0].text == "Log in to onecopy"
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    secret = next(iter(shown.values()))
    assert all(secret not in path.read_text() and secret not in path.name for path in folder.iterdir())


def test_what_is_done_is_in_the_audit_trail_by_the_name_of_the_person(served: tuple[Server, int]) -> None:
    server, port = served
    assert Person(port).log_in("admin").status == 200
    assert "status by account admin (administrator )" in server.log.read_text()


def test_static_files_are_kept_by_their_digest(served: tuple[Server, int]) -> None:
    person = Person(served[1])
    page = person.get("/console/login")
    for name, kind in (("link", "href"), ("script", "src")):
        for element in page.page.all(name):
            address = element.attributes[kind]
            got = person.ask("GET", address)
            assert got.status == 200 and "immutable" in got.fields["Cache-Control"] and got.body
            again = person.ask("GET", address, If_None_Match=got.fields["ETag"])
            assert again.status == 304 and not again.body and "Content-Length" not in again.fields
            old = address.replace(address.split("/")[3], "0" * 32)
            assert person.ask("GET", old).fields["Location"] == address
    assert person.ask("GET", "/console/static/x/../../rendering.py").status == 404


def test_after_the_login_nobody_is_led_elsewhere(served: tuple[Server, int]) -> None:
    port = served[1]
    for address in ("https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "/metrics",
                    "/console/login", "/console/\r\nSet-Cookie: x=y"):
        person = Person(port)
        form = person.get("/console/login").form("/console/login")
        answer = person.submit(form, follow=False, user="alice", password="secret", next=address)
        assert answer.status == 303 and answer.fields["Location"] == "/console/"


def test_an_imap_worker_does_not_load_what_pages_need(tmp_path: Path) -> None:
    """And a session is known to each of two processes that serve HTTP."""
    port = free_port()
    with Server(tmp_path, ["alice"], {"http.port": str(port), "workers.imap": "1", "workers.http": "2"},
                program=PROGRAM) as server:
        person = Person(port)
        person.log_in("alice")
        for _ in range(6):                      # whichever of the two answers
            assert person.get("/console/own").page.all("h1")[0].text == "Your account"
        loaded = {each["process"]: "markupsafe" in Path(f"/proc/{each['pid']}/maps").read_text()
                  for each in json.loads(server.command("status", "--json"))["processes"]}
        assert {name: is_loaded for name, is_loaded in loaded.items() if "http" not in name and is_loaded} == {}, loaded
        assert any(loaded.values()), loaded     # or else it is not known by that any more
        assert server.stop() == 0
