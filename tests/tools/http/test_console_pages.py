"""Pages of the console of a real server: what is on them, and that what their forms ask for is done."""

import json
from collections.abc import Iterator

import pytest

from tests.support.clients.consoleclient import Answer, Person
from tests.support.clients.consolepages import ROLES
from tests.support.clients.imap import Imap
from tests.support.processes.ports import free_port
from tests.support.servers.server import Server
from tools.cli.options import size
from tools.http.console import rendering
from tools.http.console.pages import ownpages
from tools.http.console.pages.allpages import SECTIONS

USERS = ("admin", "help", "auditor", "alice", "bob", "dora", "zoe@example.org")
EVIL = "<script>alert(1)</script>\"'&{{7+7}}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, int]]:
    """A server with people of each role, and mailboxes of hostile names."""
    port = free_port()
    options = {"http.port": str(port), "http.administrators": "admin", "http.helpdesk": "help=localhost",
               "http.auditors": "auditor", "login.slow_first": "0", "store.default_domain": "localhost"}
    with Server(tmp_path_factory.mktemp("pages"), USERS, options) as server:
        server.command("mailbox", "create", "alice", EVIL, "Work")
        yield server, port
        assert server.stop() == 0
        server.check()


@pytest.fixture(scope="module")
def people(served: tuple[Server, int]) -> dict[str, Person]:
    """Who has logged in, by name."""
    found = {name: Person(served[1]) for name in ("admin", "help", "auditor", "alice")}
    for name, person in found.items():
        assert person.log_in(name, path="/console/own").status == 200
    return found


def rows(answer: Answer) -> list[str]:
    """The heads of the rows of all tables."""
    return [each.text for body in answer.page.all("tbody") for each in body.all("th")]


def test_users_are_found(people: dict[str, Person]) -> None:
    admin = people["admin"]
    assert rows(admin.get("/console/users")) == sorted(USERS)
    assert rows(admin.get("/console/users?q=AL")) == ["alice"]
    assert rows(admin.get("/console/users?domain=example.org")) == ["zoe@example.org"]
    assert rows(admin.get("/console/users?after=bob")) == ["dora", "help", "zoe@example.org"]
    nobody = admin.get("/console/users?q=%3Cscript%3Ealert(1)%3C%2Fscript%3E%E2%80%AEx")
    assert "There is nobody of that name." in nobody.text
    assert rows(people["help"].get("/console/users?domain=example.org")) == sorted(set(USERS) - {"zoe@example.org"})


def test_a_helpdesk_has_no_other_domain_and_no_administrator(people: dict[str, Person]) -> None:
    for user in ("zoe%40example.org", "admin", "auditor", "nobody"):
        assert people["help"].get(f"/console/users/one?user={user}").status == 403
    page = people["help"].get("/console/users/one?user=alice")
    assert page.status == 200
    assert not {each.attributes["action"].partition("?")[0] for each in page.page.all("form")} & {
        f"/console/users/{name}" for name in ("move", "rename", "remove")}
    assert not page.form("/console/users/quota").all("input", name="messages")
    refused = people["help"].submit(page.form("/console/users/quota"), octets="none")
    assert refused.status == 403


def test_an_auditor_changes_nothing(people: dict[str, Person]) -> None:
    page = people["auditor"].get("/console/users/one?user=alice")
    assert [each.attributes["action"] for each in page.page.all("form")] == ["/console/logout"]
    token = page.page.all("input", name="csrf")[0].attributes["value"]
    for action, values in (
            ("status", {"status": "disabled", "seen": "active"}), ("password", {"new": "x", "again": "x"}),
            ("quota", {"octets": "1G", "seen": "None/None"}), ("remove", {"name": "alice"}), ("rename", {"name": "x"}),
            ("move", {"to": "primary", "seen": "primary"}), ("end", {}), ("undelete", {})):
        answer = people["auditor"].post(f"/console/users/{action}?user=alice", {**values, "csrf": token})
        assert answer.status == 403, action


