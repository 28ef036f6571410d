"""Python's imaplib, with STARTTLS and with TLS from the start: what it sends and expects is not of our making."""

import imaplib
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.support.clients.clients import DATE, HOST, Account, Mail, Message
from tests.support.servers.server import PASSWORD
from tests.support.stores import messages

LETTERS = [Message(b"Subject: =?utf-8?B?R3LDvMOfZQ==?=\r\nFrom: a@example.org\r\n\r\none\r\n", [r"\Flagged"]),
           Message(messages.make(9, 5, 2000), ["work"]), Message(b"Subject: c\r\n\r\n" + b"\xe4" * 50 + b"\r\n")]


def ok(answer):
    """The data of an OK."""
    assert answer[0] == "OK", answer
    return answer[1]


@pytest.fixture(params=["starttls", "tls"])
def client(mail: Mail, account: Account, request: pytest.FixtureRequest) -> Iterator[imaplib.IMAP4]:
    """Logged in, under TLS with a certificate that is verified."""
    context = mail.authority.trusted()
    if request.param == "tls":
        client = imaplib.IMAP4_SSL(HOST, mail.tls, ssl_context=context, timeout=180)
    else:
        client = imaplib.IMAP4(HOST, mail.starttls, timeout=180)
        assert "STARTTLS" in client.capabilities
        ok(client.starttls(context))
        assert "STARTTLS" not in client.capabilities
    with client:
        ok(client.authenticate("PLAIN", lambda challenge: f"\0{account.user}\0{PASSWORD}".encode()))
        ok(client.create("box"))
        for letter in LETTERS:
            ok(client.append("box", "(" + " ".join(letter.flags) + ")", letter.date, letter.octets))
        yield client
        ok(client.delete("box"))


@pytest.fixture(scope="module")
def account(mail: Mail) -> Account:
    return mail.accounts(1)[0]


def test_what_was_appended(client, account: Account) -> None:
    assert list(account.contents("box").values()) == LETTERS
    assert ok(client.select("box", readonly=True)) == [b"3"] and client.is_readonly
    assert ok(client.fetch("2", "(BODY.PEEK[])"))[0][1] == LETTERS[1].octets
    found = ok(client.uid("FETCH", "1:*", "(INTERNALDATE FLAGS RFC822.SIZE)"))
    for line, letter in zip(found, LETTERS, strict=True):
        assert datetime(*imaplib.Internaldate2tuple(line)[:6]).astimezone(UTC) == DATE
        assert int(re.search(rb"RFC822.SIZE (\d+)", line)[1]) == len(letter.octets)
        assert {flag.decode() for flag in imaplib.ParseFlags(line)} - {r"\Recent"} == letter.flags
    assert client.store("1", "+FLAGS", r"(\Seen)")[0] == "NO"


def test_changes(client, account: Account) -> None:
    assert ok(client.select("box")) == [b"3"]
    assert ok(client.store("1,3", "+FLAGS", r"(\Deleted)"))[1].startswith(b"3 (FLAGS (")
    ok(client.copy("1:2", "INBOX"))
    ok(client.uid("EXPUNGE", "3"))
    assert client.response("EXPUNGE")[1] == [b"3"] and ok(client.expunge()) == [b"1"]
    assert ok(client.uid("SEARCH", "ALL")) == [b"2"]
    assert [message.octets for message in account.contents("INBOX").values()][-2:] == [
        LETTERS[0].octets, LETTERS[1].octets]
    assert ok(client.uid("MOVE", "2", "INBOX"))
    assert ok(client.status("box", "(MESSAGES UIDNEXT)")) == [b"box (MESSAGES 0 UIDNEXT 4)"]
    ok(client.rename("box", "other"))
    ok(client.create("box"))
    assert ok(client.list('""', "%")) == [rb'(\HasNoChildren) "/" INBOX', rb'(\HasNoChildren) "/" box',
                                       rb'(\HasNoChildren) "/" other']
    ok(client.subscribe("other"))
    assert ok(client.lsub()) == [rb'() "/" other']
    ok(client.unsubscribe("other"))
    ok(client.delete("other"))


def test_looking_for_messages(client) -> None:
    # it looks for ENABLE among what was announced before login
    ok(client.enable("CONDSTORE"))
    assert client.response("ENABLED")[1] == [b"CONDSTORE"]
    ok(client.select("box"))
    client.literal = "GRÜßE".encode()
    assert ok(client.search("UTF-8", "SUBJECT")) == [b"1 2"]           # all messages that are made here have the word
    assert ok(client.search(None, "KEYWORD", "work")) == [b"2"]
    assert ok(client.sort("REVERSE ARRIVAL", "UTF-8", "ALL")) == [b"1 2 3"]
    assert ok(client.sort("REVERSE SIZE", "UTF-8", "UNFLAGGED")) == [b"2 3"]
    assert ok(client.thread("REFERENCES", "UTF-8", "ALL"))[0].count(b"(") == 3
    assert ok(client.fetch("1", "(BODY[TEXT]<1.2>)"))[0][1] == b"ne"
    assert client.search("X-UNKNOWN", "ALL")[0] == "NO"
    assert ok(client.namespace()) == [b'(("" "/")) (("user/" "/")) (("public/" "/"))']


def test_waiting(client, account: Account) -> None:
    """imaplib of Python 3.11 has no IDLE, but it passes one on."""
    ok(client.select("box"))
    client.send(b"I001 IDLE\r\n")
    assert client.readline().startswith(b"+")
    account.put("box", [LETTERS[0]])
    lines = []
    while b"* 4 EXISTS\r\n" not in lines:
        lines.append(client.readline())
    client.send(b"DONE\r\n")
    while not lines[-1].startswith(b"I001 OK"):
        lines.append(client.readline())
    assert ok(client.noop()) and ok(client.search(None, "ALL")) == [b"1 2 3 4"]
    ok(client.unselect())
