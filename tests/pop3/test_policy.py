"""Times that differ from user to user."""

import pytest

from pop3.policy import PerUser, shortest
from pop3.settings import Settings


@pytest.mark.parametrize(("user", "time"), [
    ("alice", 90), ("bob", 0), ("carol", 3), ("dave@example.net", 1800), ("erin@example.net", 7 * 86400),
    ("frank@other.example", 3), ("gina", 3), ("gina@xn--bcher-kva.example", 7200),
])
def test_whose_time_it_is(user, time):
    times = PerUser.parse(
        3, "alice=90 bob=0s, @Example.NET=30m erin@example.net=1w gina@example.net=1d @bücher.example=2h")
    assert times.of(user, "example.org") == time
    assert times.differs and not PerUser.parse(3, " ").differs


def test_users_of_the_default_domain_are_named_with_it_or_without():
    for others, time in (("@example.org=5", 5), ("alice@example.org=6 @example.org=5", 6), ("alice=7 @example.org=5",
                                                                                            7),
                         ("bob=8", 3)):
        assert PerUser.parse(3, others).of("alice", "example.org") == time


@pytest.mark.parametrize("text", ["alice", "alice=", "=5", "alice=x", "alice=-5", "alice=5y", "alice = 5", "a=5.5",
                                  "a=99999999999", "a=9999999w"])
def test_what_is_no_such_list(text):
    with pytest.raises(ValueError):
        PerUser.parse(0, text)
    with pytest.raises(ValueError):
        Settings(login_delay_for=text)


def test_messages_expire_after_days():
    """EXPIRE counts in days (RFC 2449 §6.7), and 0 days are something else."""
    for good in (0, 86400, 86400 * 365):
        assert Settings(expire=good, expire_for=f"alice={good}").expire == good
    for wrong in (1, 86399):
        with pytest.raises(ValueError):
            Settings(expire=wrong)
        with pytest.raises(ValueError):
            Settings(expire_for=f"alice={wrong}")


def test_the_shortest_of_times_of_which_0_is_for_ever():
    assert shortest(PerUser.parse(0, "")) == 0
    assert shortest(PerUser.parse(0, "a=2d b=1d")) == 86400
    assert shortest(PerUser.parse(3600, "a=0")) == 3600
