"""A message with header fields of its own beside its file: they are its first octets (RFC 3501 §6.4.4, §6.4.5)."""

import os

import pytest

from store import offload
from store.delivery import durable
from store.delivery.commit import Delivered, Target
from store.values import InternalDate
from tests.support.conversations.scripts import Player, content
from tests.support.stores import stores as stored

TO = b"Delivered-To: alice@example.org\r\n"
ONE = content("one")


def deliver(place, trace, header, text=ONE):
    """Into alice's INBOX and bob's, where it has other ones."""
    inbox, other = place.entry("INBOX"), place.entry("user/bob/INBOX")
    staged = place.store.stage(inbox, trace)
    staged.write(text)
    outcomes = offload.now(durable.deliver(place.store, staged, [
        Target(inbox, header=header), Target(other, header=b"Delivered-To: bob@example.org\r\n")],
        InternalDate(1_000_000_000, 60)))
    assert [type(outcome) for outcome in outcomes] == [Delivered] * 2


@pytest.mark.parametrize("first", [b"", b"Return-Path: <a@example.org>\r\n"])
def test_fetch_and_search(place, first):
    """33 octets before the 53 of the message; also where the file begins with a trace header that is not shown."""
    if first:
        delivered, = stored.deliver(place.store, content("one"), "user/bob/INBOX", trace=first)
        assert isinstance(delivered, Delivered)
    deliver(place, b"", TO)
    Player(place).play(r"""
have: C has selected INBOX
C: a1 FETCH 1 (RFC822.SIZE ENVELOPE BODY.PEEK[])
S: * 1 FETCH (RFC822.SIZE 86 ENVELOPE (NIL "one" BOB BOB BOB NIL NIL NIL NIL NIL) BODY[] {86}
S: Delivered-To: alice@example.org
S: From: bob@example.org
S: Subject: one
S:
S: This is one.
S: )
S: a1 OK ...
C: a2 FETCH 1 (BODY.PEEK[HEADER] BODY.PEEK[TEXT] BODY.PEEK[1] BODY.PEEK[1.MIME])
S: * 1 FETCH (BODY[HEADER] {72}
S: Delivered-To: alice@example.org
S: From: bob@example.org
S: Subject: one
S:
S:  BODY[TEXT] {14}
S: This is one.
S:  BODY[1] {14}
S: This is one.
S:  BODY[1.MIME] {39}
S: From: bob@example.org
S: Subject: one
S:
S: )
S: a2 OK ...
C: a3 FETCH 1 (BODY.PEEK[HEADER.FIELDS (DELIVERED-TO)] BODY.PEEK[HEADER.FIELDS.NOT (From)])
S: * 1 FETCH (BODY[HEADER.FIELDS (DELIVERED-TO)] {35}
S: Delivered-To: alice@example.org
S:
S:  BODY[HEADER.FIELDS.NOT (From)] {49}
S: Delivered-To: alice@example.org
S: Subject: one
S:
S: )
S: a3 OK ...
C: a4 FETCH 1 (BODY.PEEK[]<28.15> BODY.PEEK[]<80.100> BODY.PEEK[]<0.9> BODY.PEEK[]<86.1>)
S: * 1 FETCH (BODY[]<28> {15}
S: org
S: From: bob@ BODY[]<80> {6}
S: one.
S:  BODY[]<0> {9}
S: Delivered BODY[]<86> "")
S: a4 OK ...
C: a5 SEARCH HEADER DELIVERED-TO alice@
S: * SEARCH 1
S: a5 OK ...
C: a6 SEARCH TEXT alice@example.org
S: * SEARCH 1
S: a6 OK ...
C: a7 SEARCH OR HEADER Delivered-To bob OR BODY alice@ SMALLER 86
S: * SEARCH
S: a7 OK ...
C: a8 SEARCH BODY "this is one" SMALLER 87 LARGER 85
S: * SEARCH 1
S: a8 OK ...
""".replace("BOB", '((NIL NIL "bob" "example.org"))'))
    bob = place.store.open_mailbox(place.entry("user/bob/INBOX"))
    with place.store.open_message(bob.entry, bob.rows[-1]) as file:
        assert file.read(0, 100).startswith(b"Delivered-To: bob@example.org\r\n")


def test_the_trace_fields_of_a_second_delivery(place):
    """RFC 5321 §4.4: those of this delivery, in every section, in sizes and in what is searched."""
    trace = b"Return-Path: <%b@example.org>\r\nReceived: by relay %b\r\n"
    for name, word in (("user/bob/INBOX", b"first"), ("user/alice/INBOX", b"again")):
        stored.deliver(place.store, content("one"), name, trace=trace % (word, word))
    Player(place).play(r"""
have: C has selected INBOX
C: a1 FETCH 1 (RFC822.SIZE BODY.PEEK[HEADER] BODY.PEEK[]<0.30>)
S: * 1 FETCH (RFC822.SIZE 113 BODY[HEADER] {99}
S: Return-Path: <again@example.org>
S: Received: by relay again
S: From: bob@example.org
S: Subject: one
S:
S:  BODY[]<0> {30}
S: Return-Path: <again@example.or)
S: a1 OK ...
C: a2 FETCH 1 (BODY.PEEK[HEADER.FIELDS (RECEIVED)] BODY.PEEK[TEXT] RFC822.HEADER BINARY.SIZE[1])
S: * 1 FETCH (BODY[HEADER.FIELDS (RECEIVED)] {28}
S: Received: by relay again
S:
S:  BODY[TEXT] {14}
S: This is one.
S:  RFC822.HEADER {99}
S: Return-Path: <again@example.org>
S: Received: by relay again
S: From: bob@example.org
S: Subject: one
S:
S:  BINARY.SIZE[1] 14)
S: a2 OK ...
C: a3 SEARCH HEADER RECEIVED again HEADER Return-Path <again@ LARGER 112 SMALLER 114
S: * SEARCH 1
S: a3 OK ...
C: a4 SEARCH OR HEADER RECEIVED first TEXT first
S: * SEARCH
S: a4 OK ...
""")


def test_a_message_that_is_not_all_there_is_told_before_a_literal(place):
    """Its file is shorter than it was, by no more than the fields are long."""
    deliver(place, b"", TO, text=b"Subject: nobody else has this\r\n\r\nand so nobody else is harmed\r\n")
    row = place.store.open_mailbox(place.entry("INBOX")).rows[0]
    path = place.store.partition_of(place.entry("INBOX")).files.locate(bytes(row["digest"]), int(row["serial"]))
    whole = path.read_bytes()
    os.truncate(path, len(whole) - 1)
    Player(place).play(r"""
have: C has selected INBOX
C: a1 FETCH 1 BODY.PEEK[]
S: * 1 FETCH (BODY[] NIL)
S: a1 NO ...
""")
    path.write_bytes(whole)
