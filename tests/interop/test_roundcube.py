"""A real Roundcube with the configuration that we ship (docs/examples/roundcube), in a real browser: what a person does
with mail there, and what our server has then.

Everything is done by what a person presses; what came of it is read by another connection. With PICTURES=FOLDER the
pictures of docs/mail-programs are made in that folder.
"""

import json
import re
import socket
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

import pytest

from tests.support.clients.chromium import Chromium, running
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.webmail import READING, Webmail
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.certificates import Authority
from tests.support.servers.postfix import Postfix
from tests.support.servers.roundcube import SHIPPED, Roundcube
from tests.support.servers.server import PASSWORD, Server

LIMIT = 300.0
SPECIAL = "Drafts, Sent, Junk, Trash, Archive"
SETTINGS = "document.querySelector('#preferences-frame').contentDocument"
FILTER = "document.querySelector('#filter-box').contentDocument"

HTML = b"""From: Bob <bob@example.org>\r
To: alice@example.org\r
Subject: =?utf-8?q?Pr=C3=BCfung?= of the numbers\r
Date: Tue, 05 Mar 2024 06:07:08 +0200\r
Message-ID: <html@example.org>\r
MIME-Version: 1.0\r
Content-Type: multipart/mixed; boundary=b\r
\r
--b\r
Content-Type: text/html; charset=utf-8\r
\r
<h1>Gr\xc3\xbc\xc3\x9fe</h1><p onclick="alert(1)">These are <b>bold</b>.</p><script>alert(2)</script>\r
--b\r
Content-Type: text/csv; name="numbers.csv"\r
Content-Disposition: attachment; filename="numbers.csv"\r
Content-Transfer-Encoding: base64\r
\r
MSwyLDMK\r
--b--\r
"""


def plain(day: int, subject: str, text: str, before: int = 0) -> bytes:
    """A message of text; with `before` an answer to that of that day."""
    answer = f"In-Reply-To: <{before}@example.org>\r\nReferences: <{before}@example.org>\r\n" if before else ""
    return (f"From: Bob <bob@example.org>\r\nTo: alice@example.org\r\nSubject: {subject}\r\n"
            f"Date: Wed, {day:02} Mar 2024 10:00:00 +0000\r\nMessage-ID: <{day}@example.org>\r\n{answer}\r\n"
            f"{text}\r\n").encode()


MAIL = (HTML, plain(6, "Lunch", "At noon?"), plain(7, "Re: Lunch", "Yes, gladly.", before=6),
        plain(8, "Invoice", "Please pay for the aubergines."), plain(9, "You have won", "A lottery."))


@pytest.fixture(scope="module")
def served(memory_path: Path) -> Iterator[tuple[Server, Authority]]:
    """A server with mail for alice. What it sends waits: nobody listens where its relay is."""
    authority = Authority(memory_path, "authority")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        yield from serving(memory_path, authority, nobody.getsockname()[1])


def serving(memory_path: Path, authority: Authority, relay: int) -> Iterator[tuple[Server, Authority]]:
    """See `served`."""
    with Server(memory_path, ("alice", "bob", "webmail"), {
            "tls.certificate": str(authority.server()), "store.special_mailboxes": SPECIAL,
            "store.default_domain": "example.org", "login.proxies": "webmail",
            "login.proxy_networks": "127.0.0.1", "managesieve.address": "127.0.0.1",
            "managesieve.port": str(free_port()), "outbox.relay.to": f"smtp://127.0.0.1:{relay}"}) as server:
        for octets in MAIL:
            server.command("deliver", "alice", octets=octets)
        server.command("quota", "set", "alice", "--octets", "10000")
        yield server, authority
        assert server.stop() == 0
        server.check()


@pytest.fixture(scope="module")
def relay(served: tuple[Server, Authority]) -> Iterator[Postfix]:
    """What takes mail from Roundcube."""
    with Postfix(served[0].lmtp) as postfix:
        yield postfix


@pytest.fixture(scope="module")
def roundcube(served: tuple[Server, Authority], relay: Postfix, memory_path: Path) -> Iterator[Roundcube]:
    """Where the mail is read."""
    server, authority = served
    with Roundcube(memory_path / "roundcube", int(server.options["imap.tls_port"]),
                   int(server.options["managesieve.port"]), authority.file,
                   {"tls://smtp.example.org:587": f"127.0.0.1:{relay.port}", "'%u'": "''", "'%p'": "''"}) as found:
        yield found
        assert found.errors() == ""


@pytest.fixture(scope="module")
def browser(memory_path: Path) -> Iterator[Chromium]:
    """One for both people."""
    with running(memory_path / "chromium") as found:
        yield found


