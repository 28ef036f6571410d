"""A message with header fields of its own beside the message file: RETR and TOP show them first (RFC 1939 §5, §7)."""

from mboxlist.names import MailboxName
from store import offload
from store.delivery import durable
from store.delivery.commit import Delivered, Target
from store.mailboxes import namespace
from store.values import InternalDate
from tests.pop3.place import Player
from tests.support.stores.stores import deliver


def test_list_retr_and_top(place, monkeypatch):
    """33 octets before the 25 of the message."""
    staged = place.store.stage(place.inbox)
    staged.write(b"Subject: x\r\n\r\n.one\r\ntwo\r\n")
    outcome, = offload.now(durable.deliver(place.store, staged, [
        Target(place.inbox, header=b"Delivered-To: mrose@example.org\r\n")], InternalDate(0)))
    assert isinstance(outcome, Delivered)
    Player(place, monkeypatch).play("""
C: USER mrose
C: PASS tanstaaf
C: LIST 1
C: RETR 1
C: TOP 1 1
C: QUIT
S: +OK *
S: +OK*
S: +OK *
S: +OK 1 58
S: +OK 58 octets
S: Delivered-To: mrose@example.org
S: Subject: x
S:
S: ..one
S: two
S: .
S: +OK *
S: Delivered-To: mrose@example.org
S: Subject: x
S:
S: ..one
S: .
S: +OK*
closed:
""")


def test_the_trace_fields_of_a_second_delivery(place, monkeypatch):
    """RFC 5321 §4.4: RETR, TOP and LIST have those of this delivery."""
    namespace.create_mailbox(place.store, MailboxName("mrose", "Other"))
    deliver(place.store, b"Subject: x\r\n\r\none\r\ntwo\r\n", "user/mrose/Other", trace=b"Return-Path: <first>\r\n")
    deliver(place.store, b"Subject: x\r\n\r\none\r\ntwo\r\n", "user/mrose/INBOX", trace=b"Return-Path: <again>\r\n")
    Player(place, monkeypatch).play("""
C: USER mrose
C: PASS tanstaaf
C: LIST 1
C: RETR 1
C: TOP 1 1
C: QUIT
S: +OK *
S: +OK*
S: +OK *
S: +OK 1 46
S: +OK 46 octets
S: Return-Path: <again>
S: Subject: x
S:
S: one
S: two
S: .
S: +OK *
S: Return-Path: <again>
S: Subject: x
S:
S: one
S: .
S: +OK*
closed:
""")
