"""lmtp/verification.py: what a relay hears that asks about a recipient, by Postfix's SMTPD_POLICY_README and
socketmap_table(5)."""

import logging
import re

import pytest
from attrs import define, evolve
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lmtp.protocol import verification_factory
from lmtp.verification import Malformed, Question, parse_netstring, parse_policy
from store import hosting
from store.accounts.base import Status
from store.errors import Problem, StoreError
from store.mailboxes import firstuse
from store.quota import roots
from tests.lmtp.conversation import Step
from tests.support.conversations.wire import Wire

DUNNO = b"action=DUNNO\n\n"
ANSWER = re.compile(rb"action=(?:DUNNO|[45][0-5][0-9] [45]\.\d{1,3}\.\d{1,3} [ -~]+)\n\n")
STRANGER = "eve@elsewhere.example"
NOW = 1_800_000_000
DAY = 86400

# What Postfix sends at RCPT (SMTPD_POLICY_README, "Policy protocol description").
ATTRIBUTES = {
    "request": "smtpd_access_policy", "protocol_state": "RCPT", "protocol_name": "ESMTP",
    "helo_name": "mx.elsewhere.example", "queue_id": "", "sender": STRANGER, "recipient": "alice@example.org",
    "recipient_count": "0", "client_address": "192.0.2.7", "client_name": "mx.elsewhere.example",
    "reverse_client_name": "mx.elsewhere.example", "instance": "7b.4f1c.0", "sasl_method": "", "sasl_username": "",
    "sasl_sender": "", "size": "12345", "ccert_subject": "", "ccert_issuer": "", "ccert_fingerprint": "",
    "encryption_protocol": "TLSv1.3", "encryption_cipher": "", "encryption_keysize": "256", "etrn_domain": "",
    "stress": "", "ccert_pubkey_fingerprint": "", "client_port": "54321", "policy_context": "", "server_address": "",
    "server_port": "25", "compatibility_level": "3.6", "mail_version": "3.7.11",
}


def request(**attributes):
    """A policy request; what is not given is as in ATTRIBUTES."""
    lines = [f"{name}={value}\n" for name, value in {**ATTRIBUTES, **attributes}.items()]
    return "".join(lines).encode() + b"\n"


def netstring(content):
    """By its definition: length, colon, octets, comma."""
    return str(len(content)).encode() + b":" + content + b","


def question(key, name="recipients"):
    """A socketmap request."""
    return netstring(f"{name} {key}".encode())


@define
class Asking:
    """A relay beside a place."""

    place: object
    factory: object = None

    def connect(self, peer="127.0.0.1"):
        """One more connection."""
        if self.factory is None:
            self.factory = verification_factory(self.place.store, self.place.settings, self.place.clock)
        return Wire(self.factory, self.place.clock, peer)

    def answer(self, octets):
        """What comes on a connection of its own, which the server leaves open."""
        wire = self.connect()
        wire.send(octets)
        answer = wire.received()
        assert not wire.closed
        wire.hang_up()
        assert not self.factory.streams
        return answer

    def action(self, **attributes):
        """The action for a policy request."""
        answer = self.answer(request(**attributes))
        assert ANSWER.fullmatch(answer)
        return answer[len(b"action="):-2].decode()

    def map(self, key):
        """The answer of the map, without the netstring around it."""
        answer = self.answer(question(key))
        content = answer.partition(b":")[2][:-1]
        assert netstring(content) == answer
        return content.decode()

    def rcpt(self, recipient, sender, size):
        """The last reply of LMTP to the same."""
        self.place.connect()
        wire = self.place.wire
        wire.send(f"LHLO mx.example.org\r\nMAIL FROM:<{sender}> SIZE={size} SMTPUTF8\r\n".encode())
        reply = wire.received().splitlines()[-1].decode()
        if reply.startswith("250"):
            wire.send(f"RCPT TO:<{recipient}>\r\n".encode())
            reply = wire.received().splitlines()[-1].decode()
        wire.hang_up()
        return reply


@pytest.fixture
def asking(place):
    """There is alice."""
    place.prepare([Step(1, "have", "alice; alice/INBOX")])
    return Asking(place)


