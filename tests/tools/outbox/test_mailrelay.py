"""A relay that answers as it is told to: what each answer comes to, and what of a message goes over the wire."""

import socketserver
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from store.events.outboxtable import Parcel
from tests.support.servers.certificates import Authority
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
        self.context: ssl.SSLContext | None = None      # of one that speaks TLS from the beginning
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def settings(self) -> Settings:
        return Settings(f"smtp://127.0.0.1:{self.server_address[1]}", timeout=60.0)

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        if self.context is not None:
            connection = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def handle_error(self, *_: object) -> None:
        """A client that does not trust us."""


class _Conversation(socketserver.StreamRequestHandler):
    server: Relay

    def handle(self) -> None:
        good = {"EHLO": "250-here\r\n250 8BITMIME", "DATA": "354 go on", "QUIT": "221 bye"}
        if not self.say(self.server.says.get("greeting", "220 here")):
            return
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
    assert [line.lower() for line in relay.heard[1:3]] == [         # verbs are in any case (RFC 5321 §2.4)
        b"mail from:<> body=8bitmime\r\n", b"rcpt to:<bob@example.net>\r\n"]
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


@pytest.mark.parametrize("recipient", ["b\udcffb@example.net", "bob@\udcff.example.net"])
def test_an_address_that_is_no_text_is_no_sign_that_the_relay_is_down(relay: Relay, recipient: str) -> None:
    """It is of this message alone: all that waits behind it would wait for ever."""
    relay.says = {"EHLO": "250-relay.example.net\r\n250 SMTPUTF8"}
    with pytest.raises(Refused, match="cannot be sent") as raised:
        deliver(relay.settings, row(recipient=recipient))
    assert raised.value.final


class Secured:
    """How a relay that speaks TLS and asks for a login is reached: Settings, good and bad."""

    def __init__(self, relay: Relay, folder: Path) -> None:
        ours, self.others = Authority(folder, "ours"), Authority(folder, "others")
        relay.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        relay.context.load_cert_chain(ours.server())
        relay.says["EHLO"] = "250-here\r\n250 AUTH PLAIN"
        secret = folder / "password"
        secret.write_text("pass word\n")
        secret.chmod(0o600)
        port = relay.server_address[1]
        self.good = Settings(f"smtps://us%40example.org@127.0.0.1:{port}", timeout=60.0, secret=secret,
                             authorities=ours.file)


@pytest.fixture
def secured(relay: Relay, tmp_path: Path) -> Secured:
    return Secured(relay, tmp_path)


def test_over_tls_with_a_name_and_a_password(relay: Relay, secured: Secured) -> None:
    """RFC 8314 §3.3: TLS from the beginning. RFC 4954 §4 and RFC 4616 §2: the login is one line in Base64."""
    relay.says["AUTH"] = "235 welcome"
    deliver(secured.good, row())
    login = b"AUTH PLAIN " + b64encode(b"\0us@example.org\0pass word") + b"\r\n"
    assert relay.heard[1] == login
    assert [line.lower() for line in relay.heard[2:4]] == [b"mail from:<>\r\n", b"rcpt to:<bob@example.net>\r\n"]
    assert b"..a line\r\n" in relay.heard


def test_a_relay_that_does_not_take_the_password_is_down(relay: Relay, secured: Secured) -> None:
    """RFC 4954 §6: 535. It is not the message that it does not take, so the message waits."""
    relay.says["AUTH"] = "535 no"
    with pytest.raises(Down, match="535"):
        deliver(secured.good, row())
    assert not any(line.startswith(b"mail") for line in relay.heard)


def test_one_with_a_certificate_of_others_hears_nothing(relay: Relay, secured: Secured) -> None:
    with pytest.raises(Down, match="CERTIFICATE_VERIFY_FAILED"):
        deliver(evolve(secured.good, authorities=secured.others.file), row())
    assert relay.heard == []
