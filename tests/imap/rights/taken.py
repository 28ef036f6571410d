"""Rights that change while the mailbox is selected, or while a message is on its way to it (RFC 4314 §5.1.1)."""

import re

from tests.imap.rights.model import allowed
from tests.imap.rights.selected import Selected
from tests.imap.rights.stage import SYSTEM
from tests.imap.rights.talk import NEWS, Talk

AFTERWARDS = (
    "NOOP", "CHECK", "FETCH 1:* (FLAGS BODY.PEEK[])", "UID FETCH 1:* (FLAGS)", "FETCH 1 BODY[]", "SEARCH ALL",
    "UID SORT (ARRIVAL) UTF-8 ALL", "THREAD REFERENCES UTF-8 ALL", "STORE 1 +FLAGS (\\Seen \\Deleted \\Flagged)",
    "UID STORE 1:* FLAGS.SILENT (\\Deleted)", "COPY 1 Sink", "MOVE 1 Sink", "EXPUNGE", "CLOSE", "UNSELECT",
    "STATUS {} (MESSAGES)", "SELECT {}", "EXAMINE INBOX", "MYRIGHTS {}", "GETQUOTAROOT {}", "LIST \"\" %", "LOGOUT",
    "APPEND Sink (\\Seen) {{5+}}\r\nA: b\n")
"""After `r` has gone each of these may be carried out where it has nothing to do with the mailbox; nothing more."""
_TOLD = re.compile(
    rb"\* (?:\d+ )?(?:EXISTS|RECENT|EXPUNGE|VANISHED|FETCH|FLAGS|SEARCH|ESEARCH|SORT|THREAD|STATUS|QUOTAROOT)\b")


def while_selected(talk: Talk) -> None:
    """The list is another in the middle of IDLE, or between two commands; a message comes before, and one after it."""
    name = talk.family.mailbox
    if "r" not in talk.truth.held(name) or name not in talk.truth.boxes:
        return
    here = Selected(talk, name, examine=talk.rng.random() < 0.2)
    if talk.rng.random() < 0.5:
        during_idle(talk, here)
    else:
        between_commands(talk, here)


def during_idle(talk: Talk, here: Selected) -> None:
    """News end with the right to read."""
    talk.played["IDLE"] += 1
    talk.wire.send(b"t IDLE\r\n")
    assert talk.wire.received() == b"+ idling\r\n"
    bring(talk, here)
    assert f"* {len(here.box.messages)} EXISTS\r\n".encode() in talk.wire.received()
    change(talk, here)
    bring(talk, here)
    if "r" in here.held:
        assert f"* {len(here.box.messages)} EXISTS\r\n".encode() in talk.wire.received()
        talk.wire.send(b"DONE\r\n")
        assert talk.heard("DONE").status == "OK"
        here.check()
        here.store()
        return
    nothing_of(talk, talk.wire.received())
    assert talk.wire.closed


def between_commands(talk: Talk, here: Selected) -> None:
    """The next command is carried out by the new rights, or not at all."""
    before = allowed(here.held, set(SYSTEM))
    change(talk, here)
    if "r" in here.held:
        told = [text for text in here.say("NOOP").of("OK") if "[PERMANENTFLAGS" in text]
        assert len(told) == (not here.read_only and allowed(here.held, set(SYSTEM)) != before), told
        for text in told:
            here.check_permanent(text)
        talk.rng.choice((here.store, here.fetch))()
        here.copy("Sink", move=talk.rng.random() < 0.5)
        here.expunge()
        here.check()
        return
    bring(talk, here)
    command = talk.rng.choice(AFTERWARDS)
    talk.wire.send(b"t " + command.format(here.name).encode() + b"\r\n")
    nothing_of(talk, talk.wire.received())
    if not talk.wire.closed:            # of what is left to be done nothing says how the mailbox is
        talk.wire.send(b"t NOOP\r\n")
        nothing_of(talk, talk.wire.received())


def change(talk: Talk, here: Selected) -> None:
    """Another list from now on."""
    talk.stage.set_acls({here.name: talk.combination.later})
    here.held = talk.truth.held(here.name)
    talk.wire.settle()


def bring(talk: Talk, here: Selected) -> None:
    """A message comes."""
    talk.stage.bring(here.name, 1)
    here.box.dirty = True
    talk.wire.settle()


def nothing_of(talk: Talk, octets: bytes) -> None:
    """No mark of the mailbox, no number of its messages, nothing of what happens in it."""
    strange = talk.truth.strange(octets)
    assert not strange, f"{strange} must not be seen: {octets!r}"
    if b" [CLOSED] " in octets:             # what comes after it is of another mailbox (RFC 7162 §3.2.11)
        octets = octets.partition(b" [CLOSED] ")[0]
    assert not _TOLD.findall(octets), octets


def while_appending(talk: Talk) -> None:
    """The right to insert must be there when the message is (RFC 4314 §4), and so the rights for its flags."""
    name = talk.family.mailbox
    if name not in talk.truth.boxes or "i" not in talk.truth.held(name):
        return
    box, message, wanted = talk.truth.boxes[name], b"Subject: Qm0\r\n\r\nx\r\n", {"\\Seen", "\\Deleted", "word"}
    talk.played["APPEND"] += 1
    talk.wire.send(b"t APPEND %b (%b) {%d}\r\n" % (name.encode(), " ".join(wanted).encode(), len(message)))
    assert talk.wire.received().startswith(b"+ ")
    talk.stage.set_acls({name: talk.combination.later})
    talk.wire.send(message + b"\r\n")
    answer, held = talk.heard("APPEND"), talk.truth.held(name)
    assert not [line for line in answer.lines if line.text.split(" ")[1] not in NEWS]
    assert answer.status == ("OK" if "i" in held else "NO"), answer.octets
    assert answer.code == (("APPENDUID" if "r" in held else "") if "i" in held else
                           talk.truth.refusal(name, "TRYCREATE")), answer.octets
    for uid in talk.stage.new_uids(name) if "i" in held else ():
        box.messages[uid] = allowed(held, wanted)
        box.dirty = True
