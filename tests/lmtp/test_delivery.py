"""lmtp/delivery.py: one message file whatever the number of recipients, and what is in it."""

from email import message_from_bytes, policy

from tests.lmtp.conversation import Step
from tests.support.clients.lmtp import stuffed

MESSAGE = b"From: a@example.org\r\nSubject: to fifty\r\n\r\n" + b"0123456789.\r\n.\r\n" * 2000 + b"\xff\x00 no line end"


def deliver(place, recipients, message=MESSAGE):
    """Hand over a message in one go; the replies after the data."""
    lines = [b"LHLO mx.example.org", b"MAIL FROM:<sender@example.org>",
             *(b"RCPT TO:<%b>" % one.encode() for one in recipients), b"DATA"]
    place.connect()
    place.wire.send(b"".join(line + b"\r\n" for line in lines) + stuffed(message))
    return place.wire.received().split(b"354 ")[1].splitlines()[1:]


def test_fifty_recipients_make_one_message_file(place):
    people = [f"user{number:02}" for number in range(50)]
    place.prepare([Step(1, "have", "; ".join(people))])
    files = place.store.partitions["primary"].files
    before = message_files(files)
    replies = deliver(place, people, MESSAGE + b"for fifty")
    assert [reply[:10] for reply in replies] == [b"250 2.0.0 "] * 50
    contents = {place.messages(f"{person}/INBOX")[0] for person in people}
    assert len(contents) == 1
    assert len(message_files(files) - before) == 1


def test_the_same_content_again_makes_no_second_file(place):
    place.prepare([Step(1, "have", "alice; bob")])
    files = place.store.partitions["primary"].files
    deliver(place, ["alice"], MESSAGE + b"again")
    before = message_files(files)
    deliver(place, ["bob"], MESSAGE + b"again")
    assert message_files(files) == before
    (first,), (second,) = place.messages("alice/INBOX"), place.messages("bob/INBOX")
    assert first.split(b"\r\n")[4:] == second.split(b"\r\n")[4:]
    assert first != second and len(first) == len(second)            # the id of the delivery is its own


def test_the_trace_header_stands_before_the_message_octet_for_octet(place):
    place.prepare([Step(1, "have", "alice")])
    message = MESSAGE + b"traced"
    deliver(place, ["alice"], message)
    stored = place.messages("alice/INBOX")[0]
    assert stored.endswith(b"\r\n" + message + b"\r\n")       # CRLF belongs to the final dot, and was sent
    head = message_from_bytes(stored, policy=policy.default)
    assert head.keys() == ["Return-Path", "Received", "From", "Subject"]
    assert head["Return-Path"] == "<sender@example.org>"
    received = " ".join(head["Received"].split())
    assert received.startswith("from mx.example.org ([127.0.0.1]) by store.example.org with LMTP id ")
    assert received.endswith("; Fri, 20 Nov 2026 12:43:00 +0000")


def test_over_quota_is_decided_for_each_recipient_when_the_message_has_come(place):
    place.prepare([Step(1, "have", "alice; small room=5000; bob; tiny room=1")])
    replies = deliver(place, ["alice", "small", "tiny", "bob", "small"], MESSAGE + b"quota")
    assert [reply[:9] for reply in replies] == [b"250 2.0.0", b"552 5.2.2", b"552 5.2.2", b"250 2.0.0", b"552 5.2.2"]
    assert not place.messages("small/INBOX")


def test_an_announced_size_counts_at_rcpt(place):
    place.prepare([Step(1, "have", "small room=5000")])
    place.wire.send(b"LHLO x\r\nMAIL FROM:<> SIZE=5000\r\nRCPT TO:<small>\r\nRSET\r\n"
                    b"MAIL FROM:<> SIZE=5001\r\nRCPT TO:<small>\r\n")
    assert [line[:9] for line in place.wire.received().splitlines()[-5:]] == [
        b"250 2.1.0", b"250 2.1.5", b"250 2.0.0", b"250 2.1.0", b"552 5.2.2"]


def message_files(files):
    """The paths of all message files."""
    return {path for path in files.folder.glob("*/*/*")}