@pytest.fixture(scope="module")
def alice(roundcube: Roundcube, browser: Chromium) -> Iterator[Webmail]:
    """She has logged in."""
    with browser.context() as page:
        person = Webmail(page, roundcube.address)
        person.log_in("alice")
        yield person
        assert page.dialogs == page.errors == []


@pytest.fixture
def stored(served: tuple[Server, Authority]) -> Iterator[Callable[[str], dict[str, set[str]]]]:
    """What a mailbox of alice has: the flags of each message by its subject."""
    with Imap(served[0].imap, "alice", PASSWORD) as imap:
        yield lambda mailbox: messages(imap, mailbox)


def messages(imap: Imap, mailbox: str) -> dict[str, set[str]]:
    """Subjects, and flags."""
    found = {}
    if imap.select(mailbox, examine=True)[1]:
        for response in imap.ok("FETCH 1:* (FLAGS BODY.PEEK[HEADER.FIELDS (SUBJECT)])").untagged:
            flags = re.search(rb"FLAGS \(([^)]*)\)", response.text)
            if flags and response.literals:
                subject = response.literals[0].decode().partition(":")[2].strip()
                found[subject] = set(flags[1].decode().split())
    return found


def comes(served: tuple[Server, Authority], there: Callable[[], bool]) -> None:
    """Wait until it is so in the store: a page says that it is done before it has asked."""
    wait.until(there, "it is so in the store", pid=served[0].pid, limit=LIMIT)


@pytest.fixture
def arrives(served: tuple[Server, Authority], alice: Webmail) -> Callable[[str], None]:
    """A message with that subject comes, and is chosen."""
    def deliver(subject: str) -> None:
        served[0].command("deliver", "alice", octets=plain(10, subject, "Text."))
        alice.open("mail", mbox="INBOX")
        alice.choose(subject)
    return deliver


# Reading

def test_what_is_listed(alice: Webmail) -> None:
    alice.lists("You have won", "Invoice", "Re: Lunch", "Lunch", "Prüfung of the numbers")
    assert alice.folders() == ["INBOX", "Drafts", "Sent", "Junk", "Trash", "Archive"]
    alice.picture("roundcube-inbox")


def test_html_and_an_attachment_are_read(alice: Webmail, stored: Callable[[str], dict[str, set[str]]]) -> None:
    """What a script in a message says is not done."""
    alice.open("mail", mbox="INBOX")
    alice.choose("Prüfung of the numbers")
    assert "These are bold." in alice.page.value(f"{READING}.body.innerText")
    assert alice.page.value(f"{READING}.querySelector('#messagebody h1').innerText") == "Grüße"
    where = alice.page.value(f"{READING}.querySelector('#attachment-list a.filename').href")
    assert "numbers.csv" in alice.page.value(f"{READING}.querySelector('#attachment-list').innerText")
    fetched = f"fetch({json.dumps(where + '&_download=1')}).then(each => each.text())"
    assert alice.page.value(fetched, wait=True) == "1,2,3\n"
    assert "\\Seen" in stored("INBOX")["=?utf-8?q?Pr=C3=BCfung?= of the numbers"]
    alice.picture("roundcube-message")


def test_search(alice: Webmail) -> None:
    """By subject, and by a word of the text."""
    alice.open("mail", mbox="INBOX")
    alice.page.fill("#mailsearchform", "lunch")
    alice.page.press("Enter")
    alice.lists("Re: Lunch", "Lunch")
    alice.open("mail", mbox="INBOX", search="", headers="text", filter="ALL")
    alice.page.value("rcmail.env.search_mods = {'*': {text: 1}}; rcmail.select_folder('INBOX'); 0")
    alice.page.fill("#mailsearchform", "aubergines")
    alice.page.press("Enter")
    alice.lists("Invoice")


def test_threads(alice: Webmail) -> None:
    """An answer stands below what it answers."""
    alice.open("mail", mbox="INBOX")
    alice.page.value("rcmail.set_list_options([], 'date', 'DESC', 1, 'widescreen')")
    alice.page.until("!rcmail.busy && document.querySelector('#messagelist tr.thread')")
    alice.does("expand-all")
    parent = "(row => rcmail.message_list.rows[row.uid].parent_uid || 0)"
    alice.page.until("document.querySelectorAll('#messagelist tr.message').length >= 5")
    assert alice.page.value(f"""Object.values(rcmail.message_list.rows).filter({parent}).map(row => [
        document.getElementById(row.id).querySelector("span.subject a").innerText.trim(),
        document.getElementById(rcmail.message_list.rows[row.parent_uid].id).querySelector("span.subject a").innerText
            .trim()])""") == [["Re: Lunch", "Lunch"]]
    alice.picture("roundcube-threads")
    alice.page.value("rcmail.set_list_options([], 'date', 'DESC', 0, 'widescreen')")
    alice.page.until("!rcmail.busy && !document.querySelector('#messagelist tr.thread')")


