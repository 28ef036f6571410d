"""onecopy mailbox create|list|info|rename|delete; in the place of a user "public/" stands for public mailboxes"""

from collections.abc import Iterable, Iterator
from itertools import islice

from mboxlist.entry import MailboxEntry
from mboxlist.names import PUBLIC, SEPARATOR, MailboxName
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace
from store.store import Store
from store.tables.state import MailboxState, state_key
from tools.cli.invocation import Invocation, Parsers, each, number, typed
from tools.cli.lookup import mailbox, mailbox_name, owner
from tools.cli.output import print_facts, print_json, print_table, when
from tools.cli.progressbar import counted
from tools.exits import Failure

OWNER_HELP = "public/ for public mailboxes"
FIGURES = "messages", "unseen", "deleted", "octets", "uidnext", "highestmodseq", "keywords", "quota_root"
SPECIAL_USES = ("archive", "drafts", "flagged", "junk", "sent", "trash")       # RFC 6154 §2


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("mailbox create", create, "make mailboxes")
    made.add_argument("user", metavar="USER", help=OWNER_HELP)
    made.add_argument("mailboxes", nargs="+", metavar="MAILBOX", help="as the user's client names it: Archive/2026")
    made.add_argument("--special-use", choices=SPECIAL_USES, help="what clients are told that it is for")
    made = parser("mailbox list", list_mailboxes, "list the mailboxes of one user or of all")
    made.add_argument("user", metavar="USER", nargs="?", help=OWNER_HELP)
    made.add_argument("--deleted", action="store_true", help="those that were deleted and can be restored")
    made.add_argument("--most", type=typed(number), metavar="N", help="only the first N, in the order of their names")
    made.add_argument("--after", metavar="MAILBOX", help="with a USER: only those behind that one")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    made = parser("mailbox info", info, "show one mailbox")
    made.add_argument("user", metavar="USER", help=OWNER_HELP)
    made.add_argument("mailbox", metavar="MAILBOX")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    made = parser("mailbox rename", rename, "rename a mailbox and those below it")
    made.add_argument("user", metavar="USER", help=OWNER_HELP)
    made.add_argument("mailbox", metavar="MAILBOX")
    made.add_argument("name", metavar="NEW-NAME")
    made = parser("mailbox delete", delete, "delete mailboxes and their messages; those below them stay")
    made.add_argument("user", metavar="USER", help=OWNER_HELP)
    made.add_argument("mailboxes", nargs="+", metavar="MAILBOX")
    made.add_argument("--yes", action="store_true", help="do not ask")


def create(invocation: Invocation) -> int:
    """onecopy mailbox create"""
    arguments = invocation.arguments
    if arguments.special_use and len(arguments.mailboxes) > 1:
        raise Failure("--special-use is for one mailbox")
    use = "\\" + arguments.special_use.capitalize() if arguments.special_use else None
    with invocation.store() as store:
        user = owner(store, arguments.user)
        names = {text: _new_name(user, text) for text in arguments.mailboxes}

        def make(text: str) -> None:
            namespace.create_mailbox(store, names[text], special_use=use)

        return each(arguments.mailboxes, make)


def _new_name(user: str, text: str) -> MailboxName:
    """Of a mailbox that is to be made. Raises Failure."""
    if text.startswith("#"):            # RFC 3501 §5.1.2
        raise Failure(f"{text}: with # begin the names of name spaces, such as #snapshots/; choose another")
    return mailbox_name(user, text)


def list_mailboxes(invocation: Invocation) -> int:
    """onecopy mailbox list"""
    arguments = invocation.arguments
    if arguments.after is not None and arguments.user is None:
        raise Failure("whose? --after is for the mailboxes of one user")
    if arguments.deleted:
        return _list_deleted(invocation)
    with invocation.store() as store:
        if arguments.user is not None:
            users = [owner(store, arguments.user)]
        else:
            users = [*(user.user for user in store.directory.all()), ""]
        entries = (entry for user in users for entry in store.names(user))
        wanted = counted(islice(_behind(entries, arguments.after), arguments.most), "mailboxes")
        rows = [_facts_or_none(store, entry) for entry in wanted]
    if arguments.json:
        print_json(rows)
    else:
        print_table(rows, ("user", "mailbox", "messages", "unseen", "octets", "uidvalidity", "uidnext", "special_use"))
    return 0


