"""A message file in which the disk has changed a bit is not shown as the message by any command (`verify_reads`).

Expected: RFC 5530 §3 CORRUPTION, RFC 3206 §4 SYS/PERM; the messages beside it are shown as they were sent.
"""

import shutil
from pathlib import Path
from random import Random

import pytest

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.pop3 import Pop3
from tests.support.servers.server import Server

BODY = b"".join(b"line %d of the message\r\n" % number for number in range(60))
MIME = b"MIME-Version: 1.0\r\nContent-Type: text/plain\r\nContent-Transfer-Encoding: 8bit\r\n\r\n"
SOUND = 2                                   # of the four messages the one whose file is left alone, an even one


def message(number: int) -> bytes:
    return b"Subject: number %d\r\n%b" % (number, MIME if number % 2 == 0 else b"\r\n") + BODY


HEADER = message(SOUND).removesuffix(BODY)
ITEMS = {                                   # and what each has of the sound message, in order
    "BODY[]": [message(SOUND)], "BODY.PEEK[TEXT]": [BODY], "BODY[1]": [BODY],
    "BODY.PEEK[]<900.40>": [message(SOUND)[900:940]], "RFC822": [message(SOUND)], "RFC822.TEXT": [BODY],
    "BINARY.PEEK[1]": [BODY], "(FLAGS BODY.PEEK[HEADER] BODY.PEEK[TEXT])": [HEADER, BODY],
    "(UID BODY.PEEK[1] BODY.PEEK[])": [BODY, message(SOUND)]}
HEADERS = ("BODY.PEEK[HEADER.FIELDS (SUBJECT)]", "(FLAGS ENVELOPE)", "BODYSTRUCTURE")


def flip(path: Path, random: Random) -> None:
    """One bit: of the body, or for one of the messages of the trace header in front of it."""
    octets = bytearray(path.read_bytes())
    in_trace = b"number 3" in octets and octets.index(b"client.example.org")
    octets[in_trace or random.randrange(octets.index(BODY), len(octets))] ^= 1 << random.randrange(8)
    path.write_bytes(octets)


@pytest.mark.parametrize("verified", [True, False])
def test_what_the_disk_has_changed_is_not_shown(tmp_path, verified):
    with Server(tmp_path, ["alice"], {} if verified else {"store.verify_reads": "no"}) as server:
        with Lmtp(server.lmtp) as lmtp, Imap(server.imap, "alice") as imap:
            lmtp.deliver("sender@example.org", ["alice"], message(1))       # with a trace header in front
            imap.append("INBOX", message(2))                                # and without
            lmtp.deliver("sender@example.org", ["alice"], message(3))
            imap.append("INBOX", message(4))
            imap.select()
            for item in ITEMS:          # read while all are sound: that is remembered, and must not be believed later
                assert imap.command(f"FETCH 1:* {item}").status == "OK"
        random = Random(int(verified))
        for path in server.messages:
            if path.read_bytes() != message(SOUND):
                flip(path, random)
        with Imap(server.imap, "alice") as imap:
            imap.select()
            for item, octets in ITEMS.items():
                answer = imap.command(f"FETCH 1:* {item}")
                shown = {int(response.text.split()[1]): list(response.literals) for response in answer.untagged}
                assert set(shown) == {1, 2, 3, 4} and shown.pop(SOUND) == octets, item
                if verified:
                    assert answer.status == "NO" and "[CORRUPTION]" in answer.text, (item, answer.text)
                    assert not any(shown.values()), item
                else:
                    assert answer.status == "OK" and all(shown.values()), item
            for item in HEADERS:
                assert imap.command(f"FETCH 1:* {item}").status == "OK"
        with Pop3(server.pop3, "alice") as pop3:
            for number in (1, 2, 3, 4):
                if number == SOUND:
                    assert pop3.message(number) == message(SOUND)
                else:
                    answers = [pop3.command(f"{command}") for command in (f"RETR {number}", f"TOP {number} 100")
                               if verified]
                    assert all(answer.startswith("-ERR [SYS/PERM]") for answer in answers), answers
        assert ("does not agree with its digest" in server.said()) is verified
        found = server.command("scrub", status=1)
        assert (found.count("digest"), found.count("trace header does not agree")) == (2, 1), found


SEEN = ("BODY.PEEK[]", "BODY.PEEK[HEADER]", "BODY.PEEK[TEXT]", "BODY.PEEK[1]", "BODY.PEEK[HEADER.FIELDS (SUBJECT)]")


def test_a_file_that_another_delivery_brings_back_differs_in_its_trace_header_alone(tmp_path):
    """A session that has seen the message before, and POP3: RFC822.SIZE is that of what comes (RFC 3501 §2.3.4), all
    below the trace header is as it was, and the trace header is that of one delivery, whole."""
    with Server(tmp_path, ["alice", "bob"]) as server, Imap(server.imap, "alice") as imap:
        with Lmtp(server.lmtp) as lmtp:
            lmtp.deliver("sender@example.org", ["alice"], message(1))
            imap.select()

            def seen():
                answer = imap.ok("FETCH 1 (UID RFC822.SIZE ENVELOPE BODYSTRUCTURE)").untagged[0].text
                return answer, {item: imap.ok(f"FETCH 1 {item}").untagged[0].literals[0] for item in SEEN}

            known, before = seen()
            for path in (*server.messages, *server.root.glob("partitions/*/staging/*")):
                if path.stat().st_size:
                    path.unlink()
            assert imap.command("FETCH 1 BODY.PEEK[]").status == "NO"
            lmtp.deliver("nobody@example.org", ["bob"], message(1))
        again, after = seen()
        with Imap(server.imap, "bob") as other:
            other.select()
            his = other.messages()[1]
        assert again == known and f"RFC822.SIZE {len(after['BODY.PEEK[]'])} ".encode() in again
        assert after["BODY.PEEK[]"] == his and his.startswith(b"Return-Path: <nobody@example.org>")
        trace = len(his) - len(message(1))
        for item, octets in before.items():
            if item in ("BODY.PEEK[]", "BODY.PEEK[HEADER]"):
                assert octets[:trace] != after[item][:trace] == his[:trace] and octets[trace:] == after[item][trace:]
            else:
                assert octets == after[item]
        with Pop3(server.pop3, "alice") as pop3:
            assert pop3.message(1) == his
        assert "restored it" in server.said()
        server.command("scrub")


BEGINNINGS = (
    b"\tby relay.example.org;\r\n\tMon, 1 Jan 2024 00:00:00 +0000\r\nSubject: x\r\n\r\n", b"\r\n", b" ",
    b"Return-Path: <a@example.org>\r\nReceived: from a\r\n\tby b\r\n\r\n")


def test_a_message_may_begin_as_the_header_in_front_of_it_goes_on(tmp_path):
    """OpenSMTPD's notices begin with the second line of a Received field."""
    def look():
        with Imap(server.imap, "alice") as imap:
            imap.select()
            found = imap.messages()
        for number, beginning in enumerate(BEGINNINGS, 1):
            assert found[number].endswith(b"\r\n" + beginning + BODY), beginning

    with Server(tmp_path, ["alice"]) as server:
        with Lmtp(server.lmtp) as lmtp:
            for beginning in BEGINNINGS:
                lmtp.deliver("", ["alice"], beginning + BODY)
        look()
        server.stop()
        shutil.rmtree(next(server.root.glob("partitions/*/index")))
        server.start()
        look()
        server.command("scrub")