def test_the_quota_is_shown(served: tuple[Server, Authority], alice: Webmail) -> None:
    """The numbers are ours (RFC 9208 §5.1), in units of 1,024 octets."""
    with Imap(served[0].imap, "alice", PASSWORD) as imap:
        used, limit = map(int, imap.ok("GETQUOTAROOT INBOX").find(rb"STORAGE (\d+) (\d+)").groups())
    alice.open("mail", mbox="INBOX")
    alice.page.until(f"document.querySelector('#rcmquotadisplay').innerText == '{round(100 * used / limit)}%'")
    assert alice.page.value("document.querySelector('#rcmquotadisplay').title").split()[:6] == [
        "Disk", "usage:", str(used), "KB", "/", str(limit)]


# Changing

def test_flags(served: tuple[Server, Authority], alice: Webmail, arrives: Callable[[str], None],
               stored: Callable[[str], dict[str, set[str]]]) -> None:
    def become(*flags: str) -> None:
        comes(served, lambda: stored("INBOX")["Flags"] == set(flags))

    arrives("Flags")
    become("\\Seen")
    alice.does("mark", "flagged")
    become("\\Seen", "\\Flagged")
    alice.does("mark", "unread")
    become("\\Flagged")
    alice.does("mark", "unflagged")
    become()


@pytest.mark.parametrize(("button", "command", "mailbox"), [
    ("Archive", "plugin.archive", "Archive"), ("Delete", "delete", "Trash"),
    ("Junk", "plugin.markasjunk.junk", "Junk")])
def test_moved_by_a_button(served: tuple[Server, Authority], alice: Webmail, arrives: Callable[[str], None],
                           button: str, command: str, mailbox: str,
                           stored: Callable[[str], dict[str, set[str]]]) -> None:
    subject = f"To be in {mailbox}"
    arrives(subject)
    alice.enabled(command)
    alice.mark("#layout-content a", button)
    alice.page.click("[data-test]")
    comes(served, lambda: subject in stored(mailbox) and subject not in stored("INBOX"))
    alice.page.until("![...document.querySelectorAll('#messagelist span.subject a')].some("
                     f"each => each.offsetParent && each.innerText.trim() == '{subject}')")


def test_moved_and_deleted_for_good(served: tuple[Server, Authority], alice: Webmail, arrives: Callable[[str], None],
                                    stored: Callable[[str], dict[str, set[str]]]) -> None:
    """Deleting in Trash leaves nothing."""
    arrives("Moved")
    alice.does("move", "Trash")
    comes(served, lambda: "Moved" in stored("Trash"))
    alice.open("mail", mbox="Trash")
    alice.choose("Moved")
    alice.does("delete")
    comes(served, lambda: "Moved" not in stored("Trash"))


# Mailboxes

def save(alice: Webmail, name: str) -> None:
    alice.page.until(f"{SETTINGS}.querySelector('[name=_name]')")
    alice.enabled("save", f"{SETTINGS}.defaultView")
    alice.page.value(f"{SETTINGS}.querySelector('[name=_name]').value = {json.dumps(name)}")
    alice.page.value(f"{SETTINGS}.querySelector('button.submit').click()")
    alice.page.until(f"!rcmail.busy && [...document.querySelectorAll('#subscription-table li a')].some("
                     f"each => each.innerText.trim() == {json.dumps(name)})")


def edit(alice: Webmail, name: str) -> None:
    alice.mark("#subscription-table li a", name)
    alice.page.click("[data-test]")
    alice.page.until(f"{SETTINGS}.querySelector('[name=_name]').value == {json.dumps(name)}")


def listed(served: tuple[Server, Authority], command: str, user: str = "alice") -> set[str]:
    with Imap(served[0].imap, user, PASSWORD) as imap:
        return {response.text.decode().rpartition('"/" ')[2].strip('"') for response in imap.ok(command).untagged}


