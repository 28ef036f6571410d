"""Every script of tests/scripts/lmtp, as it is written and cut up in every way."""

import logging

import pytest

from lmtp import replies
from lmtp.replies import Reply
from tests.lmtp.conversation import SCRIPTS, SENDING, Place, play, read_script, sent

NAMES = sorted(path.stem for path in SCRIPTS.glob("*.txt"))
STEPWISE = {"time", "stop", "another", "tls", "delete", "octets", "letters", "repeat"}
ONCE = {"duplicate", "quota-parameters"}       # another time the answers are others
CUTTABLE = [name for name in NAMES if not (STEPWISE & {step.kind for step in read_script(name)} or name in ONCE)]


@pytest.mark.parametrize("name", NAMES)
def test_script(name, place, caplog):
    steps = read_script(name)
    place.prepare(steps)
    caplog.set_level(logging.DEBUG)
    play(place, steps)
    traced = any(record.exc_info for record in caplog.records)
    assert traced == any(step.kind == "fail" and "unexpected" in step.text for step in steps)


def test_every_fixed_reply_is_given_in_some_script(store):
    said = set()
    for name in NAMES:
        with pytest.MonkeyPatch.context() as monkeypatch:
            place = Place(store, monkeypatch)
            steps = read_script(name)
            place.prepare(steps)
            play(place, steps)
            said.update(place.said)
        place.remove_users()
    fixed = {reply for reply in vars(replies).values() if isinstance(reply, Reply)}
    assert not [reply for reply in fixed if not set(reply.octets.splitlines()) <= said]


@pytest.mark.long
@pytest.mark.parametrize("name", CUTTABLE)
def test_every_cut_gives_the_same_answers(name, place):
    steps = read_script(name)
    octets = b"".join(sent(step) for step in steps if step.kind in SENDING)
    place.prepare(steps)
    place.wire.send(octets)
    whole, closed = answers(place), place.wire.closed
    cuts = range(1, len(octets)) if len(octets) < 400 else range(1, len(octets), 7)
    for pieces in [[octets[at:at + 1] for at in range(len(octets))],
                   *([octets[:cut], octets[cut:]] for cut in cuts)]:
        place.connect()
        for piece in pieces:
            place.wire.send(piece)
        assert answers(place) == whole
        assert place.wire.closed == closed


def answers(place):
    """What was answered, without the ids of deliveries, which are new each time."""
    lines = place.wire.received().splitlines()
    return [line.partition(b", ")[0] if line.startswith(b"250 2.0.0 Delivered") else line for line in lines]
