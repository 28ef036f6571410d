"""The pages of the web console, on a real server: in a real browser with names that are made to do harm, each action by
its form, each page by each role, and two administrators at once.

With CONSOLE_PICTURES=FOLDER pictures of pages are left in that folder, as docs/console/ has them.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.clients import axe
from tests.support.clients.chromium import Browser, Chromium
from tests.support.clients.consoleclient import Answer, Element, Person
from tests.support.clients.consolepages import (
    BOXES,
    EVERYBODY,
    LATER,
    LEADING,
    LIMIT,
    MESSAGE,
    OUTSIDE,
    ROLES,
    SHOWN,
    USER,
    WHO,
    address,
    entered,
    log_in,
    look,
    send,
    take_pictures,
)
from tests.support.clients.imap import Imap
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.refusinghook import RefusingHook
from tests.support.servers.server import PASSWORD, Server
from tools.http.console.pages.allpages import SECTIONS

PICTURES = os.environ.get("CONSOLE_PICTURES", "")


@pytest.fixture(scope="module")
def hook() -> Iterator[RefusingHook]:
    """Hears of each mailbox that is made."""
    with RefusingHook() as made:
        yield made


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, hook: RefusingHook) -> Iterator[tuple[Server, int]]:
    """A server with people of each role, and a user and mail with names that are to do harm."""
    port = free_port()
    options = {"http.port": str(port), "http.administrators": "admin", "http.helpdesk": "help=localhost",
               "http.auditors": "auditor", "login.slow_first": "0.1", "store.default_domain": "localhost",
               "imap.time_travel": "alice", "outbox.hook.to": hook.url, "outbox.hook.types": "MailboxCreate",
               "outbox.hook.attempts": "1", "outbox.hook.gather": "50ms"}
    with Server(tmp_path_factory.mktemp("pages"), (*WHO, "bob", USER), options) as server:
        server.command("mailbox", "create", "--", USER, *BOXES)
        server.command("mailbox", "acl", "--", USER, BOXES[1], "bob", "lrs", "alice", "lr")
        server.command("deliver", USER, "alice", octets=MESSAGE)
        with Imap(server.imap) as imap:
            assert imap.command(b'LOGIN "<img src=x onerror=alert(7)>" wrong').status == "NO"
        yield server, port
        assert server.stop() == 0
        server.check()


@pytest.fixture(scope="module")
def admin(served: tuple[Server, int]) -> Person:
    """At a plain client."""
    return entered(served[1], "admin")


@pytest.fixture(scope="module")
def shown(served: tuple[Server, int], chromium_process: Chromium) -> Iterator[Browser]:
    """An administrator at a browser."""
    with chromium_process.context() as page:
        log_in(page, served[1], "admin")
        assert page.text("h1") == "Overview"
        yield page


# In a browser

@pytest.mark.parametrize("path", SHOWN)
def test_each_page_in_a_browser(served: tuple[Server, int], shown: Browser, path: str) -> None:
    look(shown, served[1], path, SHOWN[path])
    assert shown.text(".who p").split()[-1] == "admin"


@pytest.mark.parametrize("user", WHO)
def test_a_walk_of_each_role(served: tuple[Server, int], chromium_process: Chromium, user: str) -> None:
    """One session, from the login to the log-out: links and forms lead to pages of the role alone, and to all of it."""
    role, seen = WHO[user], set[tuple[str, bool]]()     # pages, and whether of somebody
    with chromium_process.context() as page:
        log_in(page, served[1], user)
        places = [page.address]
        while places:
            page.open(places.pop(0), 1280)
            assert page.status() == 200 and page.text("h1"), (page.address, page.text())
            assert role != "h" or axe.violations(page) == [], page.address       # others' pages are seen elsewhere
            for found in page.value(LEADING):
                path, _, query = found.partition("/console/")[2].partition("?")
                if path and (of := (path, "user=" in query)) not in seen:
                    seen.add(of)
                    places.append(found)
        theirs = {view.path for section in SECTIONS for view in section.views
                  if view.path and not view.post and role in ROLES.get(view.path, EVERYBODY)}
        found = {path for path, _ in seen}
        assert found <= theirs and theirs - found <= LATER and page.dialogs == page.errors == [], found ^ theirs
        page.click(".who button", loads=True)
        assert page.text("h1") == "Log in to onecopy"


def test_what_a_receiver_has_refused(served: tuple[Server, int], hook: RefusingHook, admin: Person, shown: Browser
                                     ) -> None:
    """One is sent again, one is forgotten after a question, and then all are sent again."""
    here = {"receiver": "hook", "dead": "yes"}

    def refused() -> list[Element]:
        """A form for each, which the last one, for all of them, follows."""
        return admin.get(address("outbox/one", here)).page.all("form", action="/console/outbox/retry")[:-1]

    wait.until(lambda: len(refused()) >= len(BOXES), "all are refused", pid=served[0].pid, limit=LIMIT)
    look(shown, served[1], "outbox/one", {"receiver": "hook"})
    assert "Nothing waits for it." in shown.text()
    look(shown, served[1], "outbox/one", here)
    assert "400" in shown.text("table")
    assert "onerror" in shown.text("table")
    hook.refuses, there = False, len(refused())
    assert "It has been done." in send(admin, refused()[0]).text
    wait.until(lambda: len(hook.has) == 1, "the first is sent again", pid=served[0].pid, limit=LIMIT)
    shown.open(f"http://127.0.0.1:{served[1]}" + address("outbox/one", here), 1280)
    shown.click("td button.danger", loads=True)
    assert shown.dialogs == ["Forget this event? The receiver never gets it."] and len(refused()) == there - 2
    shown.dialogs.clear()
    assert shown.text(".notice") == "It has been removed."
    again = admin.get(address("outbox/one", here)).page.all("form", action="/console/outbox/retry")[-1]
    assert "It has refused nothing." in send(admin, again).text
    wait.until(lambda: len(hook.has) == there - 1, "the others are sent again", pid=served[0].pid, limit=LIMIT)
    assert {each["event"] for each in hook.has} == {"MailboxCreate"}


def test_snapshots_are_compared(served: tuple[Server, int], admin: Person, shown: Browser) -> None:
    """From the page that lists them."""
    made = json.loads(served[0].command("snapshot", "create", "--json"))["snapshot"]
    link, = {each.attributes["href"] for each in admin.get("/console/recovery").page.all("a")
             if "recovery/diff" in each.attributes["href"]}
    assert made in link
    look(shown, served[1], "recovery/diff", {"before": made})
    assert "Nothing has changed." in shown.text()
    name = '"><img src=x onerror=alert(8)>'
    served[0].command("mailbox", "create", "--", USER, name)
    served[0].command("deliver", USER, "--mailbox", name, octets=MESSAGE)
    look(shown, served[1], "recovery/diff", {"before": made})
    assert name in shown.text("table") and USER in shown.text("table")
    row, = (row for row in admin.get(address("recovery/diff", {"before": made})).page.all("tr") if name in row.text)
    assert row.text.split()[-3:] == ["1", "0", "0"]
    assert admin.get(address("recovery/diff", {"before": "20200101T000000Z"})).status == 409
    served[0].command("snapshot", "remove", made, "--force", "--yes")


def test_a_quota_report_is_made_from_the_page(served: tuple[Server, int], admin: Person) -> None:
    page = admin.submit(admin.get("/console/quotas").form("/console/quotas/report"), by="users")
    until = time.monotonic() + 300
    while "It is under way." in page.text and time.monotonic() < until:
        page = admin.get(page.page.all("p", role="status")[0].attributes["data-progress"].replace("&form=json", ""))
    assert page.status == 200 and page.page.all("h1")[0].text == "Quota report", page.text
    assert USER in page.text and "alice" in page.text
    form = admin.get("/console/quotas").form("/console/quotas/report")
    assert admin.submit(form, by="../x").status == 400


def test_mail_in_snapshots_is_looked_at_and_brought_back(served: tuple[Server, int], admin: Person, shown: Browser
                                                          ) -> None:
    """An administrator that of anybody; who is let, the own mail, and by the own name alone; nobody else."""
    server, here = served[0], f"http://127.0.0.1:{served[1]}"
    made = json.loads(server.command("snapshot", "create", "--json"))["snapshot"]
    for more in ({}, {"snapshot": made}, {"snapshot": made, "name": "INBOX"}):
        shown.open(here + address("recovery/mail", {"user": USER, **more}), 360, mobile=True)
        assert shown.status() == 200 and axe.violations(shown) == [] == shown.dialogs and shown.errors == []
        assert shown.value("document.documentElement.scrollWidth") <= 360 and shown.value(OUTSIDE) == []
        assert shown.value("document.querySelectorAll('main script, main img').length") == 0
    assert "<img src=x onerror=alert(6)>" in shown.text()
    server.command("messages", "expunge", "-u", "alice", "--yes", "all")
    alice, bob = entered(served[1], "alice"), entered(served[1], "bob")
    assert alice.get("/console/own/mailboxes").page.all("a", href="/console/own/snapshots")
    page = alice.get(address("own/snapshots", {"snapshot": made, "name": "INBOX", "gone": "1"}))
    assert page.status == 200, page.text
    chosen, every = (each for each in page.page.all("form") if "snapshots/copy" in each.attributes["action"])
    assert alice.submit(chosen).status == 400                           # nothing was chosen
    assert "brought back" in alice.submit(every).text
    assert len(json.loads(server.command("messages", "search", "-u", "alice", "--json", "all"))) == 1
    other = address("own/snapshots", {"snapshot": made, "name": f"user/{USER}/INBOX"})
    assert alice.get(other).status in (403, 409) and "onerror" not in alice.get(other).text
    assert alice.get(address("recovery/mail", {"user": USER})).status == 403
    assert bob.get("/console/own/snapshots").status == 403
    assert not bob.get("/console/own/mailboxes").page.all("a", href="/console/own/snapshots")
    server.command("snapshot", "remove", made, "--force", "--yes")      # other tests begin with none


@pytest.mark.parametrize(("path", "text"), [
    ("mailboxes", BOXES[0]), ("mailboxes", BOXES[5]), ("mailboxes/one", BOXES[1]), ("mailboxes/one", USER),
    ("why/message", '⟨U+202E⟩"><script>alert(5)</script>'), ("why/quota", BOXES[2]), ("quotas", USER),
    ("log", "<img src=x onerror=alert(7)>")])
def test_names_are_shown_as_what_they_are(served: tuple[Server, int], admin: Person, path: str, text: str) -> None:
    assert " ".join(text.split()) in admin.get(address(path, SHOWN[path])).text


def test_by_keyboard_alone(served: tuple[Server, int], shown: Browser) -> None:
    """From the top of a page to its form, and what it says then."""
    shown.open(f"http://127.0.0.1:{served[1]}/console/mailboxes")
    shown.press("Tab")
    assert shown.value("document.activeElement.className") == "skip"
    shown.press("Enter")
    shown.press("Tab")
    assert shown.value("document.activeElement.id") == "user"
    shown.ask("Input.insertText", text="alice")
    shown.press("Enter", loads=True)
    assert "Mailboxes of alice" in shown.text("h1") and "INBOX" in shown.text("table")


def test_a_question_before_what_is_deleted(served: tuple[Server, int], shown: Browser) -> None:
    served[0].command("mailbox", "create", "alice", "Old")
    shown.open(f"http://127.0.0.1:{served[1]}" + address("mailboxes/one", {"user": "alice", "mailbox": "Old"}))
    shown.click("button.danger", loads=True)
    if shown.value("!!document.querySelector('progress')"):
        shown.loaded(times=2)                   # the script shows the page where it leads
    assert shown.dialogs == ["Delete this mailbox with all its messages? It can be brought back until the purge."]
    shown.dialogs.clear()
    assert shown.text(".notice") == "It has been removed." and "Old" in shown.text("main")


if PICTURES:
    def test_pictures(served: tuple[Server, int], shown: Browser) -> None:
        take_pictures(*served, shown, Path(PICTURES))


def test_who_is_away_has_senders_answered(served: tuple[Server, int]) -> None:
    """What is typed reaches the answer as it is, and another script is left alone."""
    server, person = served[0], entered(served[1], "alice")
    text = 'Back on Monday: "soon" \\ \u00fcber\r\nif true { discard; }'
    form = person.get(address("own/away")).form("/console/own/away/leave")
    done = person.submit(form, subject='Away; "x"', text=text, last="2099-12-24")
    assert "Senders get this answer until 2099-12-24." in done.text, done.text
    message = b"From: ada@example.org\r\nTo: alice@localhost\r\n\r\nHello.\r\n"
    tried = server.command("sieve", "test", "alice", octets=message)
    assert "vacation" in tried and "discard" not in tried.partition("vacation")[0], tried
    again = done.form("/console/own/away/leave")
    assert again.all("input", name="subject")[0].attributes["value"] == 'Away; "x"'
    assert "no such" not in person.submit(again, subject="", text="x").text
    assert "Senders get no answer." in person.submit(done.form("/console/own/away/return")).text
    server.command("sieve", "put", "alice", "mine", "--activate", octets=b"keep;\r\n")
    assert "mine" in person.get(address("own/away")).text
    assert person.submit(form, subject="x", text="x").status == 409
    assert "mine" in server.command("sieve", "list", "alice")
    server.command("sieve", "activate", "alice")


# By each role

@pytest.mark.parametrize("user", WHO)
def test_wrong_rights(served: tuple[Server, int], user: str) -> None:
    """Whoever may not have a page or send a form is told so, whatever the navigation shows."""
    person, role = entered(served[1], user), WHO[user]
    page = person.get("/console/own")
    token = page.form("/console/logout").all("input", name="csrf")[0].attributes["value"]
    for view in (view for section in SECTIONS for view in section.views if view.path):
        name = f"{'POST ' if view.post else ''}{view.path}"
        if role in ROLES.get(name, EVERYBODY):
            continue
        path = address(view.path)
        answer = person.post(path, {"csrf": token}) if view.post else person.ask("GET", path)
        assert answer.status == 403, (user, name)
    links = {link.attributes["href"].removeprefix("/console/") for link in page.page.all("nav")[0].all("a")}
    assert links and all(role in ROLES.get(each, EVERYBODY) for each in links)


@pytest.mark.parametrize("path", [path for path in SHOWN if "r" in ROLES[path]])
def test_an_auditor_sees_and_changes_nothing(served: tuple[Server, int], path: str) -> None:
    answer = entered(served[1], "auditor").get(address(path, SHOWN[path]))
    assert answer.status == 200, answer.text
    forms = [each.attributes["action"] for each in answer.page.all("form") if each.attributes["method"] == "post"]
    assert forms == ["/console/logout"]


def test_a_helpdesk_has_its_own_domain_alone(served: tuple[Server, int]) -> None:
    served[0].add_users(["carol@elsewhere.example"])
    person = entered(served[1], "help")
    assert person.get(address("mailboxes", {"user": "alice"})).status == 200
    for path in ("mailboxes", "why/quota", "why/login"):
        answer = person.get(address(path, {"user": "carol@elsewhere.example"}))
        assert answer.status == 403 and "none of the users" in answer.text
        assert answer.text == person.get(address(path, {"user": "nobody@elsewhere.example"})).text
    assert person.get(address("mailboxes", {"user": "public/"})).status == 403


# Actions

def _mailbox(name: str, user: str = "alice") -> str:
    return address("mailboxes/one", {"user": user, "mailbox": name})


def _mailboxes(server: Server, user: str = "alice") -> str:
    return server.command("mailbox", "list", user)


def test_mailboxes(served: tuple[Server, int], admin: Person) -> None:
    server = served[0]
    page = admin.get(address("mailboxes", {"user": "alice"}))
    made = send(admin, page.form("/console/mailboxes/create"), name="A & B")
    assert "It has been made." in made.text and made.page.all("h1")[0].text == "Mailbox A & B"
    renamed = send(admin, made.form("/console/mailboxes/rename"), name="C")
    assert "The change has been made." in renamed.text
    shared = send(admin, [each for each in renamed.page.all("form", action="/console/mailboxes/share")][-1],
                          identifier="bob", rights="lr")
    assert "bob lr" in " ".join(server.command("mailbox", "acl", "alice", "C").split())
    entry = shared.page.all("form", action="/console/mailboxes/share")[1]
    taken = send(admin, entry, rights="")
    assert "The change has been made." in taken.text and "bob" not in server.command("mailbox", "acl", "alice", "C")
    gone = send(admin, taken.form("/console/mailboxes/delete"))
    assert "It has been removed." in gone.text and "\nC" not in _mailboxes(server)
    again = next(each for each in gone.page.all("form", action="/console/mailboxes/undelete")
                 if each.all("input", name="mailbox")[0].attributes["value"] == "C")
    assert "It has been brought back." in send(admin, again).text and " C " in _mailboxes(server)
    wrong = send(admin, admin.get(address("mailboxes", {"user": "alice"})).form("/console/mailboxes/create"), name="C")
    assert wrong.status == 409 and "exists" in wrong.text.lower()


def test_expunged_messages_come_back(served: tuple[Server, int], admin: Person) -> None:
    server = served[0]
    server.command("deliver", "bob", octets=MESSAGE)
    with Imap(server.imap, "bob", PASSWORD) as imap:
        imap.select()
        imap.ok(b"STORE 1 +FLAGS (\\Deleted)")
        imap.ok(b"EXPUNGE")
    answer = send(admin, admin.get(_mailbox("INBOX", "bob")).form("/console/mailboxes/messages"))
    assert "It has been brought back." in answer.text and "1, 1 unseen" in answer.text


def test_quotas_and_partitions(served: tuple[Server, int], admin: Person) -> None:
    server = served[0]
    page = admin.get(address("quotas", {"root": "bob"}))
    answer = send(admin, page.form("/console/quotas/set"), octets="3M", messages="1000")
    assert "The change has been made." in answer.text and "3.0 MiB" in answer.text and "1,000" in answer.text
    wrong = send(admin, answer.form("/console/quotas/set"), octets="much")
    assert wrong.status == 409 and "much" in wrong.text
    answer = send(admin, admin.get(address("partitions")).form("/console/partitions/add"), name="other",
                          folder=str(server.root.parent / "other"))
    assert "It has been made." in answer.text and "other" in answer.page.all("table")[0].text
    drain = next(each for each in answer.page.all("form", action="/console/partitions/drain")
                 if each.all("input", name="name")[0].attributes["value"] == "other")
    assert "It has been moved." in send(admin, drain).text
    assert "other" in server.command("partition", "list")


def test_snapshots_backups_and_housekeeping(served: tuple[Server, int], admin: Person, tmp_path: Path) -> None:
    page = send(admin, admin.get(address("recovery")).form("/console/recovery/create"))
    page = admin.get(address("recovery"))
    name = page.page.all("tbody")[0].all("th")[0].text
    assert len(name) == 16 and "good" in page.page.all("tbody")[0].text
    assert admin.get(address("recovery/diff", {"before": name})).status == 200
    send(admin, page.form("/console/recovery/verify"))
    refused = send(admin, page.form("/console/recovery/remove"))
    assert refused.status == 409 and "newest" in refused.text
    archive = str(tmp_path / "a.tar")
    send(admin, page.form("/console/recovery/backup"), to=archive)
    assert Path(archive).stat().st_size > 0
    send(admin, page.form("/console/recovery/archive"), archive=archive)
    assert send(admin, page.form("/console/recovery/backup"), to="-").status == 400
    for name in ("check", "purge", "expire"):
        page = admin.get(address("housekeeping"))
        assert send(admin, page.form(f"/console/housekeeping/{name}")).status == 200
    page = admin.get(address("housekeeping"))
    assert "it found nothing wrong" in page.text and "1970" not in page.text     # what was not done yet has no time


def test_a_check_that_finds_something_is_shown(served: tuple[Server, int], admin: Person) -> None:
    path = served[0].messages[0]
    octets = path.read_bytes()
    path.unlink()
    try:
        send(admin, admin.get(address("housekeeping")).form("/console/housekeeping/check"))
        page = admin.get(address("housekeeping"))
        assert "its file is missing" in page.text and "restore ARCHIVE --over" in page.text
    finally:
        path.write_bytes(octets)
        path.chmod(0o600)


def test_connections_logins_and_the_configuration(served: tuple[Server, int], admin: Person) -> None:
    server = served[0]
    with Imap(server.imap, "bob", PASSWORD) as imap:
        page = admin.get(address("connections", {"user": "bob"}))
        forms = [each for each in page.page.all("form") if each.attributes["action"] == "/console/connections/end"]
        assert all("It has been ended." in send(admin, each).text for each in forms) and b"BYE" in imap.response().text
    assert admin.get(address("connections", {"protocol": "carrier pigeon"})).status == 409
    with Imap(server.imap) as imap:
        assert imap.command(b"LOGIN bob wrong").status == "NO"
    page = admin.get(address("logins", {"user": "bob"}))
    assert "bob" in page.page.all("tbody")[0].text
    assert "It has been done." in send(admin, page.form("/console/logins/clear")).text
    assert "No login has failed lately." in admin.get(address("logins", {"user": "bob"})).text
    answer = send(admin, admin.get(address("config")).form("/console/config/reload"))
    assert answer.status == 200 and "It has been done." in answer.text


def test_the_audit_trail_page_by_page(served: tuple[Server, int], admin: Person) -> None:
    server = served[0]
    server.command("mailbox", "subscribe", "alice", "INBOX")
    page = admin.get(address("audit", {"kind": "mailbox", "user": "alice"}))
    assert "mailbox subscribe" in page.text and page.page.all("tbody")[0].all("tr")
    assert admin.get(address("audit", {"kind": "nonsense"})).status == 400
    assert admin.get(address("audit", {"before": "1"})).text.count("Nothing is noted that fits.") == 1


# Two administrators at once

STALE: dict[str, Callable[[Person, Answer], Answer]] = {
    "quota": lambda person, page: send(person, page.form("/console/quotas/set"), octets="5M"),
    "acl": lambda person, page: send(person, page.page.all("form", action="/console/mailboxes/share")[1],
                                              rights="lrs"),
    "delete": lambda person, page: send(person, page.form("/console/mailboxes/delete"))}
NOW = {"quota": "5M of mail, any number of messages", "acl": "lrs", "delete": "another mailbox of that name"}


@pytest.mark.parametrize("what", STALE)
def test_two_administrators_at_once(served: tuple[Server, int], admin: Person, what: str) -> None:
    """The second one decided by what is not so any more: nothing is done, and the page says what is there now."""
    server, other = served[0], entered(served[1], "admin")
    with ExitStack() as stack:
        server.command("mailbox", "create", "alice", what)
        stack.callback(server.command, "mailbox", "delete", "alice", what, "--yes")
        server.command("mailbox", "acl", "alice", what, "bob", "l")
        server.command("quota", "set", "alice", "--octets", "9M")
        path = address("quotas", {"root": "alice"}) if what == "quota" else _mailbox(what)
        mine, theirs = admin.get(path), other.get(path)
        if what == "delete":                    # another mailbox of that name
            server.command("mailbox", "delete", "alice", what, "--yes")
            server.command("mailbox", "create", "alice", what)
        else:
            assert STALE[what](other, theirs).status == 200
        answer = STALE[what](admin, mine)
        assert answer.status == 409 and f"it is now: {NOW[what]}. " in answer.text, answer.text
        assert f" {what} " in _mailboxes(server)