def test_a_mailbox_is_made_renamed_unsubscribed_and_deleted(served: tuple[Server, Authority], alice: Webmail) -> None:
    alice.open("settings", action="folders")
    alice.enabled("create-folder")
    alice.page.click("a.create")
    save(alice, "Größe")
    assert "Gr&APYA3w-e" in listed(served, 'LSUB "" *')
    edit(alice, "Größe")
    save(alice, "Plans")
    assert {"Plans"} == listed(served, 'LIST "" *') - {*SPECIAL.split(", "), "INBOX", "Projects"}
    assert "Plans" in listed(served, 'LSUB "" *')
    alice.page.click("#subscription-table input[value=Plans] + label")
    comes(served, lambda: "Plans" not in listed(served, 'LSUB "" *'))
    assert "Plans" in listed(served, 'LIST "" *')
    edit(alice, "Plans")
    alice.enabled("delete-folder")
    alice.page.click("a.delete")
    alice.confirm()
    alice.page.until("!rcmail.busy && !document.querySelector('#subscription-table input[value=Plans]')")
    assert "Plans" not in listed(served, 'LIST "" *')


def test_a_mailbox_is_shared(served: tuple[Server, Authority], roundcube: Roundcube, browser: Chromium, alice: Webmail
                             ) -> None:
    """By the plug-in for ACLs; the other one finds it, subscribes to it, reads in it and cannot do more than that."""
    alice.open("settings", action="folders")
    alice.enabled("create-folder")
    alice.page.click("a.create")
    save(alice, "Projects")
    with Imap(served[0].imap, "alice", PASSWORD) as imap:
        assert imap.append("Projects", plain(11, "A plan", "Text.")).status == "OK"
    edit(alice, "Projects")
    alice.enabled("acl-create", f"{SETTINGS}.defaultView")
    alice.page.value(f"{SETTINGS}.defaultView.rcmail.command('acl-create')")
    alice.page.until("document.querySelector('.ui-dialog #acluser')")
    alice.page.fill("#acluser", "bob")
    alice.page.click(".ui-dialog button.mainaction")
    alice.page.until(f"{SETTINGS}.querySelector('#acltable tbody tr')")
    alice.picture("roundcube-sharing")
    with Imap(served[0].imap, "alice", PASSWORD) as imap:
        assert imap.ok("GETACL Projects").find(rb" bob (\w+)")[1] == b"lrs"
    with browser.context() as page:
        bob = Webmail(page, roundcube.address)
        bob.log_in("bob")
        bob.open("settings", action="folders")
        page.click("#subscription-table input[value='user/alice/Projects'] + label")
        comes(served, lambda: "user/alice/Projects" in listed(served, 'LSUB "" *', "bob"))
        bob.open("mail", mbox="user/alice/Projects")
        bob.choose("A plan")
        assert "user/alice/Projects" in bob.folders()
        bob.picture("roundcube-shared")
        bob.does("delete")
        page.until("document.querySelector('#messagestack .error, #messagestack .alert-danger')")
        assert page.dialogs == page.errors == []
    with Imap(served[0].imap, "alice", PASSWORD) as imap:
        assert messages(imap, "Projects") == {"A plan": set()}


# Sending

def test_a_message_is_sent(served: tuple[Server, Authority], alice: Webmail, relay: Postfix,
                           stored: Callable[[str], dict[str, set[str]]]) -> None:
    """By a real Postfix, which delivers it to us; a copy is in Sent."""
    alice.open("mail", action="compose")
    alice.page.fill("#_to", "bob@example.org")
    alice.page.press("Tab")
    alice.page.fill("#compose-subject", "Grüße aus dem Netz")
    alice.page.fill("#composebody", "Hello Bob.")
    alice.page.click("button.send, a.send", loads=True)
    alice.page.until("rcmail.env.task == 'mail' && rcmail.env.action != 'compose'")
    with Imap(served[0].imap, "bob", PASSWORD) as imap:
        wait.until(lambda: imap.select("INBOX")[1], "the message comes", pid=relay.pid, limit=LIMIT)
        assert b"Hello Bob." in imap.messages()[1]
    assert len(stored("Sent")) == 1


# Filters

def form(alice: Webmail, command: str, fields: dict[str, str]) -> None:
    """The form beside the list of filters, of which these fields are filled, is saved."""
    alice.enabled(command)
    alice.page.until(f"{FILTER}.readyState == 'complete' && (({FILTER}.body.dataset.old = 'yes'))")
    alice.page.value(f"rcmail.command({json.dumps(command)})")
    alice.page.until(f"{FILTER}.readyState == 'complete' && !{FILTER}.body.dataset.old")
    alice.enabled("plugin.managesieve-save", f"{FILTER}.defaultView")
    for name, value in fields.items():
        alice.page.value(f"{FILTER}.getElementsByName({json.dumps(name)})[0].value = {json.dumps(value)}")
    alice.page.value(f"{FILTER}.querySelector('button.submit').click()")


