"""Every command of the authenticated state, on a mailbox, its parent and its child (RFC 4314 §4, RFC 9208 §6)."""

from tests.imap.rights import names
from tests.imap.rights.model import QUOTA_LIMIT, RIGHTS, Box, allowed, shown_rights
from tests.imap.rights.talk import Talk


def without_a_mailbox(talk: Talk) -> None:
    """What speaks of no mailbox says nothing of any."""
    enabled = talk.rng.choice(("CONDSTORE", "QRESYNC", "UTF8=ACCEPT", "IMAP4rev2", "NOTHING"))
    talk.well("CAPABILITY", "CAPABILITY")
    talk.well("NOOP")
    talk.well('ID ("name" "test")', "ID")
    talk.well(f"ENABLE {enabled}", "ENABLED")
    talk.rev2 = enabled == "IMAP4rev2"
    answer = talk.well("NAMESPACE", "NAMESPACE")
    assert answer.of("NAMESPACE") == ['* NAMESPACE (("" "/")) (("user/" "/")) (("public/" "/"))']


def listing(talk: Talk) -> None:
    """LIST, LSUB, SUBSCRIBE, UNSUBSCRIBE, STATUS."""
    talk.rng.choice(names.LISTS)(talk)
    subscribing(talk)
    status = f"STATUS {{}} ({names.STATUS_ITEMS})"
    answer = talk.needs("r", status, talk.family.mailbox, "STATUS")
    if answer is not None:
        names.check_status(talk, talk.family.mailbox, answer.of("STATUS")[0])


def subscribing(talk: Talk) -> None:
    """`l`, or names below that it is granted for; to be rid of a subscription nothing is needed (RFC 4314 §4)."""
    truth, name = talk.truth, talk.family.child
    if name in truth.listed() or truth.has_listed_below(name):
        talk.well(f"SUBSCRIBE {name}")
        truth.subscribed.add(name)
    else:
        answer = talk.refused(f"SUBSCRIBE {name}", "NONEXISTENT")
        talk.like_missing(answer, "SUBSCRIBE {}", name)
    talk.rng.choice((names.lsub, names.lsub_levels))(talk)
    talk.well(f"UNSUBSCRIBE {name}")
    truth.subscribed.discard(name)


def rights(talk: Talk) -> None:
    """MYRIGHTS for who has any right that tells of the mailbox; the others for who administers it."""
    truth, name = talk.truth, talk.family.mailbox
    held = truth.held(name)
    if held & set("lrikxa"):
        answer = talk.well(f"MYRIGHTS {name}", "MYRIGHTS")
        assert names.rights_in(answer) == {name: shown_rights(held)}
    else:
        talk.like_missing(talk.refused(f"MYRIGHTS {name}", "NONEXISTENT"), "MYRIGHTS {}", name)
    answer = talk.needs("a", "LISTRIGHTS {} carol", name, "LISTRIGHTS")
    if answer is not None:
        words = answer.of("LISTRIGHTS")[0].split(" ")
        assert words[2:4] == [name, "carol"] and sorted("".join(words[4:]).strip('"')) == sorted(RIGHTS + "cd")
    if talk.needs("a", "SETACL {} carol lrk", name):
        truth.boxes[name].acl["carol"] = "lrk"
        talk.stage.acl_changed(name)
    answer = talk.needs("a", "GETACL {}", name, "ACL")
    if answer is not None:
        check_acl(talk, name, answer.of("ACL")[0])
    if talk.needs("a", "DELETEACL {} carol", name):
        del truth.boxes[name].acl["carol"]


def check_acl(talk: Talk, name: str, text: str) -> None:
    """An ACL response has every entry; an owner whom the list does not name has all rights."""
    box = talk.truth.boxes[name]
    words = text.split(" ")
    assert words[2] == name
    found = dict(zip(words[3::2], map(set, words[4::2]), strict=True))
    expected = {identifier: shown_rights(frozenset(held)) for identifier, held in box.acl.items()}
    if box.owner:
        expected.setdefault(box.owner, shown_rights(frozenset(RIGHTS)))
    assert found == expected, text


