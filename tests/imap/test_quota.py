"""What a client stores itself begins no period of grace for deliveries."""

from tests.support.scripts import Player, content


def test_an_append_that_is_refused_when_it_has_come_begins_no_grace(place):
    place.patch.setattr("store.store.Store.over_quota", lambda *_: False)       # it was below its limit a moment ago
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
    assert place.store.quota("alice").refused == 0
