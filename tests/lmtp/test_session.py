"""lmtp/session.py beyond the scripts: clients that vanish, clients that talk nonsense, and what logs may say."""

import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmtp.refusals import REPLIES
from lmtp.states import COMMANDS, OTHERS
from mboxlist.engine.troubles import TROUBLES
from store.errors import Problem
from tests.lmtp.conversation import DETAIL, SENDING, Step, read_script, sent
from tests.lmtp.test_replies import is_legal

PIECES = st.sampled_from([
    b"\r\n", b"\n", b"\r", b".", b"\r\n.\r\n", b" ", b"\x00", b"\xff", b"x" * 3000, b"LHLO a\r\n",
    b"MAIL FROM:<>\r\n",
    b"MAIL FROM:<a@x> SIZE=1 BODY=8BITMIME\r\n", b"RCPT TO:<alice>\r\n", b"RCPT TO:<bob+x@example.org>\r\n",
    b"DATA\r\n",
    b"RSET\r\n", b"NOOP\r\n", b"STARTTLS\r\n", b"QUIT\r\n", b"Content-Type: multipart/mixed; boundary=x\r\n",
    b"--x\r\n",
    b"RCPT TO:<", b">", b"@", b'"', *COMMANDS, *OTHERS])


def test_a_client_that_vanishes_at_any_octet_leaves_nothing_behind(place):
    steps = read_script("example")
    octets = b"".join(sent(step) for step in steps if step.kind in SENDING)
    place.prepare(steps)
    delivered = 0
    for end in range(len(octets)):
        place.connect()
        place.wire.send(octets[:end])
        place.wire.hang_up()
        delivered += b"\r\n.\r\n" in octets[:end]
        staged = place.store.partitions["primary"].files.staging
        place.store.partitions["primary"].files.drop_staged_names()
        assert not list(staged.iterdir())
    assert len(place.messages("pat/INBOX")) == delivered
    below = {message.split(b"\r\n", 4)[4] for message in place.messages("pat/INBOX")}     # the trace header
    assert len(below) == 1


@pytest.mark.parametrize(("end", "reply"), [
    (lambda place: place.wire.hang_up(), b""),
    (lambda place: place.clock.advance(181), b"421 4.4.2 "),
    (lambda place: place.wire.send(b"x" * 200_000 + b"\r\n.\r\n"), b"552 5.3.4 "),
])
def test_a_message_that_was_on_disk_in_part_is_removed_when_it_fails(place, end, reply):
    place.prepare([Step(1, "have", "alice")])
    place.wire.send(b"LHLO a\r\nMAIL FROM:<>\r\nRCPT TO:<alice>\r\nDATA\r\n")
    place.wire.received()
    staging = place.store.partitions["primary"].files.staging
    place.wire.send((b"x" * 78 + b"\r\n") * 3000)
    assert len(list(staging.iterdir())) == 1
    end(place)
    assert place.wire.received().startswith(reply)
    assert not list(staging.iterdir())
    assert not place.messages("alice/INBOX")


@pytest.mark.long
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.lists(PIECES | st.binary(max_size=6), max_size=12).map(b"".join), max_size=4))
def test_nonsense_is_answered_with_legal_replies(place, caplog, pieces):
    if place.factory is None:
        place.prepare([Step(1, "have", "alice; bob")])
        place.wire.hang_up()
    place.connect()
    caplog.clear()
    for piece in pieces:
        place.wire.send(piece)
    said = place.wire.received()
    assert is_legal(said) and said.startswith(b"220 ")
    if place.wire.closed:
        assert said.splitlines()[-1].startswith((b"221 ", b"421 "))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    place.wire.hang_up()
    assert not place.factory.streams


@pytest.mark.parametrize("end", [
    lambda place: place.wire.hang_up(),
    lambda place: place.wire.send(b"QUIT\r\n"),
    lambda place: place.wire.send(b"FLY\r\n" * 100),
    lambda place: place.wire.send(b"LHLO a\r\nMAIL FROM:<>\r\nRCPT TO:<alice>\r\nDATA\r\n") or place.wire.hang_up(),
    lambda place: place.clock.advance(301),
])
def test_a_connection_that_ended_is_no_longer_counted(place, end):
    place.prepare([Step(1, "have", "alice"), Step(2, "with", "connections=1")])
    assert place.wire.received().startswith(b"220 ")
    other = place.wire
    place.connect()
    assert place.wire.received().startswith(b"421 ")
    place.wire = other
    end(place)
    place.connect()
    assert place.wire.received().startswith(b"220 ")


def test_a_message_is_one_line_in_the_log_and_its_text_is_not_in_it(place, caplog):
    caplog.set_level(logging.DEBUG)
    steps = read_script("pipelining")
    place.prepare(steps)
    place.wire.send(b"".join(sent(step) for step in steps if step.kind in SENDING))
    lines = [record.getMessage() for record in caplog.records]
    first = next(line for line in lines if line.startswith("message=\"") and "delivered=0" not in line)
    assert 'to="user/alice/INBOX:1 user/bob/INBOX:1"' in first and 'from="a@client.example.org"' in first
    assert any("nobody@example.org" in line and "550 5.1.1" in line for line in lines)
    assert not any("Subject" in line for line in lines)


@pytest.mark.parametrize("step", ["look_up", "stage", "deliver"])
@pytest.mark.parametrize("problem", Problem)
def test_every_problem_of_the_store_is_answered_wherever_it_is_met(place, step, problem, caplog):
    """And the log has a line with the reason, which the client is not shown."""
    caplog.set_level(logging.INFO)
    for kind in TROUBLES.lasting():
        TROUBLES.over(kind)                     # a line is where it begins
    place.prepare([Step(1, "have", "alice"), Step(2, "fail", f"{step} {problem.name}")])
    place.wire.send(b"LHLO a\r\nMAIL FROM:<>\r\nRCPT TO:<alice>\r\nDATA\r\n.\r\nNOOP\r\n")
    said = place.wire.received()
    codes = [line[:9] for line in said.splitlines() if line[3:4] == b" "][3:]
    reply = b"%d %b" % (REPLIES[problem][0], REPLIES[problem][1].encode())
    assert codes == {
        "look_up": [reply, b"503 5.5.1", b"500 5.5.1", b"250 2.0.0"],
        "stage": [b"250 2.1.5", reply, b"500 5.5.1", b"250 2.0.0"],
        "deliver": [b"250 2.1.5", b"354 Start", reply, b"250 2.0.0"]}[step]
    line = [line for line in caplog.messages if DETAIL in line][-1]
    assert DETAIL.encode() not in said
    assert {"look_up": "recipient <alice> refused", "stage": "DATA", "deliver": "refused=1"}[step] in line
