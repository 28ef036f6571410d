"""A store with the mailboxes that the conversations are about, and what happens in it besides them."""

from attrs import define, evolve, field
from twisted.internet.task import Clock

from imap.protocol import factory
from imap.settings import Settings
from lmtp.protocol import factory as lmtp_factory
from lmtp.settings import Settings as LmtpSettings
from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.errors import Problem, StoreError
from store.mailboxes import deletion, firstuse, namespace, subscribing
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.quota import roots
from store.store import Store
from store.values import Flag, Flags
from tests.imap.rights.combinations import Acl, Combination
from tests.imap.rights.model import QUOTA_LIMIT, USER, Box, Truth
from tests.support.conversations.wire import Wire
from tests.support.stores.stores import HASH, deliver

MANY = 8                # messages
PREFIX = {"guest": "user/bob/", "public": "public/", "owner": ""}
OWNER = {"guest": "bob", "public": "", "owner": USER}
FLAGS = ({}, {"\\Deleted"}, {"\\Flagged", "Q"}, {"\\Answered"})       # of a mailbox's messages; Q: its own keyword
SYSTEM = {"\\Deleted": Flag.DELETED, "\\Flagged": Flag.FLAGGED, "\\Answered": Flag.ANSWERED, "\\Seen": Flag.SEEN,
          "\\Draft": Flag.DRAFT}
SECRETS = ("user/bob/Qp20", "user/bob/Qp20/Qp21", "user/carol/Qp22", "public/Qp23")     # nobody is granted anything


def content(number: int) -> bytes:
    """A message of the mailbox with that number."""
    mark = b"Qm%d" % number
    return b"From: %b <%b@example.org>\r\nSubject: %b\r\nMessage-ID: <%b@example.org>\r\n\r\nOf %b.\r\n" % ((mark,) * 5)


@define(eq=False)
class Family:
    """A mailbox, with one above and one below it."""

    parent: str
    mailbox: str
    child: str

    def all(self) -> tuple[str, str, str]:
        return self.parent, self.mailbox, self.child


