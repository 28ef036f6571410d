"""What the relays do with mail that the store does not take, and with addresses in UTF-8, in the configuration that we
ship.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.readers import trace
from tests.support.servers.relay import DOMAIN, memory
from tests.support.servers.relays import RelayFor, exim, make_server, opensmtpd, postfix_with_map, postfix_with_policy
from tests.support.servers.server import PASSWORD, Server
from tests.support.stores import messages

SENDER = f"sender@{DOMAIN}"
QUOTA = 100_000
PATIENCE = 180           # seconds
TAKEN = (250, b"")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with TemporaryDirectory(prefix="onecopy-", dir=memory()) as folder:
        with make_server(Path(folder), ["full", "roomy", "off", "jörg"]) as server:
            server.command("quota", "set", "full", "--octets", str(QUOTA))
            server.command("user", "set", "off", "--status", "disabled")
            with Lmtp(server.lmtp) as lmtp:
                assert lmtp.deliver(SENDER, ["full"], messages.make(1, 0, QUOTA - 2000))[0].code == 250
            yield server


def inbox(server: Server, user: str) -> list[bytes]:
    with Imap(server.imap) as imap:
        imap.ok(b"AUTHENTICATE PLAIN " + base64.b64encode(f"\0{user}\0{PASSWORD}".encode()))   # LOGIN has no UTF-8
        imap.select()
        return list(imap.messages().values())


@pytest.mark.parametrize("relay_for", [postfix_with_policy, postfix_with_map, exim, opensmtpd])
def test_mail_over_quota_waits_at_the_relay_and_bounces_after_the_grace_period(
        tmp_path: Path, relay_for: RelayFor) -> None:
    first, message = (messages.make(1, number, QUOTA * 2 // 3) for number in range(2))
    with make_server(tmp_path, ["full", "roomy", "sender"]) as server, relay_for(server) as relay:
        server.command("quota", "set", "full", "--octets", str(QUOTA))
        with Lmtp(server.lmtp) as lmtp:
            assert lmtp.deliver(SENDER, ["full"], first)[0].code == 250
        with relay.smtp() as smtp:                  # without SIZE nobody knows at RCPT that it is too much
            smtp.mail(SENDER)
            for user in ("full", "roomy"):
                assert smtp.rcpt(f"{user}@{DOMAIN}")[0] == 250
            assert smtp.data(message)[0] == 250
        relay.until(lambda: "4.2.2" in relay.log(), "a refusal for now", PATIENCE)
        tried = relay.log().count("4.2.2")
        relay.flush()
        relay.until(lambda: relay.log().count("4.2.2") > tried, "one more try", PATIENCE)
        assert relay.queued()
        assert server.stop() == 0
        server.options["store.quota_grace"] = "0"
        server.start()
        relay.flush()
        relay.empty(PATIENCE)
        assert "5.2.2" in relay.log()
        assert [trace.below(found, SENDER) for found in inbox(server, "full")] == [first]
        found, = inbox(server, "roomy")             # once, although the relay tried three times
        assert trace.below(found, SENDER, relayed=True) == message
        notice, = inbox(server, "sender")
        assert notice.startswith(b"Return-Path: <>\r\n")
        assert b"full@example.org" in notice and b"5.2.2" in notice and b"roomy@" not in notice
        server.check()


@pytest.mark.parametrize(("relay_for", "disabled", "full"), [
    (postfix_with_policy, (550, b"5.2.1"), (452, b"4.2.2")),
    (postfix_with_map, (550, b"5.1.1"), TAKEN),         # a map only knows which addresses there are
    (exim, (550, b"5.2.1"), TAKEN),
])
def test_who_takes_no_mail_is_refused_before_it_is_queued(
        server: Server, relay_for: RelayFor, disabled: tuple[int, bytes], full: tuple[int, bytes]) -> None:
    with relay_for(server) as relay, relay.smtp() as smtp:
        smtp.mail(SENDER, ["SIZE=50000"])
        for user, (code, enhanced) in {"roomy": TAKEN, "roomy+list": TAKEN, "nobody": (550, b"5.1.1"),
                                       "off": disabled, "full": full}.items():
            reply = smtp.rcpt(f"{user}@{DOMAIN}")
            assert reply[0] == code and enhanced in reply[1], user
        assert smtp.rcpt("somebody@elsewhere.example")[0] in (454, 550, 554)      # no open relay


def test_opensmtpd_which_does_not_ask_bounces_at_once(server: Server) -> None:
    message = messages.make(2, 0, 5000)
    before = len(inbox(server, "roomy"))
    with opensmtpd(server) as relay:
        relay.send(f"roomy@{DOMAIN}", [f"{user}@{DOMAIN}" for user in ("nobody", "off", "roomy")], message)
        relay.empty(PATIENCE)
    found = inbox(server, "roomy")[before:]
    assert [trace.below(octets, f"roomy@{DOMAIN}", relayed=True) for octets in found
            if not octets.startswith(b"Return-Path: <>\r\n")] == [message]
    notices = b"".join(octets for octets in found if octets.startswith(b"Return-Path: <>\r\n"))
    for told in (b"nobody@example.org", b"5.1.1", b"off@example.org", b"5.2.1"):
        assert told in notices


@pytest.mark.parametrize("relay_for", [postfix_with_policy, postfix_with_map, exim])    # OpenSMTPD has no SMTPUTF8
def test_addresses_and_headers_in_utf_8(server: Server, relay_for: RelayFor) -> None:
    """RFC 6531, RFC 6532."""
    sender = f"måns@{DOMAIN}"
    message = messages.make(3, 3, 5000).replace(b"Subject: ", "From: Jörg <jörg@example.org>\r\nSubject: ∞ ".encode())
    users = ("jörg", "roomy")
    before, files = [len(inbox(server, user)) for user in users], len(server.messages)
    with relay_for(server) as relay:
        with relay.smtp() as smtp:
            refused = smtp.sendmail(sender, [f"{user}@{DOMAIN}" for user in (*users, "jürg")], message,
                                    mail_options=["SMTPUTF8", "BODY=8BITMIME"])
            assert {address: reply[0] for address, reply in refused.items()} == {f"jürg@{DOMAIN}": 550}
        relay.empty(PATIENCE)
    assert len(server.messages) == files + 1
    for user, count in zip(users, before, strict=True):
        found, = inbox(server, user)[count:]
        assert trace.below(found, sender, relayed=True) == message
