"""What a client stores itself begins no period of grace for deliveries."""

import pytest
from attrs import evolve

from store.quota import roots
from tests.support.conversations.scripts import Player, content


def test_an_append_that_is_refused_when_it_has_come_begins_no_grace(place):
    place.faults.around(roots, "fits", lambda *_: True)       # it was below its limit a moment ago
    Player(place).play(f"""have: INBOX one; C is logged in
quota: messages 1
C: a1 APPEND INBOX {{{len(content('two'))}+}}
C: From: bob@example.org
C: Subject: two
C:
C: This is two.
C~: \\r\\n
S: a1 NO [OVERQUOTA] ...
box: INBOX one
""")
    assert roots.quota(place.store, "alice").refused == 0


def test_a_mailbox_with_a_root_of_its_own(place):
    """RFC 9208 §4.1.2: also of a mailbox that is not there yet."""
    place.have("Archive", "one")
    roots.set_quota(place.store, "alice/Archive", octets=2048, messages=5)
    Player(place).play(r"""have: INBOX two three; C is logged in
C: a1 GETQUOTAROOT Archive
S: * QUOTAROOT Archive alice/Archive
S: * QUOTA alice/Archive (STORAGE 1 2 MESSAGE 1 5)
S: a1 OK ...
C: a2 GETQUOTAROOT Archive/2026
S: * QUOTAROOT Archive/2026 alice/Archive
S: * QUOTA alice/Archive (STORAGE 1 2 MESSAGE 1 5)
S: a2 OK ...
C: a3 GETQUOTA "alice/Archive"
S: * QUOTA alice/Archive (STORAGE 1 2 MESSAGE 1 5)
S: a3 OK ...
C: a4 GETQUOTAROOT Archives
S: * QUOTAROOT Archives alice
S: * QUOTA alice ()
S: a4 OK ...
""")
    roots.remove_quota_root(place.store, "alice/Archive")


def test_the_use_of_others_is_not_told(place):
    """RFC 9208 §8: neither a root of bob's, nor that of a domain, which others fill too."""
    roots.set_quota(place.store, "bob/Archive", octets=2048)
    roots.set_quota(place.store, "@example.org", octets=1 << 30)
    Player(place).play(r"""have: C is logged in
C: a1 GETQUOTA bob/Archive
S: a1 NO [NONEXISTENT] ...
C: a2 GETQUOTA @example.org
S: a2 NO [NONEXISTENT] ...
C: a3 GETQUOTAROOT INBOX
S: * QUOTAROOT INBOX alice
S: * QUOTA alice ()
S: a3 OK ...
""")
    roots.remove_quota_root(place.store, "bob/Archive")
    roots.remove_quota_root(place.store, "@example.org")


@pytest.mark.parametrize("admins", ["alice", "carol, alice", "", "bob", "Alice"])
def test_quotaset_is_announced_to_those_who_may(place, admins):
    """RFC 9208 §4.1.3: who may not use SETQUOTA is not told of it."""
    place.settings = evolve(place.settings, admins=admins)
    wire = place.connect()
    assert b"QUOTA" not in wire.received()
    wire.send(b"a LOGIN alice secret\r\nb CAPABILITY\r\n")
    login, untagged, _ = wire.received().splitlines()
    announced = b" QUOTASET " in untagged
    assert announced == (b" QUOTASET " in login) == ("alice" in admins)
    wire.send(b"c SETQUOTA alice (MESSAGE 9)\r\n")
    assert (b"c OK" in wire.received()) == announced
    roots.set_quota(place.store, "alice", octets=-2, messages=-2)
