"""LMTP: mail to a mailbox's own address, for which RFC 4314 §2.1 has the right to post.

A mailbox of somebody's that may not be posted to is answered like one that is not there, and the mail is for INBOX.
There is no INBOX behind a public one: only who may look it up hears that it is there.
"""

from tests.imap.rights.combinations import Combination
from tests.imap.rights.model import GROUPS, held_by
from tests.imap.rights.stage import Stage

SENDERS = {"alice": ("alice@example.org", GROUPS), "bob": ("bob@example.org", ()), "carol": ("carol@example.org", ()),
           "": ("eve@elsewhere.example", ())}
LOCAL = {"guest": "bob", "public": "public", "owner": "alice"}


def post(stage: Stage, combination: Combination) -> None:
    """Ask for it as somebody, and now and then send a message."""
    rng, name = combination.random(), stage.families[combination.kind].mailbox
    box, user = stage.truth.boxes[name], rng.choice(list(SENDERS))
    sender, groups = SENDERS[user]
    wire = stage.lmtp
    address = f"{LOCAL[combination.kind]}+{name[name.index('Qp'):]}@example.org"
    twin = f"{address.partition('+')[0]}+none@example.org"
    answers = []
    for recipient in (twin, address):
        wire.send(f"RSET\r\nMAIL FROM:<{sender}>\r\nRCPT TO:<{recipient}>\r\n".encode())
        answers.append(wire.received())
    held = held_by(box.acl, box.owner, user, groups)
    taken = "p" in held or box.owner != "" and (not box.acl or user == box.owner)
    if box.owner:
        assert answers[0] == answers[1] and b"\r\n250 2.1.5" in answers[1], answers
    elif taken:
        assert b"\r\n250 2.1.5" in answers[1], answers
    elif user and "l" in held:
        assert b"\r\n550 5.7.1" in answers[1], answers
    else:
        assert answers[0] == answers[1] and b"\r\n550 5.1.1" in answers[1], answers
    if rng.random() < 0.1 and (taken or box.owner):
        wire.send(b"DATA\r\nSubject: Qm0\r\n\r\nx\r\n.\r\n")
        assert b"\r\n250 2.0.0" in wire.received()
        new = stage.new_uids(name)
        assert len(new) == taken, f"{combination}: {user} {new}"
        for uid in new:
            box.messages[uid] = set()
            box.dirty = True
        if not taken and combination.kind == "owner":
            stage.truth.boxes["INBOX"].messages |= {uid: set() for uid in stage.new_uids("INBOX")}
            stage.truth.boxes["INBOX"].dirty = True
