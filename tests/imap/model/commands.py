"""Commands, made from a few numbers: which messages, which flags. What a client means by them is in `Sent`."""

from functools import partial

from attrs import frozen
from hypothesis import strategies as st

from imap.wire.numbers import format_numbers
from tests.imap.model.client import Belief, Message, Sent, uids_of
from tests.support.conversations.scripts import content

FLAGS = ["\\Seen", "\\Flagged", "\\Deleted", "\\Answered", "$Label", "todo"]
SAFE = ("store", "silent", "fetch", "text", "peek", "search", "unseen", "deleted", "numbered", "sort")
ENDING = ("copy", "move")                       # use message numbers, and may tell of expunges
OTHERS = ("ustore", "usilent", "ufetch", "utext", "usearch", "changed", "ucopy", "umove", "expunge", "uexpunge",
          "append", "appends", "noop", "check", "status")


@frozen
class Wish:
    """A command to be made: its name, a bit for each of the first messages, flags and a number for the rest."""

    name: str
    pick: int
    flags: frozenset[str]
    more: int


def wishes(names) -> st.SearchStrategy[Wish]:
    return st.builds(Wish, st.sampled_from(names), st.integers(0, 63), st.frozensets(st.sampled_from(FLAGS), min_size=1,
                     max_size=2), st.integers(0, 11))


WISHES = wishes(SAFE + ENDING + OTHERS)
NUMBERED = wishes(SAFE)
READING = wishes(("text", "utext"))
STORING = wishes(("store", "silent", "ustore", "usilent"))
# RFC 3501 §5.5: no number after what may tell of an expunge.
LINES = st.builds(lambda first, ending, last: [*first, *ending, *last], st.lists(wishes(SAFE), max_size=3),
                  st.lists(wishes(ENDING), max_size=1), st.lists(wishes(OTHERS), max_size=3))


def made(wish: Wish, tag: str, belief: Belief, box: str, *, alone: bool) -> Sent:
    """The command. One that needs messages where there are none is a NOOP. Only when it is sent `alone` does the client
    know what "*" is."""
    by_uid = wish.name.startswith("u") and wish.name != "unseen"
    messages = belief.messages
    if by_uid:
        messages = [one for one in messages if one.uid is not None]
    chosen = [one for at, one in enumerate(messages[:6]) if wish.pick >> at & 1]
    everything = alone and not chosen
    if not chosen:
        chosen = list(belief.messages) if alone or not by_uid else messages
    if not chosen:
        return Sent(tag, "NOOP", "noop") if wish.name in SAFE + ENDING or by_uid else _plain(wish, tag, belief, box)
    places = {one: at for at, one in enumerate(belief.messages, 1)}
    numbers = "1:*" if everything else format_numbers(
        sorted(one.uid if by_uid else places[one] for one in chosen)).decode()
    sent = Sent(tag, "", wish.name.removeprefix("u") if by_uid else wish.name, chosen, by_uid=by_uid,
                at={at: one.true for one, at in places.items()})
    if _numbered(sent, wish, numbers, belief, box):
        return sent
    return _plain(wish, tag, belief, box)


