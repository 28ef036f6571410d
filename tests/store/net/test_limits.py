"""store/net/limits.py: connections in all and per address."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.net.limits import ConnectionLimits, is_this_host


def test_refuses_past_the_total_and_again_admits_after_a_release():
    limits = ConnectionLimits(2, 5)
    assert not limits.refusal("192.0.2.1")
    assert not limits.refusal("192.0.2.2")
    assert limits.refusal("192.0.2.3")
    limits.release("192.0.2.1")
    assert not limits.refusal("192.0.2.3")
    assert limits.open == 2


def test_refuses_past_the_number_for_one_address_only_that_address():
    limits = ConnectionLimits(10, 2)
    assert [not limits.refusal("192.0.2.1") for _ in range(3)] == [True, True, False]
    assert not limits.refusal("192.0.2.2")
    limits.release("192.0.2.1")
    assert not limits.refusal("192.0.2.1")


@pytest.mark.parametrize(("one", "other"), [
    ("2001:db8::1", "2001:db8::ffff:2"),            # the same /64
    ("192.0.2.1", "::ffff:192.0.2.1"),              # the same host, seen through a dual-stack socket
    ("fe80::1%eth0", "fe80::2%eth1"),
])
def test_addresses_of_one_customer_are_counted_together(one, other):
    limits = ConnectionLimits(10, 1)
    assert not limits.refusal(one)
    assert limits.refusal(other)
    limits.release(one)
    assert not limits.refusal(other)


def test_ipv6_networks_are_apart():
    limits = ConnectionLimits(10, 1)
    assert not limits.refusal("2001:db8:0:1::1")
    assert not limits.refusal("2001:db8:0:2::1")


def test_a_unix_socket_counts_only_in_all():
    limits = ConnectionLimits(3, 1)
    assert [not limits.refusal("local") for _ in range(4)] == [True, True, True, False]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["192.0.2.1", "192.0.2.2", "2001:db8::1", "local"]))))
def test_never_forgets_and_never_keeps_anything(steps):
    limits = ConnectionLimits(5, 2)
    here = []
    for arrive, address in steps:
        if arrive:
            fits = len(here) < 5 and (address == "local" or here.count(address) < 2)
            assert not limits.refusal(address) == fits
            if fits:
                here.append(address)
        elif address in here:
            here.remove(address)
            limits.release(address)
    for address in here:
        limits.release(address)
    assert limits == ConnectionLimits(5, 2)


@pytest.mark.parametrize(("peer", "here"), [
    ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("local", True),
    ("192.0.2.1", False), ("::ffff:192.0.2.1", False), ("fe80::1%eth0", False)])
def test_this_host_is_known(peer, here):
    assert is_this_host(peer) is here