def annotations(talk: Talk) -> None:
    """RFC 5464 §3.3: `l`, and one of r, s, w, i, p; `w` for what all see, and `a` for what runs (RFC 6785)."""
    name = talk.family.mailbox
    held = talk.truth.held(name)
    can = "l" in held and bool(held & set("rswip"))
    _metadata(talk, can, f"GETMETADATA {name} /shared/comment", "METADATA")
    _metadata(talk, can, f'SETMETADATA {name} (/private/comment "x")')
    _metadata(talk, can and "w" in held, f'SETMETADATA {name} (/shared/comment "x")')
    _metadata(talk, can and "a" in held, f'SETMETADATA {name} (/shared/imapsieve/script "")')


def _metadata(talk: Talk, can: bool, command: str, *kinds: str) -> None:
    if can:
        talk.well(command, *kinds)
    elif "l" in talk.truth.held(talk.family.mailbox):
        talk.refused(command, "NOPERM")
    else:
        talk.like_missing(talk.refused(command, "NONEXISTENT"), command.replace(talk.family.mailbox, "{}"),
                          talk.family.mailbox)


def quotas(talk: Talk) -> None:
    """RFC 9208 §6: GETQUOTAROOT tells use, so it needs `r`; others' roots are like none (§8) but to administrators."""
    truth, name, kind = talk.truth, talk.family.mailbox, talk.combination.kind
    answer = talk.needs("r", "GETQUOTAROOT {}", name, "QUOTAROOT", "QUOTA")
    public = talk.stage.families["public"].parent
    if answer is not None:
        root = {"guest": "", "public": f" {public}", "owner": " alice"}[kind]
        assert answer.of("QUOTAROOT") == [f"* QUOTAROOT {name}{root}"]
        assert len(answer.of("QUOTA")) == (kind != "guest")
    if truth.admin:
        talk.well("GETQUOTA bob", "QUOTA")
        talk.well(f"SETQUOTA bob (MESSAGE {QUOTA_LIMIT['bob']})", "QUOTA")
        return
    answer, other = talk.refused("GETQUOTA bob", "NONEXISTENT"), talk.refused("GETQUOTA nobody", "NONEXISTENT")
    assert answer.octets == other.octets
    talk.refused(f"SETQUOTA {talk.rng.choice(('bob', 'alice', public))} (MESSAGE 5)", "NOPERM")
    charged = [name for name in talk.stage.families["public"].all() if "r" in truth.held(name)]
    if not charged:
        assert talk.refused(f"GETQUOTA {public}", "NONEXISTENT").octets == other.octets
    elif any("l" in truth.held(name) for name in charged):
        talk.well(f"GETQUOTA {public}", "QUOTA")


def appending(talk: Talk, name: str, wanted: set[str]) -> None:
    """`i`; and s, t, w for the flags (RFC 4314 §4). Only with `r` it is told which UIDs they got (RFC 4315 §3)."""
    truth, held = talk.truth, talk.truth.held(name)
    box = truth.boxes[name]
    message = b"Subject: Qm0\r\n\r\nx\r\n"
    count = talk.rng.choice((1, 1, 2))
    data = b"".join(b" (%b) {%d+}\r\n%b" % (" ".join(sorted(wanted)).encode(), len(message), message)
                    for _ in range(count))
    answer = talk.needs("i", "APPEND {}", name, code="APPENDUID" if "r" in held else "", missing="TRYCREATE",
                        data=data)
    if answer is not None:
        uids = told_uids(answer.rest.split(" ")[-1]) if "r" in held else talk.stage.new_uids(name)
        assert len(uids) == count
        for uid in uids:
            box.messages[uid] = allowed(held, wanted)
        box.dirty = True