@pytest.fixture
def people(asking):
    """And users of every kind, with an INBOX each."""
    place, directory = asking.place, asking.place.store.directory
    for status in Status:
        account = directory.add(status.value, "no password")
        firstuse.inbox(place.store, account)
        directory.change(account.user, status=status)
    place.prepare([
        Step(1, "have", "alice/Shared; alice/Small box; full; full/INBOX; jürgen; jürgen/INBOX; bob; public/news; "
                        "public/staff; public/hidden; carol@bücher.example; carol@xn--bcher-kva.example/INBOX"),
        Step(2, "rights", "alice/Shared bob lp"), Step(3, "rights", "public/news anyone p"),
        Step(4, "rights", "public/staff bob lp"), Step(5, "rights", "public/staff alice l")])
    directory.change("alice", aliases=["postmaster", "a.l@bücher.example"])
    directory.change("disabled", aliases=["off"])
    roots.set_quota(place.store, "full", octets=1000)
    roots.set_quota(place.store, "alice/Small box", octets=10)
    return asking


# The same verdict as at RCPT

RECIPIENTS = [
    *(status.value for status in Status), "alice", "ALICE@Example.ORG", "alice@example.org", "alice@elsewhere.example",
    "nobody@example.org", "full@example.org", "postmaster", "postmaster@example.org", "a.l@bücher.example",
    "A.L@xn--bcher-kva.example", "off@example.org", "jürgen@example.org", "JÜRGEN", "jürgén@example.org",
    "carol@BÜCHER.example",
    "alice+Shared@example.org", "alice+none@example.org", '"alice+Small box"@example.org', "nobody+x@example.org",
    "hold+x@example.org", "disabled+x@example.org", "full+x@example.org", "+x@example.org",
    "public@example.org", "public+news@example.org", "public+staff@example.org", "public+hidden@example.org",
    "public+none@example.org", "public+news@elsewhere.example", "@relay.example:alice@example.org",
    "alice@", "@example.org", "a b@", '"alice', "alice@[127.0.0.1]", "x" * 321 + "@example.org", "alice@exa_mple..org",
]
SENDERS = ["", STRANGER, "bob@example.org", "alice@example.org"]


@pytest.mark.parametrize("sender", SENDERS)
def test_the_policy_is_what_lmtp_says(people, sender):
    limit = people.place.store.settings.message_limit
    for recipient in RECIPIENTS:
        for size in (0, 11, 1001, limit, limit + 1):
            reply = people.rcpt(recipient, sender, size)
            expected = "DUNNO" if reply.startswith("250 ") else reply
            assert people.action(recipient=recipient, sender=sender, size=size) == expected


TOLD = [
    ("active", "DUNNO", True), ("alice", "DUNNO", True), ("a.l@bücher.example", "DUNNO", True),
    ("inactive", "450 4.2.1 ", True), ("hold", "450 4.2.1 ", True), ("overquota", "452 4.2.2 ", True),
    ("disabled", "550 5.2.1 ", False), ("off", "550 5.2.1 ", False),
    ("deleted", "550 5.1.1 ", False), ("removed", "550 5.1.1 ", False), ("nobody", "550 5.1.1 ", False),
    ("alice@elsewhere.example", "550 5.1.1 ", False),
    ("alice+Shared", "DUNNO", True), ("alice+none", "DUNNO", True), ("nobody+x", "550 5.1.1 ", False),
    ("hold+x", "450 4.2.1 ", True), ("disabled+x", "550 5.2.1 ", False), ("jürgen", "DUNNO", True),
    ("full", "552 5.2.2 ", True),                   # more than it may ever hold; the map does not speak of quotas
    ("public+news", "DUNNO", True), ("public", "550 5.1.1 ", False),
    ("public+staff", "550 5.1.1 ", True), ("public+none", "550 5.1.1 ", True),     # the map knows no sender
]


def test_what_each_is_told(people):
    """RFC 3463 §3.2, §3.3 for the codes; NOTFOUND is for what is refused for good, whoever sends it."""
    for recipient, action, found in TOLD:
        address = recipient if "@" in recipient else recipient + "@example.org"
        assert people.action(recipient=address, size=1001).startswith(action)
        assert people.map(address) == (f"OK {address}" if found else "NOTFOUND ")


def test_a_local_part_may_come_without_the_quotes_it_needs(people):
    """Postfix sends addresses in the form in which it keeps them, and asks maps for both forms."""
    for address in ("alice+Small box@example.org", '"alice+Small box"@example.org'):
        assert people.action(recipient=address, size=11).startswith("552 5.2.2 ")
        assert people.action(recipient=address, size=10) == "DUNNO"
        assert people.map(address) == f"OK {address}"
    assert people.action(sender="a b@elsewhere.example") == "DUNNO"
    assert people.action(recipient='"a" b@example.org').startswith("550 5.1.1 ")


