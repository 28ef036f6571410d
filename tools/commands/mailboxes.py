"""onecopy mailbox create|list|info|rename|delete"""

from mboxlist.entry import MailboxEntry
from store.store import Store
from tools.commands import Invocation, Parsers, account, directory, each, mailbox, mailbox_name
from tools.errors import Failure
from tools.output import print_facts, print_json, print_table

SPECIAL_USES = ("archive", "drafts", "flagged", "junk", "sent", "trash")       # RFC 6154 §2


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("mailbox create", create, "make mailboxes")
    made.add_argument("user", metavar="USER")
    made.add_argument("mailboxes", nargs="+", metavar="MAILBOX", help="as the user's client names it: Archive/2026")
    made.add_argument("--special-use", choices=SPECIAL_USES)
    made = parser("mailbox list", list_mailboxes, "list the mailboxes of one user or of all")
    made.add_argument("user", metavar="USER", nargs="?")
    made.add_argument("--json", action="store_true")
    made = parser("mailbox info", info, "show one mailbox")
    made.add_argument("user", metavar="USER")
    made.add_argument("mailbox", metavar="MAILBOX")
    made.add_argument("--json", action="store_true")
    made = parser("mailbox rename", rename, "rename a mailbox and those below it")
    made.add_argument("user", metavar="USER")
    made.add_argument("mailbox", metavar="MAILBOX")
    made.add_argument("name", metavar="NEW-NAME")
    made = parser("mailbox delete", delete, "delete mailboxes and their messages; those below them stay")
    made.add_argument("user", metavar="USER")
    made.add_argument("mailboxes", nargs="+", metavar="MAILBOX")
    made.add_argument("--yes", action="store_true", help="do not ask")


def create(invocation: Invocation) -> int:
    """onecopy mailbox create"""
    arguments = invocation.arguments
    if arguments.special_use and len(arguments.mailboxes) > 1:
        raise Failure("--special-use is for one mailbox")
    use = "\\" + arguments.special_use.capitalize() if arguments.special_use else None
    with invocation.store() as store:
        user = account(store, arguments.user)
        names = {text: mailbox_name(user, text) for text in arguments.mailboxes}

        def make(text: str) -> None:
            store.create_mailbox(names[text], special_use=use)

        return each(arguments.mailboxes, make)


def list_mailboxes(invocation: Invocation) -> int:
    """onecopy mailbox list"""
    with invocation.store() as store:
        if invocation.arguments.user is not None:
            users = [account(store, invocation.arguments.user).user]
        else:
            users = [user.user for user in directory(store).all()]
        rows = [facts(store, entry) for user in users for entry in store.names(user)]
    if invocation.arguments.json:
        print_json(rows)
    else:
        print_table(rows, ("user", "mailbox", "messages", "unseen", "octets", "uidvalidity", "uidnext", "special_use"))
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
    """What is known of a mailbox without reading its messages."""
    state = store.status(entry)
    return {"user": entry.name.owner, "mailbox": entry.name.path, "id": entry.id, "partition": entry.partition,
            "messages": state.messages, "unseen": state.unseen, "deleted": state.deleted, "octets": state.octets,
            "uidvalidity": state.uidvalidity, "uidnext": state.uidnext, "highestmodseq": state.highestmodseq,
            "special_use": entry.special_use, "keywords": list(state.keywords), "quota_root": entry.quota_root}


def rename(invocation: Invocation) -> int:
    """onecopy mailbox rename"""
    arguments = invocation.arguments
    with invocation.store() as store:
        user = account(store, arguments.user)
        store.rename_mailbox(mailbox_name(user, arguments.mailbox), mailbox_name(user, arguments.name))
    return 0


def delete(invocation: Invocation) -> int:
    """onecopy mailbox delete"""
    arguments = invocation.arguments
    with invocation.store() as store:
        user = account(store, arguments.user)
        names = {text: mailbox_name(user, text) for text in arguments.mailboxes}
        invocation.confirm(f"Delete {', '.join(arguments.mailboxes)} of {user.user} with all messages?")
        return each(arguments.mailboxes, lambda text: store.delete_mailbox(names[text]))
