"""Who has a mailbox open hears of messages that go by rules as of any that are expunged (RFC 3501 §7.4.1)."""

import re
import time

from store.expiry.rulebook import Rulebook, set_mailbox
from store.expiry.work import Plan, expire
from tests.support.conversations.scripts import content


def run(place, rules):
    inbox = place.entry("INBOX")
    set_mailbox(place.store, inbox, rules)
    return expire(place.store, inbox, Rulebook(place.store), Plan(time.time())).messages


def test_one_idles_one_asks_one_comes_back(place):
    for subject in ("one", "two", "three"):
        place.deliver("INBOX", content(subject))
    idle, asks, back = place.connect(), place.connect(), place.connect()
    for wire in (idle, asks, back):
        wire.send(b"a1 LOGIN alice secret\r\na2 SELECT INBOX\r\n")
    modseq = re.search(rb"HIGHESTMODSEQ (\d+)", back.received())[1]
    validity = re.search(rb"UIDVALIDITY (\d+)", idle.received())[1]
    asks.received()
    idle.send(b"a3 IDLE\r\n")
    assert idle.received().startswith(b"+ ")
    back.send(b"a3 LOGOUT\r\n")
    assert run(place, "messageheader.Subject: two\n") == 1
    idle.settle()
    assert idle.received() == b"* 2 EXPUNGE\r\n"
    asks.send(b"a3 FETCH 2 UID\r\n")                    # RFC 3501 §7.4.1: numbers stay as they are during FETCH
    assert b"EXPUNGE\r\n" not in asks.received()
    asks.send(b"a4 NOOP\r\n")
    assert asks.received().startswith(b"* 2 EXPUNGE\r\na4 OK")
    again = place.connect()
    again.send(b"a1 LOGIN alice secret\r\na2 ENABLE QRESYNC\r\n")
    again.received()
    again.send(b"a3 SELECT INBOX (QRESYNC (%b %b))\r\n" % (validity, modseq))
    assert b"* VANISHED (EARLIER) 2\r\n" in again.received()
