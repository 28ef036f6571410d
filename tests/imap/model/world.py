"""The mailbox as it must be: what each command does to it by its RFC, in dictionaries."""

import re

from attrs import define, evolve, field

from store.partition.views import MailboxViews
from store.values import Flag
from tests.imap.model.client import Flags, Sent, uids_of
from tests.support.conversations.scripts import content

RIGHT = {"\\Seen": "s", "\\Deleted": "t"}           # RFC 4314 §4; all others are w
NAMES = {Flag.SEEN: "\\Seen", Flag.ANSWERED: "\\Answered", Flag.FLAGGED: "\\Flagged", Flag.DELETED: "\\Deleted",
         Flag.DRAFT: "\\Draft"}
OWNER, GUEST = "alice", "bob"


@define(eq=False)
class Mail:
    """A message: its flags but \\Seen, and who has seen it, which everybody but the owner says for himself."""

    subject: str
    flags: Flags = frozenset()
    seen: Flags = frozenset()

    def shown(self, user: str) -> Flags:
        """Its flags as this user sees them."""
        return self.flags | ({"\\Seen"} if user in self.seen else set())

    def with_flags(self, user: str, flags: Flags) -> "Mail":
        """The same with the flags that the user sees."""
        seen = self.seen | {user} if "\\Seen" in flags else self.seen - {user}
        return evolve(self, flags=flags - {"\\Seen"}, seen=seen)


def allowed(rights: str, flags: Flags) -> Flags:
    """Those of the flags that may be changed with these rights."""
    return frozenset(flag for flag in flags if RIGHT.get(flag, "w") in rights)


