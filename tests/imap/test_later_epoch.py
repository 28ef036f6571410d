"""A mailbox whose figures are of a later epoch than its partition (`store.tables.state.LaterEpoch`) is read as it is.
"""

import pytest
from attrs import evolve

from tests.support.conversations.scripts import content


@pytest.mark.parametrize("select", [b"SELECT", b"EXAMINE"])
def test_it_is_selected_and_read_and_no_flag_changes(place, select):
    r"""Its messages are \Recent for every session: nobody can note that one has been told of them."""
    for number in range(3):
        place.deliver("INBOX", content(str(number)))
    entry, partition = place.entry("INBOX"), place.store.partitions["primary"]
    real = partition.any_state(entry.id)
    partition.transact(lambda txn: txn.set_state(entry.id, None, evolve(real, epoch=partition.epoch + 1)))
    partition.views.forget()
    for _ in range(2):
        wire = place.connect()
        wire.send(b"a LOGIN alice secret\r\n")
        wire.received()
        wire.send(b"b %b INBOX\r\n" % select)
        said = wire.received()
        assert b"* 3 EXISTS\r\n* 3 RECENT\r\n" in said and b"b OK [READ-" in said
        wire.send(b"c FETCH 2 BODY.PEEK[HEADER.FIELDS (SUBJECT)]\r\n")
        assert b"Subject: 1\r\n" in wire.received()
        wire.send(b"d STORE 1 +FLAGS (\\Seen)\r\n")
        assert b"d NO " in wire.received()
    partition.damaged.discard(entry.id)
    partition.transact(lambda txn: txn.set_state(entry.id, None, real))
    partition.views.forget()
