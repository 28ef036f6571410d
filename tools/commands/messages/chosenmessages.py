"""The messages that a command is about: whose, and which of theirs."""

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

from attrs import frozen

from mboxlist.entry import MailboxEntry
from mboxlist.names import PUBLIC
from store.errors import Problem, StoreError
from store.message import envelopes
from store.message.text import decode_words
from store.readable import Readable
from store.search.mailboxsearch import places
from store.store import Store
from store.tables.index import Rows
from store.tables.state import Mailbox
from store.values import Flag
from tools.cli.lookup import owner
from tools.cli.output import when
from tools.cli.progressbar import changing_bar
from tools.commands.messages import searchwords
from tools.exits import Failure

QUERY = ("search keys of IMAP, a word each: from, to, subject, text, header, since, before, larger, unseen, uid, not, "
         "or, ...; days as 2026-11-27 or 7d (so long ago), sizes as 2M; and mailbox NAME, with the wildcards * and %% "
         "of LIST, which may be repeated: any of them")
SYSTEM_FLAGS = {"\\" + str(flag.name).capitalize(): flag for flag in Flag}
SLICE = 500                 # messages whose envelopes are read together


@frozen(eq=False)
class Chosen:
    """Those of one mailbox, in ascending order of UID."""

    mailbox: Mailbox
    rows: Rows

    @property
    def entry(self) -> MailboxEntry:
        """The mailbox."""
        return self.mailbox.entry

    @property
    def uids(self) -> Any:
        """Those of the messages, an array."""
        return self.rows["uid"]


def add_choice(parser: argparse.ArgumentParser, *, least: str = "*") -> None:
    """The arguments by which messages are chosen; `least`: * if no word means all messages, + if one is needed."""
    add_owners(parser, "messages")
    parser.add_argument("--at", type=int, metavar="TIME", help="a Unix time: as it was then; 7d and the like count "
                        "back from there, and messages that came later are left out")
    parser.add_argument("query", metavar="KEY", nargs=least, help=QUERY)


def add_owners(parser: argparse.ArgumentParser, what: str) -> None:
    """The arguments by which users are chosen, whose mailboxes or messages are meant."""
    parser.add_argument("-u", "--user", action="append", default=[], metavar="USER",
                        help=f"whose {what}: a user or address, or {PUBLIC} for public mailboxes; can be repeated")
    parser.add_argument("--domain", metavar="DOMAIN", help="of all users of this domain")
    parser.add_argument("--all", action="store_true", help="of everybody, and the public mailboxes")
    parser.set_defaults(whose=what)


def entries(store: Store, arguments: Any) -> list[MailboxEntry]:
    """The mailboxes of those who are named. Raises Failure, StoreError NO_USER."""
    if bool(arguments.user) + bool(arguments.domain) + arguments.all != 1:
        raise Failure(f"whose {arguments.whose}? Give --user, --domain or --all")
    if arguments.user:
        owners = dict.fromkeys(owner(store, user) for user in arguments.user)
        return [entry for each in owners for entry in store.names(each)]
    ending = arguments.domain and f"@{arguments.domain.lower()}"
    default = store.settings.default_domain
    return sorted((entry for entry in store.mailboxes.all() if not ending or entry.name.owner and (
        entry.name.owner if "@" in entry.name.owner else f"{entry.name.owner}@{default}").lower().endswith(ending)),
        key=lambda entry: entry.name)


def chosen(store: Store, arguments: Any, problems: list[str]) -> Iterator[Chosen]:
    """The messages that the arguments mean, mailbox by mailbox. What cannot be read is told, and in `problems`.
    Raises Failure, StoreError NO_USER."""
    now = arguments.at or time.time()
    wanted = searchwords.read(arguments.query, now)
    mailboxes = [entry for entry in entries(store, arguments) if wanted.mailboxes(entry.name.path)]
    if not mailboxes:
        print("onecopy: there is no such mailbox (onecopy mailbox list shows what there is)", file=sys.stderr)
    with changing_bar() as tell:
        for done, entry in enumerate(mailboxes):
            tell(str(entry.name), done, len(mailboxes))
            try:
                mailbox = store.open_mailbox(entry)
                rows = mailbox.rows if wanted.whole else mailbox.rows[places(store, mailbox, wanted.key)]
                rows = rows[rows["saved"] <= now] if arguments.at else rows
            except StoreError as error:
                if error.problem is not Problem.NO_MAILBOX:         # it was deleted just now
                    refuse(problems, entry, error)
                continue
            if len(rows):
                yield Chosen(mailbox, rows)


def refuse(problems: list[str], entry: MailboxEntry, error: StoreError) -> None:
    """Say that something cannot be done in a mailbox; the others go on."""
    problems.append(str(entry.name))
    print(f"onecopy: {entry.name}: {error.public}", file=sys.stderr)


def contents(store: Store, found: Chosen) -> Iterator[bytes]:
    """Of each message what is the same in those that have the same octets, but for what relays have put in front."""
    return iter(found.rows["digest"].tolist())


def message_ids(store: Store, found: Chosen) -> Iterator[bytes]:
    """The Message-ID of each message; b"" for one that has none. Raises StoreError CORRUPT."""
    for begin in range(0, len(found.rows), SLICE):
        for cached in store.cached(found.entry, found.rows[begin:begin + SLICE]):
            yield envelopes.string(envelopes.split(cached.envelope)[envelopes.MESSAGE_ID]) or b""


def repeated(found: Chosen, what: Iterator[bytes]) -> Chosen | None:
    """The messages of which an earlier one has the same; None if there is none."""
    seen, places = set[bytes](), list[int]()
    for place, each in enumerate(what):
        if each and each in seen:
            places.append(place)
        seen.add(each)
    return Chosen(found.mailbox, found.rows[places]) if places else None


def shown(store: Readable, found: Chosen) -> Iterator[dict[str, Any]]:
    """What there is to say of each message, for a list. Raises StoreError CORRUPT."""
    for begin in range(0, len(found.rows), SLICE):
        rows = found.rows[begin:begin + SLICE]
        for row, cached in zip(rows, store.cached(found.entry, rows), strict=True):
            fields = envelopes.split(cached.envelope)
            yield {"user": found.entry.name.owner or PUBLIC, "mailbox": found.entry.name.path, "uid": int(row["uid"]),
                   "received": when(int(row["received"])), "size": int(row["size"]),
                   "from": envelopes.shown(envelopes.people(fields[envelopes.FROM])),
                   "subject": decode_words(envelopes.string(fields[envelopes.SUBJECT]) or b""),
                   "flags": flags(found.mailbox, row),
                   "message_id": (envelopes.string(fields[envelopes.MESSAGE_ID]) or b"").decode("utf-8", "replace")}


def flags(mailbox: Mailbox, row: Any) -> list[str]:
    """As FETCH has them."""
    system = [name for name, flag in SYSTEM_FLAGS.items() if int(row["flags"]) & flag]
    return [*system, *mailbox.keyword_names(int(row["keywords"]))]