@define(eq=False)
class World:
    """One mailbox of the owner's, in which a guest has `rights`."""

    place: object
    path: str
    rights: str = "lrswipkxte"
    mails: dict[int, Mail] = field(factory=dict)
    texts: dict[int, bytes] = field(factory=dict)           # of all that ever were
    last: int = 0                                           # the highest UID that there was

    @property
    def entry(self):
        return self.place.entry(self.path)

    def rights_of(self, user: str) -> str:
        return "lrswipkxtea" if user == OWNER else self.rights

    def add(self, uid: int, mail: Mail) -> None:
        """A new message: its UID is new (RFC 3501 §2.3.1.1)."""
        assert uid > self.last
        self.last = uid
        self.mails[uid] = mail
        self.texts[uid] = content(mail.subject).partition(b"\r\n\r\n")[2]

    def found(self, user: str) -> dict[int, Flags]:
        """What the store has, read anew: no view that anybody holds is asked."""
        rows = self.fresh(user)
        return {int(row["uid"]): frozenset(
            [*(name for flag, name in NAMES.items() if row["flags"] & flag), *rows.keyword_names(int(row["keywords"]))])
            for row in rows.rows}

    def fresh(self, user: str):
        store = self.place.store
        reader = user if store.private_bits(self.entry, user) else ""
        return MailboxViews(store.partition_of(self.entry)).read(self.entry, reader)

    def shown(self, user: str) -> dict[int, Flags]:
        """What that user must see."""
        return {uid: mail.shown(user) for uid, mail in self.mails.items()}

    # What commands do

    def carry_out(self, user: str, sent: Sent, answer: str, untagged: list[str], *, read_only: bool) -> None:
        """Apply what this command has done, going by its answer, which must be the right one."""
        status = re.match(r"\S+ (OK|NO|BAD)", answer)
        assert status and status[1] != "BAD", f"{sent.text}: {answer}"
        effect = getattr(self, f"do_{sent.kind}", None)
        if effect is not None:
            effect(user, sent, status[1] == "OK", answer, untagged, read_only)
        else:
            assert status[1] == "OK", f"{sent.text}: {answer}"

    def do_store(self, user, sent, well, answer, untagged, read_only):
        may = allowed(self.rights_of(user), sent.flags)
        there = [one.true for one in sent.messages if one.true in self.mails]
        if read_only or not may:
            assert not well or not there, answer
            return
        modified = re.search(r"\[MODIFIED ([0-9:,]+)\]", answer)
        failed = set(uids_of(modified[1])) if modified else set()
        if not sent.by_uid:
            failed = {sent.at[number] for number in failed}
        assert well or (len(there) < len(sent.messages) and not sent.by_uid and not sent.silent), answer
        assert not failed or sent.since is not None
        for uid in there if sent.modseqs else ():           # RFC 7162 §3.1.3, §3.1.12
            changed = sent.modseqs[uid] > sent.since
            assert changed or uid not in failed, f"UID {uid} was not changed after {sent.since}"
            (known, modseq), now = sent.believed[uid], self.mails[uid].shown(user)
            if changed and uid not in failed:               # §3.1.11: by another, in other flags
                assert modseq is None or modseq <= sent.since, f"UID {uid} was known to be as new as {modseq}"
                assert known is None or (sent.action and not (known ^ now) & sent.flags), f"UID {uid} was changed"
        for uid in set(there) - failed:
            mail = self.mails[uid]
            old = mail.shown(user)
            kept = old - allowed(self.rights_of(user), old)
            new = {"+": old | may, "-": old - may, "": kept | may}[sent.action]
            self.mails[uid] = mail.with_flags(user, new)

    def do_expunge(self, user, sent, well, answer, untagged, read_only):
        if read_only or "e" not in self.rights_of(user):
            assert not well, answer
            return
        assert well, answer
        wanted = {one.true for one in sent.messages} if sent.by_uid else set(self.mails)
        self.expunge(wanted)

    def expunge(self, wanted) -> None:
        self.mails = {uid: mail for uid, mail in self.mails.items()
                      if uid not in wanted or "\\Deleted" not in mail.flags}

    def do_close(self, user, sent, well, answer, untagged, read_only):
        assert well, answer
        if not read_only and "e" in self.rights_of(user):
            self.expunge(set(self.mails))

    def do_copy(self, user, sent, well, answer, untagged, read_only):
        remove = "MOVE" in sent.text
        there = sorted(one.true for one in sent.messages if one.true in self.mails)
        rights = self.rights_of(user)
        here = sent.target != "INBOX"
        refused = (remove and (read_only or not {"t", "e"} <= set(rights))) or (here and "i" not in rights)
        refused |= not sent.by_uid and len(there) < len(sent.messages)      # RFC 3501 §6.4.7: all or nothing
        assert well != refused, f"{sent.text}: {answer}"
        if refused or not there:
            return
        where = "\n".join(untagged) if remove else answer
        code = re.search(r"\[COPYUID (\d+) ([0-9:,]+) ([0-9:,]+)\]", where)
        assert code, f"{sent.text}: {where}"
        new = uids_of(code[3])
        assert uids_of(code[2]) == there and len(new) == len(there) and new == sorted(new)
        mails = [self.mails[uid] for uid in there]
        if remove:
            self.mails = {uid: mail for uid, mail in self.mails.items() if uid not in there}
        if here:
            for uid, mail in zip(new, mails, strict=True):
                self.add(uid, Mail(mail.subject).with_flags(user, allowed(rights, mail.shown(user))))

    def do_append(self, user, sent, well, answer, untagged, read_only):
        rights = self.rights_of(user)
        assert well == ("i" in rights), answer
        if well:
            code = re.search(r"\[APPENDUID (\d+) ([0-9:,]+)\]", answer)
            assert code, answer
            for uid, subject in zip(uids_of(code[2]), sent.subjects, strict=True):
                self.add(uid, Mail(subject).with_flags(user, allowed(rights, sent.flags)))

    def do_fetch(self, user, sent, well, answer, untagged, read_only):
        there = [one.true for one in sent.messages if one.true in self.mails]
        assert well or len(there) < len(sent.messages), answer
        if "BODY[" in sent.text and not read_only and "s" in self.rights_of(user):
            for uid in there:
                self.mails[uid] = evolve(self.mails[uid], seen=self.mails[uid].seen | {user})