def rule(alice: Webmail, name: str, mailbox: str) -> None:
    """What has a plan in its subject goes into that mailbox."""
    form(alice, "plugin.managesieve-add", {
        "_name": name, "_rule_target[0][]": "plan", "_action_mailbox[0]": mailbox})
    alice.mark("#filterslist td.name", name)


def activated(alice: Webmail) -> None:
    """The set of filters that is shown is the one that holds."""
    alice.does("plugin.managesieve-setact")
    alice.page.until("!document.querySelector('#filtersetslist tr.selected').classList.contains('disabled')")


def test_filters(served: tuple[Server, Authority], alice: Webmail,
                 stored: Callable[[str], dict[str, set[str]]]) -> None:
    """A rule, an answer while she is away, and a second set of filters: mail goes where they say, each sender gets one
    answer, and only the set that is active holds."""
    server, _ = served

    def comes_from(sender: str, subject: str) -> None:
        with Lmtp(server.lmtp) as relay:
            assert relay.deliver(sender, ["alice@example.org"], plain(12, subject, "Text."))[0].code == 250

    def answers() -> dict[str, EmailMessage]:
        rows = [row["body"] for row in json.loads(server.command("outbox", "show", "relay", "--json"))]
        assert all(row["from"] == "" for row in rows) and len({row["to"] for row in rows}) == len(rows)
        return {row["to"]: message_from_bytes(b64decode(row["octets"]), policy=policy.default) for row in rows}

    with Imap(server.imap, "alice", PASSWORD) as imap:
        for mailbox in ("Gr&APwA3w-e", "Later"):
            imap.ok(f"CREATE {mailbox}")
            imap.ok(f"SUBSCRIBE {mailbox}")
    alice.open("settings", action="plugin.managesieve")
    rule(alice, "Plans", "Gr&APwA3w-e")
    alice.open("settings", action="plugin.managesieve-vacation")
    alice.enabled("plugin.managesieve-save")
    alice.page.fill("#vacation_subject", "Verreist bis März")
    alice.page.fill("#vacation_reason", "Zurück am Montag.\n.\nGrüße")
    alice.page.choose("#vacation_status", "on")
    alice.page.click("button.submit")
    alice.page.until("!rcmail.busy && document.querySelector('#messagestack .confirmation')")
    comes_from("ann@example.net", "Another plan")
    comes_from("ann@example.net", "Dinner")
    assert set(stored("Gr&APwA3w-e")) == {"Another plan"} and "Dinner" in stored("INBOX")
    answer = answers().pop("ann@example.net")
    assert (answer["Subject"], answer["From"]) == ("Verreist bis März", "alice@example.org")
    assert answer.get_content().splitlines() == ["Zurück am Montag.", ".", "Grüße"]

    alice.open("settings", action="plugin.managesieve")
    form(alice, "plugin.managesieve-setadd", {"_name": "Später"})
    alice.page.until("document.querySelector('#filtersetslist tr.selected').innerText.trim() == 'Später'")
    rule(alice, "Other plans", "Later")
    comes_from("ann@example.net", "The first set holds")
    comes_from("ann@example.net", "A plan of the first set")
    assert set(stored("Gr&APwA3w-e")) == {"Another plan", "A plan of the first set"}
    activated(alice)
    alice.picture("roundcube-filters")
    comes_from("carol@example.net", "A plan of the second set")
    assert set(stored("Later")) == {"A plan of the second set"}
    assert set(answers()) == {"ann@example.net"}


# Single sign-on

def test_single_sign_on(served: tuple[Server, Authority], browser: Chromium, tmp_path: Path) -> None:
    """The web server has asked who it is: Roundcube logs in as a proxy of that user (login.proxies)."""
    server, authority = served
    more = (SHIPPED.parent / "sso.inc.php").read_text()
    assert more.count("its password") == 1
    with Roundcube(tmp_path, int(server.options["imap.tls_port"]), int(server.options["managesieve.port"]),
                   authority.file, more=more.removeprefix("<?php").replace("its password", PASSWORD)) as roundcube:
        with browser.context() as page:
            page.ask("Network.setExtraHTTPHeaders", headers={
                "Authorization": "Basic " + b64encode(b"alice:what the web server takes").decode()})
            person = Webmail(page, roundcube.address)
            person.open("mail")
            person.page.until("document.querySelector('#messagelist tr.message')")
            assert "Invoice" in person.subjects()
            person.open("settings", action="plugin.managesieve")
            person.page.until("document.querySelector('#filtersetslist tbody tr')")
        assert roundcube.errors() == ""