def test_status_and_two_administrators_at_once(served: tuple[Server, int], people: dict[str, Person]) -> None:
    """Who would undo what somebody else has just done is told."""
    server, _ = served
    first = people["admin"].get("/console/users/one?user=bob").form("/console/users/status")
    second = people["help"].get("/console/users/one?user=bob").form("/console/users/status")
    done = people["help"].submit(second, status="hold")
    assert "The change has been made." in done.text and "hold" in done.text
    late = people["admin"].submit(first, status="active")
    assert late.status == 409 and "has been changed by somebody else" in late.text and "it is now: hold" in late.text
    assert json.loads(server.command("user", "show", "bob", "--json"))["status"] == "hold"
    trail = [json.loads(line) for path in sorted((server.root / "audit").glob("*.jsonl"))
             for line in path.read_text().splitlines()]
    assert any(each.get("account") == "help helpdesk localhost" and "--status=hold" in each["arguments"]
               for each in trail if each["what"].endswith("user set")), trail[-3:]
    again = people["admin"].get("/console/users/one?user=bob").form("/console/users/status")
    assert "The change has been made." in people["admin"].submit(again, status="active").text


def test_limits(served: tuple[Server, int], people: dict[str, Person]) -> None:
    form = people["admin"].get("/console/users/one?user=bob").form("/console/users/quota")
    done = people["admin"].submit(form, octets="2G", messages="1000")
    assert "0 octets of 2.0 GiB (0 %)" in done.text
    assert done.form("/console/users/quota").all("input", name="octets")[0].attributes["value"] == "2G"
    late = people["admin"].submit(form, octets="1G", messages="")
    assert late.status == 409 and "it is now: 2G of mail, 1000 messages" in late.text, late.text
    wrong = people["admin"].submit(done.form("/console/users/quota"), octets="much")
    assert wrong.status == 409 and "much" in wrong.text and "Traceback" not in wrong.text


@pytest.mark.parametrize(("octets", "typed"), [
    (None, ""), (0, "0"), (2 << 30, "2G"), (3 << 29, "1536M"), (1 << 10, "1K"), ((2 << 30) + 1, "2147483649")])
def test_a_limit_stands_in_its_field_as_it_is_typed(octets: int | None, typed: str) -> None:
    assert rendering.limit(octets) == typed
    assert octets is None or size(typed) == octets


def test_a_password_of_a_helpdesk(served: tuple[Server, int], people: dict[str, Person]) -> None:
    form = people["help"].get("/console/users/one?user=dora").form("/console/users/password")
    assert "are not the same" in people["help"].submit(form, new="one", again="two").text
    assert people["help"].submit(form, new=" pass word ", again=" pass word ").status == 200
    assert Person(served[1]).log_in("dora", " pass word ", "/console/own").page.all("h1")[0].text == "Your account"


def test_a_user_is_renamed_removed_and_brought_back(served: tuple[Server, int], people: dict[str, Person]) -> None:
    admin = people["admin"]
    served[0].add_users(["carl"])
    page = admin.submit(admin.get("/console/users/one?user=carl").form("/console/users/rename"), name="carla")
    assert page.page.all("h1")[0].text == "carla"
    form = page.form("/console/users/remove")
    assert "type that name" in admin.submit(form, name="carl").text
    page = admin.submit(form, name="carla")
    assert "It has been removed." in page.text
    page = admin.submit(page.form("/console/users/undelete"))
    assert "It has been brought back." in page.text and "active" in page.text


def test_sessions_are_seen_and_ended(served: tuple[Server, int], people: dict[str, Person]) -> None:
    server, port = served
    with Imap(server.imap, "alice"):
        page = people["alice"].get("/console/own")
        assert {each.split()[0] for each in rows(page)} >= {"imap", "console"}
        row = next(each for each in page.page.all("tr") if each.all("th", scope="row")
                   and each.all("th", scope="row")[0].text.startswith("imap"))
        assert "It has been ended." in people["alice"].submit(row.all("form")[0]).text
    other = Person(port)
    other.log_in("alice")
    shown = people["admin"].get("/console/users/one?user=alice")
    every = [each for each in shown.page.all("form") if each.attributes["action"].startswith("/console/users/end")]
    people["admin"].submit(every[-1])
    assert other.get("/console/own").page.all("h1")[0].text == "Log in to onecopy"
    assert people["alice"].log_in("alice").status == 200


