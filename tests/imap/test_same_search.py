"""A search that a client asks for again and again (RFC 3501 §6.4.4): whatever it depends on is changed in between."""

import pytest

from store.mailboxes.flagchanges import update_flags
from store.values import Flag, FlagAction, Flags

KEYS = {b"UNSEEN": b"NOT SEEN", b"SEEN": b"NOT NOT SEEN", b"ALL": b"NOT NOT ALL", b"FLAGGED": b"NOT NOT FLAGGED",
        b"UNSEEN UNDELETED": b"NOT SEEN NOT DELETED"}       # the same said so that it is looked for each time


@pytest.fixture
def client(place):
    place.have("INBOX", "one two(\\Seen) three four(\\Seen) five")
    place.have("Box", "six(\\Seen) seven")
    wire = place.connect()

    def ask(command: bytes) -> bytes:
        wire.send(b"a " + command + b"\r\n")
        answer = wire.received()
        assert b"a OK " in answer, answer
        return answer

    ask(b"LOGIN alice secret")
    ask(b"SELECT INBOX")
    return ask


def found(client, key: bytes = b"UNSEEN") -> list[int]:
    """What a client is told by number, and then by UID, the second and third time as the first."""
    answers = [client(b"SEARCH " + key) for _ in range(3)]
    assert answers[1] == answers[2]
    return [int(number) for number in answers[2].split(b"\r\n")[0].split()[2:]]


def agrees(client) -> None:
    """The expected side is the same search, said so that nothing is kept of it."""
    for key, same in KEYS.items():
        for verb in (b"SEARCH ", b"UID SEARCH "):
            client(verb + key)
            again = client(verb + key)
            assert client(verb + same) == again == client(verb + same), key


STEPS = {
    "nothing": (lambda client, place: None, [1, 3, 5]),
    "a flag": (lambda client, place: client(b"STORE 3 +FLAGS (\\Seen)"), [1, 5]),
    "a flag that is not told": (lambda client, place: client(b"STORE 2:3 -FLAGS.SILENT (\\Seen)"), [1, 2, 3, 5]),
    "flags of all": (lambda client, place: client(b"STORE 1:* +FLAGS.SILENT (\\Seen \\Flagged)"), []),
    "a message is read": (lambda client, place: client(b"FETCH 1 BODY[]"), [3, 5]),
    "another client's flag": (lambda client, place: update_flags(
        place.store, place.entry("INBOX"), [5], FlagAction.ADD, Flags(Flag.SEEN)), [1, 3]),
    "a message comes": (lambda client, place: place.deliver("INBOX", b"Subject: new\r\n\r\n"), [1, 3, 5, 6]),
    "a copy": (lambda client, place: client(b"COPY 1 INBOX"), [1, 3, 5, 6]),
    "an expunge": (lambda client, place: (client(b"STORE 1 +FLAGS.SILENT (\\Deleted)"), client(b"EXPUNGE")), [2, 4]),
    "a move": (lambda client, place: client(b"MOVE 1:2 Box"), [1, 3]),
    "another mailbox": (lambda client, place: client(b"SELECT Box"), [2]),
    "it is read only": (lambda client, place: client(b"EXAMINE INBOX"), [1, 3, 5]),
    "it is left and selected": (lambda client, place: (client(b"UNSELECT"), client(b"SELECT INBOX")), [1, 3, 5]),
}


@pytest.mark.parametrize("step", STEPS)
def test_what_is_found_is_what_is_there(client, place, step):
    change, left = STEPS[step]
    assert found(client) == [1, 3, 5]
    agrees(client)
    client(b"SEARCH UNSEEN")
    change(client, place)
    client(b"NOOP")
    assert found(client) == left
    agrees(client)


def test_a_message_that_is_gone_keeps_the_numbers_of_others(client, place):
    """A SEARCH may not tell of it (RFC 3501 §7.4.1), and finds the others by the numbers that the client knows."""
    assert found(client) == [1, 3, 5]
    other = place.connect()
    other.send(b"a LOGIN alice secret\r\nb SELECT INBOX\r\nc STORE 3 +FLAGS.SILENT (\\Deleted)\r\nd EXPUNGE\r\n")
    assert b"d OK" in other.received()
    client(b"SEARCH UNSEEN")                    # at whose end this session takes a look
    assert found(client) == [1, 5]
    assert b"* 3 EXPUNGE" in client(b"NOOP")
    assert found(client) == [1, 4]
    agrees(client)


def test_numbers_and_uids_are_two_searches(client):
    client(b"STORE 1 +FLAGS.SILENT (\\Deleted)")
    client(b"EXPUNGE")
    for _ in range(3):
        assert client(b"SEARCH UNSEEN").startswith(b"* SEARCH 2 4\r\n")
        assert client(b"UID SEARCH UNSEEN").startswith(b"* SEARCH 3 5\r\n")


def test_imap4rev2_has_another_answer(client):
    """RFC 9051 §6.4.4: always ESEARCH, with the tag of the command."""
    assert client(b"SEARCH UNSEEN").startswith(b"* SEARCH 1 3 5\r\n")
    client(b"ENABLE IMAP4rev2")
    assert client(b"SEARCH UNSEEN").startswith(b'* ESEARCH (TAG "a") ALL 1,3,5\r\n')


def test_what_happened_in_idle_counts(place, client):
    assert found(client) == [1, 3, 5]
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\nb SELECT INBOX\r\nc SEARCH UNSEEN\r\nd IDLE\r\n")
    client(b"STORE 1 +FLAGS.SILENT (\\Seen)")
    wire.send(b"DONE\r\ne SEARCH UNSEEN\r\n")
    assert b"* SEARCH 3 5\r\ne OK" in wire.received()
