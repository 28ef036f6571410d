"""Connections of LMTP from where nobody may deliver who has not shown more than an address."""

import pytest
from attrs import evolve
from twisted.internet.task import Clock

from lmtp.protocol import factory
from lmtp.settings import Settings
from tests.support.conversations.wire import Wire

STRANGERS, RELAY = "192.0.2.7", "198.51.100.1"
SETTINGS = Settings(networks=(RELAY,), auth_users=("relay",), early_connections=3)


@pytest.fixture
def connect(store):
    clock = Clock()
    made = factory(store, SETTINGS, clock)
    wires = []

    def connect(peer):
        wires.append(Wire(made, clock, peer))
        return wires[-1]

    yield connect
    for wire in wires:
        wire.hang_up()


def test_few_at_a_time_have_not_shown_that_they_may_deliver(connect):
    few = [connect(STRANGERS) for _ in range(3)]
    assert all(wire.received().startswith(b"220 ") for wire in few)
    assert connect(STRANGERS).received().startswith(b"421 ")
    few[0].hang_up()
    assert connect(STRANGERS).received().startswith(b"220 ")


def test_a_relay_has_as_many_as_it_wants(connect):
    assert all(connect(RELAY).received().startswith(b"220 ") for _ in range(20))


def test_none_is_any_number(store):
    made = factory(store, evolve(SETTINGS, early_connections=0), clock := Clock())
    wires = [Wire(made, clock, STRANGERS) for _ in range(20)]
    assert all(wire.received().startswith(b"220 ") for wire in wires)
    for wire in wires:
        wire.hang_up()