def _numbered(sent: Sent, wish: Wish, numbers: str, belief: Belief, box: str) -> bool:
    uid = "UID " if sent.by_uid else ""
    match sent.kind:
        case "store" | "silent":
            sent.silent, sent.kind = sent.kind == "silent", "store"
            sent.action = ("+", "-", "")[(wish.pick + wish.more) % 3]
            sent.flags = wish.flags
            since = ""
            if belief.condstore and wish.more < 8:      # as new as the client knows a message to be, or a bit older
                sent.since = max(0, (sent.messages[0].modseq or belief.modseq) - (wish.more > 2))
                since = f"(UNCHANGEDSINCE {sent.since}) "
            sent.text = (f"{uid}STORE {numbers} {since}{sent.action}FLAGS{'.SILENT' if sent.silent else ''} "
                         f"({' '.join(sorted(wish.flags))})")
        case "fetch":
            sent.text = f"{uid}FETCH {numbers} (UID FLAGS{' MODSEQ' if belief.condstore else ''})"
        case "text":
            sent.kind, sent.text = "fetch", f"{uid}FETCH {numbers} (UID FLAGS BODY[TEXT])"
        case "peek":
            sent.kind, sent.text = "fetch", f"{uid}FETCH {numbers} BODY.PEEK[TEXT]"
        case "search" | "unseen" | "deleted" if not sent.by_uid:
            _search(sent, "")
        case "search":
            _search(sent, "UID ")
        case "numbered":
            chosen = set(sent.messages)
            sent.text, sent.numbers, sent.kind = f"UID SEARCH {numbers}", True, "search"
            sent.wanted = lambda one: one in chosen
        case "sort":
            sent.text, sent.wanted = "SORT (REVERSE ARRIVAL) UTF-8 ALL", lambda one: True
        case "copy" | "move":
            sent.target = box if wish.more % 3 == 0 else "INBOX"
            sent.text = f"{uid}{sent.kind.upper()} {numbers} {sent.target}"
            sent.kind = "copy"
        case "expunge" if sent.by_uid:
            sent.text = f"UID EXPUNGE {numbers}"
        case _:
            return False
    return True


def _search(sent: Sent, uid: str) -> None:
    word = {"search": "ALL", "unseen": "UNSEEN", "deleted": "DELETED"}[sent.kind]
    sent.text, sent.kind, sent.messages = f"{uid}SEARCH {word}", "search", []
    sent.wanted = partial(_suits, word)


def _suits(word: str, one: Message) -> bool | None:
    """Whether the search must find the message; None if the client cannot know."""
    if word == "ALL":
        return True
    if one.flags is None:
        return None
    return "\\Deleted" in one.flags if word == "DELETED" else "\\Seen" not in one.flags


def _plain(wish: Wish, tag: str, belief: Belief, box: str) -> Sent:
    match wish.name:
        case "changed" if belief.qresync:
            since = max(0, belief.modseq - wish.more)
            return Sent(tag, f"UID FETCH 1:* (FLAGS) (CHANGEDSINCE {since} VANISHED)", "fetch", by_uid=True)
        case "expunge":
            return Sent(tag, "EXPUNGE", "expunge")
        case "append" | "appends":
            count = 1 + (wish.name == "appends")
            subjects = [f"{tag}x{number}" for number in range(count)]
            flags = " ".join(sorted(wish.flags))
            texts = [f" ({flags}) {{{len(content(one))}+}}\r\n{content(one).decode()}" for one in subjects]
            return Sent(tag, f"APPEND {box}{''.join(texts)}", "append", flags=wish.flags, subjects=subjects)
        case "check":
            return Sent(tag, "CHECK", "check")
        case "status":
            return Sent(tag, "STATUS INBOX (MESSAGES UIDNEXT)", "status")
    return Sent(tag, "NOOP", "noop")


def found_by(sent: Sent, line: str, belief: Belief) -> None:
    """A SEARCH or SORT must give what the client knows of; what has vanished may be missing."""
    found = [int(number) for number in line.split("(MODSEQ")[0].split()[2:] if number.isdigit()]
    _compare(found, sent, belief)


def found_by_esearch(sent: Sent, line: str, belief: Belief) -> None:
    """The same as an ESEARCH."""
    body = line.partition(" ALL ")[2].split(" ")[0]
    assert ("UID" in line.split(")")[1].split()) == sent.text.startswith("UID"), line
    _compare(uids_of(body) if body else [], sent, belief)


def _compare(found: list[int], sent: Sent, belief: Belief) -> None:
    assert len(found) == len(set(found))
    by_number: dict[int, Message] = {}
    for at, one in enumerate(belief.messages, 1):
        by_number[one.true if sent.text.startswith("UID") else at] = one
    assert set(found) <= by_number.keys(), f"{sent.text}: {found} of {sorted(by_number)}"
    for number, one in by_number.items():
        wanted = sent.wanted(one)
        if wanted is not None and one in sent.here:
            assert (number in found) == wanted, f"{sent.text}: {number} in {found}, flags {one.flags}"