def test_a_sender_that_mail_would_not_take(asking):
    for sender in ("a@b c", "a@", "@x", "<>", "a\x01b@elsewhere.example"):
        told = asking.action(sender=sender)
        assert told.startswith("501 5.1.7 ") and told == asking.rcpt("alice", sender, 0)
    assert asking.action(sender="alice") == asking.action(sender="") == "DUNNO"


def test_octets_that_are_not_utf8(people):
    octets = request(recipient="RECIPIENT", sender="SENDER")
    assert people.answer(octets.replace(b"RECIPIENT", b"\xff@example.org").replace(b"SENDER", b"")
                         ).startswith(b"action=501 5.1.3 ")
    assert people.answer(octets.replace(b"SENDER", b"\xff@example.org")).startswith(b"action=501 5.1.7 ")
    octets = octets.replace(b"RECIPIENT", b"alice").replace(b"SENDER", b"")
    assert people.answer(octets.replace(b"mx.elsewhere", b"\xff")) == DUNNO
    assert people.answer(netstring(b"recipients \xff@example.org")) == b"9:NOTFOUND ,"


def test_over_quota_for_now_and_then_for_good(people, faults):
    for partition in people.place.store.partitions.values():
        faults.around(partition.quotas, "clock", lambda _: NOW)
    roots.set_quota(people.place.store, "full", messages=1)
    assert people.action(recipient="full@example.org", size=1000) == "DUNNO"
    wire = people.place.wire
    wire.send(b"LHLO a\r\nMAIL FROM:<>\r\nRCPT TO:<full>\r\nDATA\r\nSubject: one\r\n\r\n.\r\n")
    assert wire.received().splitlines()[-1].startswith(b"250 ")
    assert people.action(recipient="full@example.org", size=10).startswith("452 4.2.2 ")
    for partition in people.place.store.partitions.values():
        faults.around(partition.quotas, "clock", lambda _: NOW + 5 * DAY)      # asking began the grace
    assert people.action(recipient="full@example.org", size=10).startswith("552 5.2.2 ")
    assert people.map("full@example.org") == "OK full@example.org"


def test_without_a_recipient_there_is_nothing_to_say(asking):
    """DATA and what follows name the recipient only when there is one."""
    for state in ("CONNECT", "EHLO", "MAIL", "DATA", "END-OF-MESSAGE"):
        assert asking.action(protocol_state=state, recipient="", sender="a@@b", size=10 ** 9) == "DUNNO"


def test_the_size_may_be_missing(people):
    assert people.action(recipient="full@example.org", size="") == "DUNNO"
    assert people.answer(b"request=smtpd_access_policy\nrecipient=full@example.org\n\n") == DUNNO


def test_only_whole_addresses_are_in_the_map(people):
    for key in ("alice", "postmaster", "@example.org", "example.org", "", "alice@", "a b", "alice@example.org> x"):
        assert people.map(key) == "NOTFOUND "
    assert people.answer(b"10:recipients,") == b"9:NOTFOUND ,"


def test_other_maps(people):
    for content in (b"domains example.org", b"", b"Recipients alice@example.org"):
        assert people.answer(netstring(content)) == netstring(b"PERM The only map here is recipients")


@pytest.mark.parametrize(("problem", "action"), [
    (Problem.UNAVAILABLE, "451 4.3.0 The store cannot be reached now"),
    (Problem.CORRUPT, "451 4.3.0 Stored data is damaged"),
    (None, "451 4.3.0 An error of this server, try again later")])
def test_what_cannot_be_found_out_is_not_called_missing(people, faults, caplog, problem, action):
    faults.fail(hosting, "look_up", RuntimeError("secret") if problem is None else StoreError(problem, detail="secret"))
    caplog.set_level(logging.INFO)
    for address in ("alice@example.org", "nobody@example.org", "public+news@example.org"):
        assert people.action(recipient=address) == action
        assert people.map(address) == "TEMP " + action[10:]
    assert "secret" in caplog.text


def test_asking_makes_nothing(asking):
    store = asking.place.store
    asking.place.prepare([Step(1, "have", "bob"), Step(2, "with", "create_mailbox=yes")])
    for address in ("alice+new@example.org", "bob+new@example.org", "bob@example.org"):
        assert asking.action(recipient=address) == "DUNNO"
        assert asking.map(address) == f"OK {address}"
    assert [str(entry.name) for entry in store.names("alice")] == ["user/alice/INBOX"] and not store.names("bob")


