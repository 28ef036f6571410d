"""A relay that answers as it is told to: what each answer comes to, and what of a message goes over the wire."""

import socketserver
import threading
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from store.events.outboxtable import Parcel
from tools.outbox.destination import Down, NotNow, Refused
from tools.outbox.mailrelay import deliver
from tools.outbox.outboxsettings import Settings

MESSAGE = b"Message-ID: <1@example.org>\r\n\r\n.a line\r\n\xfc\r\n"


class Relay(socketserver.ThreadingTCPServer):
    """`says`: its answer to a command, by the command's first word, instead of a good one; "": it closes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.says: dict[str, str] = {}
        self.heard: list[bytes] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def settings(self) -> Settings:
        return Settings(f"smtp://127.0.0.1:{self.server_address[1]}", timeout=60.0)


class _Conversation(socketserver.StreamRequestHandler):
    server: Relay

    def handle(self) -> None:
        good = {"EHLO": "250-here\r\n250 8BITMIME", "DATA": "354 go on", "QUIT": "221 bye"}
        self.say(self.server.says.get("greeting", "220 here"))
        for line in self.rfile:
            self.server.heard.append(line)
            word = line.split()[0].decode().upper()
            if not self.say(self.server.says.get(word, good.get(word, "250 fine"))) or word == "QUIT":
                return
            if word == "DATA" and word not in self.server.says:
                while (line := self.rfile.readline()) != b".\r\n":
                    self.server.heard.append(line)
                if not self.say(self.server.says.get(".", "250 I have it")):
                    return

    def say(self, answer: str) -> str:
        if answer:
            self.wfile.write(answer.encode() + b"\r\n")
        return answer


@pytest.fixture
def relay() -> Iterator[Relay]:
    with Relay() as made:
        yield made
        made.shutdown()


def row(sender: str = "", recipient: str = "bob@example.net", kind: str = "mail", **how: Any) -> Parcel:
    body = {"from": sender, "to": recipient, "octets": b64encode(MESSAGE).decode(), **how}
    return Parcel(b"wa\0" + b"0" * 16, "a", False, kind, 0.0, 0, 0, "", body)


def test_a_message_goes_as_it_is(relay: Relay) -> None:
    """RFC 5321 §4.5.2: a dot at the beginning of a line is doubled; RFC 6152: octets above 127 are announced."""
    deliver(relay.settings, row())
    assert relay.heard[1:3] == [b"mail FROM:<> BODY=8BITMIME\r\n", b"rcpt TO:<bob@example.net>\r\n"]
    assert relay.heard[4:-1] == [b"Message-ID: <1@example.org>\r\n", b"\r\n", b"..a line\r\n", b"\xfc\r\n"]


@pytest.mark.parametrize(("command", "answer", "outcome"), [
    ("greeting", "554 no", Down), ("greeting", "421 busy", Down), ("greeting", "", Down), ("EHLO", "", Down),
    ("MAIL", "451 later", NotNow), ("MAIL", "553 no", Refused), ("RCPT", "450 later", NotNow),
    ("RCPT", "550 nobody", Refused), ("RCPT", "421 closing", Down), ("DATA", "451 later", NotNow),
    ("DATA", "554 no", Refused), (".", "452 full", NotNow), (".", "554 spam", Refused), (".", "", Down)])
def test_what_an_answer_comes_to(relay: Relay, command: str, answer: str, outcome: type[Exception]) -> None:
    """RFC 5321 §4.2.1: 4yz is for now, 5yz for good; §3.8: after 421 the connection is closed."""
    relay.says = {command: answer}
    with pytest.raises(outcome) as raised:
        deliver(relay.settings, row())
    assert answer in str(raised.value)
    assert getattr(raised.value, "final", True)


def test_nobody_listens() -> None:
    with pytest.raises(Down):
        deliver(Settings("smtp://127.0.0.1:1"), row())


@pytest.mark.parametrize("parcel", [
    row(recipient="bob@example.net>\r\nRCPT TO:<eve@example.net"), row(sender="a b@example.org"), row(recipient=""),
    row(kind="event"), row(octets="no base64!"), row(recipient="bj\xf6rn@example.net")])
def test_what_can_never_be_sent(relay: Relay, parcel: Parcel) -> None:
    """Also an address that needs SMTPUTF8, for a relay that has not got it."""
    with pytest.raises(Refused) as raised:
        deliver(relay.settings, parcel)
    assert raised.value.final and not any(line.upper().startswith(b"RCPT") for line in relay.heard)