def test_nobody_ends_sessions_of_others(served: tuple[Server, int], people: dict[str, Person]) -> None:
    server, _ = served
    with Imap(server.imap, "bob") as client:
        wanted = next(each["id"] for each in json.loads(server.command("connections", "--user", "bob", "--json")))
        token = people["alice"].get("/console/own").page.all("input", name="csrf")[0].attributes["value"]
        people["alice"].post("/console/own/end", {"session": wanted, "csrf": token})
        client.ok("NOOP")


def test_mailboxes_of_hostile_names(served: tuple[Server, int], people: dict[str, Person]) -> None:
    alice = people["alice"]
    page = alice.get("/console/own/mailboxes")
    link = next(each for each in page.page.all("a") if each.text == EVIL)
    page = alice.get(link.attributes["href"])
    assert page.page.all("h1")[0].text == EVIL and not page.page.all("main")[0].all("script")
    page = alice.submit(page.form("/console/own/mailbox/share"), who="bob", grant="read")
    assert "bob" in rows(page) and "The change has been made." in page.text
    granted = json.loads(served[0].command("mailbox", "acl", "alice", EVIL, "--json"))
    assert {"identifier": "bob", "rights": "lrs"} in granted
    page = alice.submit(page.form("/console/own/mailbox/unshare"))
    assert "bob" not in rows(page)
    wrong = alice.submit(page.form("/console/own/mailbox/share"), who="-\u202ex y", grant="read")
    assert wrong.status == 409 and "\u202e" not in wrong.text
    for address in ("user/bob/INBOX", "public/x", "nothing", "../x"):
        assert alice.get(f"/console/own/mailbox?name={address}").status in (403, 409)


def test_what_was_deleted_is_brought_back(served: tuple[Server, int], people: dict[str, Person]) -> None:
    server, alice = served[0], people["alice"]
    server.command("deliver", "alice", octets=b"Subject: x\r\n\r\nHello.\r\n")
    with Imap(server.imap, "alice") as client:
        for line in ("SELECT INBOX", "STORE 1:* +FLAGS (\\Deleted)", "EXPUNGE", "DELETE Work"):
            client.ok(line)
        page = alice.get("/console/own/mailbox?name=INBOX")
        uids = [each.attributes["value"] for each in page.page.all("input", name="uid")]
        form = page.form("/console/own/mailbox/undelete")
        assert uids and alice.post(form.attributes["action"], {
            "csrf": form.all("input", name="csrf")[0].attributes["value"]}).status == 400
        assert "It has been brought back." in alice.submit(form, uid=uids[0]).text
        page = alice.get("/console/own/mailboxes")
        page = alice.submit(page.form("/console/own/mailboxes/undelete"), **{"as": "Work again"})
        assert "Work again" in rows(page)


def test_the_own_password_needs_the_present_one(served: tuple[Server, int]) -> None:
    person = Person(served[1])
    served[0].add_users(["eve"])
    form = person.log_in("eve").form("/console/own/password")
    wrong = person.submit(form, password="wrong", new="another", again="another")
    assert wrong.status == 403 and "present password is wrong" in wrong.text
    done = person.submit(form, password="secret", new="another", again="another")
    assert "Log in with the new one." in done.text
    assert person.log_in("eve", "another").page.all("h1")[0].text == "Your account"


@pytest.mark.parametrize(("script", "facts"), [
    ("keep;", {}), ("# made by the console: [1]", {}), ("# made by the console: {", {}),
    (ownpages.vacation_script({"subject": "s", "text": "t", "last": ""}), {"subject": "s", "text": "t", "last": ""})])
def test_only_what_the_console_has_written_is_shown(script: str, facts: dict[str, str]) -> None:
    assert ownpages._facts_in(script) == facts


def test_each_page_has_its_roles_named() -> None:
    """A page that is new gets a line in ROLES, with whose it is to be."""
    views = [f"{'POST ' if view.post else ''}{view.path}" for section in SECTIONS for view in section.views]
    assert [each for each in views if each not in ROLES and not _is_own(each)] == []
    assert len(views) == len(set(views)) > 40


def _is_own(name: str) -> bool:
    """What is one's own, everybody has."""
    return name.removeprefix("POST ").split("/")[0] in ("own", "second", "access")