# The protocols

def test_many_requests_on_a_connection_in_pieces_of_any_size(people):
    asked = [f"request=smtpd_access_policy\nrecipient={user}@example.org\n\n".encode()
             for user in ("alice", "nobody", "hold")]
    answers = DUNNO + b"action=550 5.1.1 No such user\n\n" + (
        b"action=450 4.2.1 Mail for this account is on hold for now\n\n")
    cut_everywhere(people, b"".join(asked), answers)
    cut_everywhere(people, b"".join(asked).replace(b"\n", b"\r\n"), answers)


def test_many_look_ups_on_a_connection_in_pieces_of_any_size(people):
    asked = question("alice@example.org") + question("nobody@example.org") + question("x", "y") + question(
        "jürgen@example.org")
    cut_everywhere(people, asked, b"20:OK alice@example.org,9:NOTFOUND ,36:PERM The only map here is recipients,"
                                  + netstring("OK jürgen@example.org".encode()))


def cut_everywhere(asking, octets, answers):
    """The same answers, wherever the octets are cut and when they come one by one; the client may go at any."""
    for at in range(len(octets) + 1):
        wire = asking.connect()
        wire.send(octets[:at])
        gone = asking.connect()
        gone.send(octets[:at])
        gone.hang_up()
        wire.send(octets[at:])
        assert wire.received() == answers
        wire.hang_up()
    wire = asking.connect()
    for octet in octets:
        wire.send(bytes([octet]))
    assert wire.received() == answers and not wire.closed
    wire.hang_up()
    assert not asking.factory.streams


NOT_UNDERSTOOD = [
    b"\n", b"LHLO mx.example.org\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"recipient=alice@example.org\n\n",
    b"request=junk_mail\nrecipient=alice@example.org\n\n", b"request=smtpd_access_policy\nrecipient\n\n",
    b"request=smtpd_access_policy\n=x\n\n", b"request=smtpd_access_policy\nsize=1k\n\n",
    b"request=smtpd_access_policy\nsize=-1\n\n", b"request=smtpd_access_policy\nsize=" + b"9" * 21 + b"\n\n",
    b"request=smtpd_access_policy\nrecipient=alice\x00@example.org\n\n", b"x=" + b"y" * 4095 + b"\n",
    b"request=smtpd_access_policy\n" * 201,
    b"01:x,", b"00:,", b"1;", b"2049:", b"10000", b"5:hello;", b"0:x", b"1 :x,", b"999999999999", b"4x",
]


def test_what_is_not_understood_ends_the_connection(asking, caplog):
    """Postfix then tries again, or defers the mail."""
    for octets in NOT_UNDERSTOOD:
        caplog.clear()
        wire = asking.connect()
        wire.send(octets + request())
        assert wire.closed and wire.received() == b""
        assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_what_is_just_within_the_limits(asking):
    assert asking.answer(b"x=" + b"y" * 4094 + b"\n" + request()) == DUNNO
    assert asking.answer(b"x=y\n" * (200 - len(ATTRIBUTES)) + request()) == DUNNO
    assert asking.answer(netstring(b"recipients " + b"x" * 2037)) == b"9:NOTFOUND ,"


def test_parse_policy():
    assert parse_policy([b"request=smtpd_access_policy", b"recipient=a=b@x", b"sender=", b"size=7", b"odd name= "]
                        ) == Question(b"a=b@x", b"", 7)
    assert parse_policy([b"request=smtpd_access_policy"]) == Question(b"", b"", 0)


@pytest.mark.parametrize(("octets", "content"), [
    (b"0:,", b""), (b"5:hello,", b"hello"), (b"12:hello, world,", b"hello, world")])
def test_parse_netstring(octets, content):
    for end in range(len(octets)):
        assert parse_netstring(octets[:end]) is None
    assert parse_netstring(octets + b"7:x") == (content, len(octets))


@given(st.binary(max_size=2048), st.binary(max_size=20))
def test_any_content_is_a_netstring(content, rest):
    octets = netstring(content)
    assert parse_netstring(octets + rest) == (content, len(octets))


@given(st.binary(max_size=30) | st.from_regex(rb"[0-9]{1,5}:?[a-z,]*"))
def test_parse_netstring_of_junk(octets):
    try:
        found = parse_netstring(octets)
    except Malformed:
        return
    if found is not None:
        assert octets.startswith(netstring(found[0])) and found[1] == len(netstring(found[0]))