def told_uids(text: str) -> list[int]:
    """The UIDs of an APPENDUID or COPYUID."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition(":")
        found += range(int(first), int(last or first) + 1)
    return found


def creating(talk: Talk) -> None:
    """`k` on the parent (RFC 4314 §4). What is there already is named as such only to those that may look it up."""
    truth, name, child = talk.truth, talk.family.mailbox, talk.family.child
    may = truth.may_create(child)
    if not may:
        code = "NOPERM"
    else:
        code = "ALREADYEXISTS" if "l" in truth.held(child) else "NOPERM"
    talk.refused(f"CREATE {child}", code)
    new = f"{name}/new"
    if not truth.may_create(new):
        talk.refused(f"CREATE {new}", "NOPERM")
        return
    parent = truth.boxes[name]
    talk.well(f"CREATE {new}")
    truth.boxes[new] = Box(97, parent.owner, dict(parent.acl), 0)       # §4: it inherits the list
    truth.changed()
    held = truth.held(new)
    if held & set("lrikxa"):
        assert names.rights_in(talk.well(f"MYRIGHTS {new}", "MYRIGHTS")) == {new: shown_rights(held)}


def deleting(talk: Talk, name: str) -> None:
    """`x`."""
    truth = talk.truth
    if "x" in truth.held(name):
        talk.well(f"DELETE {name}")
        del truth.boxes[name]
        truth.changed()
    elif "l" in truth.held(name):
        talk.refused(f"DELETE {name}", "NOPERM")
    elif truth.has_listed_below(name):
        talk.refused(f"DELETE {name}", "HASCHILDREN")       # as where there is no mailbox, but names below it
    else:
        talk.like_missing(talk.refused(f"DELETE {name}", "NONEXISTENT"), "DELETE {}", name)


def renaming(talk: Talk) -> None:
    """`x` on the mailbox and `k` on the new parent; the lists go with the mailboxes (RFC 4314 §4)."""
    truth, family = talk.truth, talk.family
    old, new = family.mailbox, f"{family.parent}/moved"
    if "x" in truth.held(old) and truth.may_create(new):
        talk.well(f"RENAME {old} {new}")
        talk.stage.renamed(old, new)
        name = talk.rng.choice((new, *truth.below(new)))
        if truth.held(name) & set("lrikxa"):
            assert names.rights_in(talk.well(f"MYRIGHTS {name}", "MYRIGHTS")) == {name: shown_rights(truth.held(name))}
        if talk.rng.random() < 0.3:
            names.list_everything(talk)
        talk.well(f"RENAME {new} {old}")
        talk.stage.renamed(new, old)
        return
    answer = talk.refused(f"RENAME {old} {new}", "*")
    if "l" not in truth.held(old) and "x" not in truth.held(old):
        talk.like_missing(answer, f"RENAME {{}} {new}", old)


def renaming_over(talk: Talk) -> None:
    """A name that is taken is told as such only to those that may look it up."""
    truth, old, taken = talk.truth, talk.family.child, talk.family.mailbox
    if "x" in truth.held(old) and truth.may_create(taken):
        talk.refused(f"RENAME {old} {taken}", "ALREADYEXISTS" if "l" in truth.held(taken) else "NOPERM")
    else:
        talk.refused(f"RENAME {old} {taken}", "*")


def ownership(talk: Talk) -> None:
    """No rights make a mailbox another owner's, and INBOX is nobody else's to delete. Of what nobody is granted nothing
    is to be had."""
    family = talk.family
    if talk.combination.kind != "owner":
        talk.refused(f"RENAME {family.mailbox} mine", "NOPERM")
        talk.refused("DELETE user/bob/INBOX", "CANNOT")
        answer = talk.refused("RENAME user/bob/INBOX mine", "NOPERM")
        assert answer.octets == talk.refused("RENAME user/nobody/INBOX mine", "NOPERM").octets
    name = talk.rng.choice(("user/bob/Qp20", "user/bob/Qp20/Qp21", "user/carol/Qp22", "public/Qp23"))
    command = talk.rng.choice(("STATUS {} (MESSAGES)", "SELECT {}", "GETACL {}", "DELETE {}", "SUBSCRIBE {}"))
    answer = talk.refused(command.format(name), "NONEXISTENT")
    assert answer.octets == talk.refused(command.format(name.replace("Qp", "none")), "NONEXISTENT").octets
