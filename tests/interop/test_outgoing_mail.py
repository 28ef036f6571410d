"""Mail that the store sends by itself: a real server, and a real Postfix, which is down at first and hands it back by
LMTP.
"""

from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.events import outgoingmail, receivers
from store.events.eventvalues import MAIL
from store.events.receivers import Receiver
from store.opening import open_store
from tests.support.clients.lmtp import Lmtp
from tests.support.processes import wait
from tests.support.servers.postfix import Postfix
from tests.support.servers.server import Server
from tests.support.stores.stores import SMALL
from tools.cli.controlclient import ask_all

pytestmark = pytest.mark.long

TIME = 300              # seconds, far more than anything takes
OCTETS = 95_000         # of a quota of 100 KiB


def relay(server: Server) -> dict[str, Any]:
    """How it stands, as the server says."""
    found: list[dict[str, Any]] = [each for answers in ask_all(server.root, "outbox").values() for each in answers]
    return found[0]


def write_for(server: Server, recipient: str) -> None:
    """A mail of somebody's, while no server runs."""
    receivers.change(server.root, lambda before: [Receiver("relay", kind=MAIL)])
    store = open_store(server.root, SMALL)
    transact(store.mailboxes.env, lambda txn: outgoingmail.add(
        store.recorder, store.outbox, "", [recipient], b"Message-ID: <1@example.org>\r\n\r\nx\r\n", txn))
    store.close()


def test_a_notice_leaves_when_the_relay_is_there(tmp_path: Path) -> None:
    """Whatever has been killed before; what the relay does not take is put off, though it was written before (Postfix
    answers 454)."""
    server = Server(tmp_path, ["alice"], {"store.quota_notice": "on", "outbox.relay.retry": "50ms",
                                          "outbox.relay.retry_longest": "200ms"})
    postfix = Postfix(server.lmtp)
    server.options["outbox.relay.to"] = f"smtp://127.0.0.1:{postfix.port}"
    write_for(server, "bob@elsewhere.example")
    with server:
        server.command("quota", "set", "alice", "--octets", "100K")
        with Lmtp(server.lmtp) as lmtp:
            lmtp.deliver("a@example.org", ["alice"], b"Subject: x\r\n\r\n".ljust(OCTETS, b"x") + b"\r\n")
        assert server.command("quota", "warn") == "alice\n"
        wait.until(lambda: relay(server)["state"] == "down", "nobody listens", pid=server.pid, limit=TIME)
        server.kill()
        server.start()
        with postfix:
            wait.until(lambda: relay(server)["sent"] == 1, "the relay has it", pid=server.pid, limit=TIME)
            postfix.empty(limit=TIME)
        assert server.stop() == 0
        server.check()
    store = open_store(server.root, SMALL)
    entry = store.entry(MailboxName("alice", "INBOX"))
    _, row = store.open_mailbox(entry).rows
    with store.open_message(entry, row) as file:
        notice = message_from_bytes(file.read(0, file.size))
    other, = store.outbox.every("relay")        # it is put off, or its turn has just come again
    store.close()
    assert notice["Return-Path"] == "<>" and notice["Message-ID"].startswith("<quota.")
    assert any("Postfix" in value for value in notice.get_all("Received"))
    assert other.body["to"] == "bob@elsewhere.example" and other.said.startswith("454") and other.tries > 0