PIECES = st.sampled_from([
    b"\n", b"\r\n", b"=", b"request=smtpd_access_policy\n", b"recipient=", b"alice@example.org", b"sender=\n",
    b"size=1\n", b"\x00", b"\xff", b"@", b'"', b"x" * 5000, request(), request(recipient="nobody"), b"5:", b",",
    b"1:x,", b" ", b"0", question("alice@example.org"), b"recipients ", b"29:recipients alice@example.org,"])


@pytest.mark.long
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.lists(PIECES | st.binary(max_size=6), max_size=8).map(b"".join), max_size=4))
@example([b"9" * 5000])
def test_nonsense_is_answered_or_the_connection_ended(asking, caplog, pieces):
    caplog.clear()
    wire = asking.connect()
    for piece in pieces:
        wire.send(piece)
    said = wire.received()
    while said:
        if said[:1].isdigit():
            content, length = parse_netstring(said)
            assert re.match(rb"OK .|NOTFOUND $|TEMP |PERM ", content)
        else:
            length = ANSWER.match(said).end()
        said = said[length:]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    wire.hang_up()
    assert not asking.factory.streams


# Who may ask, how many, and for how long

@pytest.mark.parametrize(("peer", "admitted"), [
    ("127.0.0.1", True), ("::1", True), ("192.0.2.1", False), ("2001:db8::1", False), ("198.51.100.9", True)])
def test_only_relays_may_ask(asking, caplog, peer, admitted):
    networks = (*asking.place.settings.networks, "198.51.100.0/24")
    asking.place.settings = evolve(asking.place.settings, networks=networks)
    wire = asking.connect(peer)
    wire.send(request())
    assert wire.received() == (DUNNO if admitted else b"")
    assert wire.closed != admitted
    assert ("not in lmtp.networks" in caplog.text) != admitted


def test_connections_are_counted(asking, caplog):
    asking.place.settings = evolve(asking.place.settings, connections=2)
    first, second, third = asking.connect(), asking.connect(), asking.connect()
    assert third.closed and third.received() == b"" and "Too many connections" in caplog.text
    first.hang_up()
    second.send(b"\n")
    for _ in range(2):
        wire = asking.connect()
        wire.send(request())
        assert wire.received() == DUNNO


@pytest.mark.parametrize("begun", [b"", b"r", b"request=smtpd_access_policy\n", b"1", b"12:recip", request() + b"r"])
def test_silence_ends_the_connection(asking, begun):
    wire = asking.connect()
    wire.send(begun)
    asking.place.clock.advance(299)
    assert not wire.closed
    asking.place.clock.advance(2)
    assert wire.closed


@pytest.mark.parametrize("octets", [b"x=y\n", b"1999:" + b"x" * 1000])
def test_a_request_that_drips_ends_the_connection(asking, octets):
    """The time is that of a whole request, not of each piece."""
    wire = asking.connect()
    for octet in octets * 10:
        wire.send(bytes([octet]))
        asking.place.clock.advance(20)
    assert wire.closed


def test_requests_now_and_then_keep_it_open(asking):
    wire = asking.connect()
    for _ in range(5):
        asking.place.clock.advance(200)
        wire.send(request()[:9])
        asking.place.clock.advance(200)
        wire.send(request()[9:])
        assert wire.received() == DUNNO


def test_a_peer_that_does_not_listen_is_not_answered_on(asking):
    wire = asking.connect()
    wire.protocol.pauseProducing()
    wire.send(request() * 3)
    assert wire.received() == DUNNO
    wire.protocol.resumeProducing()
    assert wire.received() == DUNNO * 2
    wire.protocol.pauseProducing()
    wire.send(request() * 3)
    asking.place.clock.advance(301)
    assert wire.closed


def test_when_the_server_stops(asking):
    idle, asked, between = asking.connect(), asking.connect(), asking.connect()
    between.send(request())
    asked.send(request()[:50])
    asking.factory.stop()
    assert idle.closed and between.closed and not asked.closed
    asked.send(request()[50:] + request())
    assert asked.received() == DUNNO and asked.closed


def test_what_is_refused_is_logged_with_its_detail(asking, caplog):
    caplog.set_level(logging.INFO)
    asking.action(recipient="nobody@example.org")
    assert "recipient <nobody@example.org> would be refused: no such user" in caplog.text
    caplog.clear()
    asking.action()
    assert not caplog.records