@define(eq=False)
class Stage:
    """The store, a server for users and one for administrators, and what is true."""

    store: Store
    truth: Truth = field(factory=Truth)
    clock: Clock = field(factory=Clock)
    families: dict[str, Family] = field(factory=dict)
    missing: dict[str, bytes] = field(factory=dict)     # a command about a name that is not there -> its answer
    _stock: dict[int, object] = field(factory=dict)     # number of a mailbox -> one with its messages
    _acls: dict[str, Acl] = field(factory=dict)         # as they are in the store
    lmtp: Wire = field(init=False)
    _servers: list = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._servers = [factory(self.store, Settings(admins=admins), self.clock, None) for admins in ("", USER)]
        for user in (USER, "bob", "carol"):
            firstuse.inbox(self.store, self.store.directory.add(user, HASH))
        self.store.directory.change(USER, groups=["staff"])
        self.lmtp = Wire(lmtp_factory(self.store, LmtpSettings(hostname="store.example.org"), self.clock), self.clock)
        self.lmtp.send(b"LHLO relay.example.org\r\n")
        self.lmtp.received()
        numbers = iter(range(1, 100))
        for kind, prefix in PREFIX.items():
            names = [next(numbers) for _ in range(3)]
            paths = [prefix + "/".join(f"Qp{number}" for number in names[:depth]) for depth in (1, 2, 3)]
            self.families[kind] = Family(*paths)
            for name, number in zip(paths, names, strict=True):
                self._make(name, number, OWNER[kind])
        for name in SECRETS:
            self._make(name, int(name.rpartition("Qp")[2]), "bob" if "bob" in name else "carol" if "carol" in name
                       else "")
        self._make("INBOX", 0, USER)
        namespace.create_mailbox(self.store, MailboxName(USER, "Sink"))
        self.truth.boxes["Sink"] = Box(99, USER, {}, 0)
        for name in ("user/bob/INBOX", "user/carol/INBOX"):
            self.truth.boxes[name] = Box(98, name.split("/")[1], {}, 0)
        for name in (*SECRETS[:2], *(family.mailbox for family in self.families.values())):
            subscribing.subscribe(self.store, USER, name)
            self.truth.subscribed.add(name)
        roots.set_quota(self.store, "bob", messages=QUOTA_LIMIT["bob"])
        root = self.families["public"].parent
        roots.set_quota(self.store, root, messages=int(f"9{self.truth.boxes[root].number:02}0001"))

    # Mailboxes

    def canonical(self, name: str) -> MailboxName:
        return MailboxName.from_client(USER, name)

    def entry(self, name: str):
        return self.store.entry(self.canonical(name))

    def _make(self, name: str, number: int, owner: str) -> None:
        """A mailbox and its truth, with the messages of that number."""
        if number not in self._stock:
            stock = namespace.create_mailbox(self.store, MailboxName("carol", f"Stock{number}"))
            for flags in FLAGS:
                words = tuple(f"Qk{number}" for flag in flags if flag == "Q")
                system = Flag(sum(SYSTEM[flag] for flag in flags if flag != "Q"))
                deliver(self.store, content(number), str(stock.name), flags=Flags(system, words))
            self._stock[number] = stock
        if name == "INBOX":
            entry = self.entry(name)
        else:
            entry = namespace.create_mailbox(self.store, self.canonical(name))
            self._acls[name] = dict(entry.acl)
        validity = entry.uidvalidity
        box = self.truth.boxes[name] = Box(number, owner, {}, validity)
        self.truth.validities[validity] = number
        if number:
            self._set_figures(entry, number)
        self._refill(name, box, entry)
        self.truth.changed()

    def _set_figures(self, entry, number: int) -> None:
        """Its UIDs and MODSEQs tell whose they are."""
        partition = self.store.partition_of(entry)
        uid, modseq = int(f"7{number:02}0001"), int(f"8{number:02}0001")
        partition.transact(lambda txn: txn.set_state(entry.id, None, evolve(
            txn.state(entry.id), uidnext=uid, recent=uid, highestmodseq=modseq, changed=modseq, log_since=modseq)))

    def _refill(self, name: str, box: Box, entry) -> None:
        """Its first messages, and no others."""
        rows = self.store.open_mailbox(entry).rows
        if len(rows):
            remove(self.store, entry, rows["uid"])
        box.messages.clear()
        self.bring(name, len(FLAGS), entry)
        box.dirty = False

    def bring(self, name: str, count: int, entry=None) -> None:
        """Messages come to a mailbox by somebody else's doing."""
        box = self.truth.boxes[name]
        entry = entry or self.entry(name)
        stock = self._stock[box.number]
        source = self.store.open_mailbox(stock).rows["uid"][:count]
        for uid, flags in zip(copy_messages(self.store, stock, entry, source), FLAGS, strict=False):
            box.messages[uid] = {f"Qk{box.number}" if flag == "Q" else flag for flag in flags}
            box.next_uid = uid + 1

    # Combinations

    def begin(self, combination: Combination) -> Family:
        """Let the combination be true; its mailboxes have their first messages."""
        family = self.families[combination.kind]
        lists = dict(zip(family.all(), (combination.parent, combination.mailbox, combination.child), strict=True))
        self.set_acls({name: lists.get(name, {}) for kind in self.families.values() for name in kind.all()})
        self.truth.admin = combination.admin
        self.truth.changed()
        return family

    def set_acls(self, lists: dict[str, Acl]) -> None:
        """These mailboxes have these access control lists."""
        differ = {name: acl for name, acl in lists.items() if self._acls[name] != acl}
        for name, acl in lists.items():
            self.truth.boxes[name].acl = dict(acl)
        entries = []

        def write(txn) -> None:
            entries.clear()
            for name, acl in differ.items():
                entry = evolve(self.store.mailboxes.find(self.canonical(name), txn), acl=dict(acl))
                self.store.mailboxes.write(entry, txn)
                entries.append(entry)

        if differ:
            transact(self.store.mailboxes.env, write)
            self._acls.update(differ)
            self.store.news.tell([entry.id for entry in entries])
        self.truth.changed()

    def acl_changed(self, name: str) -> None:
        """A client has changed a list."""
        self._acls[name] = None

    def restore(self) -> None:
        """Make the mailboxes again what they were, where something was done to them. The middle ones and INBOX keep
        what they have, which is their own and INBOX's."""
        truth = self.truth
        kept = {name for family in self.families.values() for name in family.all()}
        for name in sorted(truth.boxes, reverse=True):
            if name.startswith(tuple(kept)) and name not in kept or name.endswith(("/moved", "/new")):
                deletion.delete_mailbox(self.store, self.canonical(name))
                del truth.boxes[name]
        for kind, family in self.families.items():
            for name in family.all():
                box = truth.boxes.get(name)
                if box is None:
                    self._make(name, int(name.rpartition("Qp")[2]), OWNER[kind])
                elif box.dirty and (name != family.mailbox or len(box.messages) > MANY):
                    self._refill(name, box, self.entry(name))
                elif len(box.messages) < len(FLAGS):
                    self.bring(name, len(FLAGS))
        if len(truth.boxes["INBOX"].messages) < len(FLAGS):
            self.bring("INBOX", len(FLAGS))
        truth.changed()

    def renamed(self, old: str, new: str) -> None:
        """The truth of a RENAME: what is below goes with it, and the lists stay (RFC 4314 §4)."""
        for name in (old, *self.truth.below(old)):
            if name in self.truth.boxes:
                self.truth.boxes[new + name[len(old):]] = self.truth.boxes.pop(name)
                self._acls[new + name[len(old):]] = self._acls.pop(name, None)
        self.truth.changed()

    def contents(self, name: str) -> dict[int, set[str]]:
        """What is in a mailbox of the store, as the user sees it."""
        mailbox = self.store.open_mailbox(self.entry(name), USER)
        columns = (mailbox.rows[column].tolist() for column in ("uid", "flags", "keywords"))
        return {uid: {*(flag for flag, bit in SYSTEM.items() if flags & bit), *mailbox.keyword_names(keywords)}
                for uid, flags, keywords in zip(*columns, strict=True)}

    def exists(self, name: str) -> bool:
        try:
            self.entry(name)
        except StoreError as error:
            assert error.problem is Problem.NO_MAILBOX
            return False
        return True

    # Connections

    def connect(self, *, admin: bool) -> Wire:
        return Wire(self._servers[admin], self.clock)


    def new_uids(self, name: str) -> list[int]:
        """The UIDs that the mailbox has got and the truth does not know."""
        return sorted(self.contents(name).keys() - self.truth.boxes[name].messages.keys())
