"""Space-Saving: what it says of those with most weight is never too small, and too large by what it says at most."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from store.metrics.spacesaving import Busiest, SpaceSaving, merged

STREAM = st.lists(st.tuples(st.sampled_from([f"user{number}" for number in range(30)]), st.integers(1, 50)),
                  max_size=300)


@given(STREAM, st.integers(1, 8))
def test_the_bounds_hold(stream: list[tuple[str, int]], kept: int) -> None:
    """Metwally, Agrawal, El Abbadi, lemmas 3 and 4: weight - error <= truth <= weight, for all that are there; and who
    is not there has no more than the least."""
    sketch, truth = SpaceSaving(kept), Counter[str]()
    for name, weight in stream:
        sketch.add(name, weight)
        truth[name] += weight
    rows = {name: (weight, error) for name, weight, error in sketch.first(1000)}
    assert len(rows) < 2 * kept
    for name, weight in truth.items():
        if name in rows:
            assert rows[name][0] - rows[name][1] <= weight <= rows[name][0]
        elif len(rows) >= kept:
            assert weight <= sorted((each for each, _ in rows.values()), reverse=True)[kept - 1]
    assert not rows.keys() - truth.keys()


def test_who_does_most_is_found_among_very_many() -> None:
    sketch = SpaceSaving(20)
    for number in range(20_000):
        sketch.add(f"user{number}", 1)
        if number % 4 == 0:
            sketch.add("busy", 3)
    (name, weight, error), *others = sketch.first(20)
    assert name == "busy" and weight >= 15_000 >= weight - error
    assert len(others) == 19 and all(each < weight for _, each, _ in others)


def test_several_processes_are_one() -> None:
    one, other = Busiest(), Busiest()
    one.add("alice", 5, 100)
    one.add("bob@example.net", 1, 0)
    other.add("alice", 2, 50)
    other.add("carol@example.net", 3, 7)
    found = merged([one.figures(), other.figures()])
    assert [(row["name"], row["weight"]) for row in found["users"]["operations"]] == [
        ("alice", 7), ("carol@example.net", 3), ("bob@example.net", 1)]
    assert [(row["name"], row["weight"]) for row in found["users"]["octets"]] == [
        ("alice", 150), ("carol@example.net", 7)]
    assert [(row["name"], row["weight"]) for row in found["domains"]["operations"]] == [("", 7), ("example.net", 4)]