def _facts_or_none(store: Store, entry: MailboxEntry) -> dict[str, object]:
    """As `facts`; of a mailbox whose partition is not here only what the list says."""
    try:
        return facts(store, entry)
    except StoreError as error:
        if error.problem is not Problem.UNAVAILABLE:
            raise
        return {**dict.fromkeys(FIGURES), "user": entry.name.owner or PUBLIC, "mailbox": entry.name.path,
                "id": entry.id, "mailbox_id": entry.object_id, "partition": entry.partition,
                "uidvalidity": entry.uidvalidity, "special_use": entry.special_use}


def _behind(entries: Iterable[MailboxEntry], after: str | None) -> Iterator[MailboxEntry]:
    """Those that stand behind the one of that path in the list, where what is below a mailbox follows it at once."""
    return (entry for entry in entries if after is None or entry.name.path.split(SEPARATOR) > after.split(SEPARATOR))


def _list_deleted(invocation: Invocation) -> int:
    """Also those of users who are no more: they can be restored when there is such a user again."""
    with invocation.store() as store:
        only = invocation.arguments.user
        user = None if only is None else "" if only == PUBLIC else store.directory.user_id(only)
        rows: list[dict[str, object]] = []
        for deleted, entry in counted(store.mailboxes.deleted.all(), "mailboxes"):
            if user in (None, entry.name.owner):
                here = store.partitions.get(entry.partition)
                states = None if here is None else here.states.get(state_key(entry.id))
                state = MailboxState.from_bytes(states, 0) if states is not None else None
                unknown = None if here is None else 0
                rows.append({"user": entry.name.owner or PUBLIC, "mailbox": entry.name.path, "id": entry.id,
                             "messages": state.messages if state is not None else unknown,
                             "octets": state.octets if state is not None else unknown, "deleted": when(deleted),
                             "kept_until": when(deleted + store.settings.purge_delay)})
    if invocation.arguments.json:
        print_json(rows)
    else:
        print_table(rows, ("user", "mailbox", "messages", "octets", "deleted", "kept_until"))
    return 0


def info(invocation: Invocation) -> int:
    """onecopy mailbox info"""
    with invocation.store() as store:
        found = facts(store, mailbox(store, invocation.arguments.user, invocation.arguments.mailbox))
    if invocation.arguments.json:
        print_json(found)
    else:
        print_facts(found)
    return 0


def facts(store: Store, entry: MailboxEntry) -> dict[str, object]:
    """The figures of a mailbox, without reading its messages."""
    state = store.status(entry)
    return {"user": entry.name.owner or PUBLIC, "mailbox": entry.name.path, "id": entry.id,
            "mailbox_id": entry.object_id, "partition": entry.partition, "messages": state.messages,
            "unseen": state.unseen, "deleted": state.deleted, "octets": state.octets,
            "uidvalidity": state.uidvalidity, "uidnext": state.uidnext, "highestmodseq": state.highestmodseq,
            "special_use": entry.special_use, "keywords": list(state.keywords), "quota_root": state.quota_root}


def rename(invocation: Invocation) -> int:
    """onecopy mailbox rename"""
    arguments = invocation.arguments
    with invocation.store() as store:
        user = owner(store, arguments.user)
        old, new = mailbox_name(user, arguments.mailbox), _new_name(user, arguments.name)
        invocation.finish_first(store, "mailbox rename", [str(old), str(new)])
        if store.mailboxes.find(old) is None and not any(store.mailboxes.below(old.owner, old.path)):
            raise StoreError(Problem.NO_MAILBOX, f"There is no mailbox {arguments.mailbox} of {user or PUBLIC}")
        uidnext = namespace.uidnext(store, old)
        with store.begun("mailbox rename", {"old": str(old), "new": str(new), "uidnext": uidnext},
                         holds=[str(old), str(new)]):
            namespace.rename_mailbox(store, old, new)
    return 0


def delete(invocation: Invocation) -> int:
    """onecopy mailbox delete"""
    arguments = invocation.arguments
    with invocation.store() as store:
        user = owner(store, arguments.user)
        names = {text: _new_name(user, text) for text in arguments.mailboxes}
        question = f"Delete {', '.join(arguments.mailboxes)} of {user or PUBLIC} with all messages?"
        invocation.confirm(question, final=False)
        full = [str(name) for name in names.values()]
        with invocation.begun(store, "mailbox delete", {"mailboxes": full}, holds=full) as operation:
            return each(arguments.mailboxes, lambda text: deletion.delete_mailbox(store, names[text]), operation)
