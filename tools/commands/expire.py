"""onecopy expire run|rules|set|last"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from mboxlist import privatefiles
from mboxlist.entry import MailboxEntry
from mboxlist.names import OTHERS, PUBLIC, MailboxName
from store.addresses import canonical_domain
from store.errors import Problem, StoreError
from store.expiry import rounds
from store.expiry.requested import expire_all
from store.expiry.rulebook import Applied, Rulebook, Source, domain_file, partition_file, set_file, set_mailbox
from store.expiry.rules import MAX_FILE
from store.expiry.work import Plan, Reported
from store.mailboxes import firstuse
from store.store import Store
from tools.cli.invocation import Invocation, Parsers
from tools.cli.lookup import account, mailbox_name
from tools.cli.output import print_facts, print_json, print_table, size, when
from tools.cli.progressbar import bar
from tools.commands.messages import clockoption
from tools.exits import Failure, no_partition

MANY = 20_000               # messages of one mailbox that go by one look at it


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("expire run", run, "have messages go as the rules say, now; exit status 1 if something could not be "
                  "done. The word run may be left out")
    made.add_argument("where", nargs="*", metavar="USER|MAILBOX",
                      help="a user, or a mailbox with its whole name: user/alice/Trash, public/news")
    made.add_argument("--partition", metavar="NAME", help="all mailboxes of a partition")
    made.add_argument("--all", action="store_true", help="all mailboxes")
    made.add_argument("--dry-run", action="store_true", help="only say what would go")
    made.add_argument("--rule", action="append", default=[], metavar="NAME",
                      help="only what rules of that name do; can be repeated")
    made.add_argument("--at", type=_days, default=0, metavar="DAYS",
                      help="with --dry-run: what would go so many days from now")
    clockoption.add_option(made)
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    made = parser("expire rules", show_rules, "list the rules, and where they come from; exit status 1 if a file of "
                  "rules has faults")
    made.add_argument("--check", action="store_true", help="only say what is wrong with them")
    made.add_argument("--for", dest="mailbox", metavar="MAILBOX",
                      help="which of them a mailbox has, and why: user/alice/Trash, public/news")
    made.add_argument("--json", action="store_true")
    made = parser("expire set", set_rules, "set the rules of a partition, a domain, a user or a mailbox")
    target = made.add_mutually_exclusive_group(required=True)
    target.add_argument("--partition", metavar="NAME")
    target.add_argument("--domain", metavar="DOMAIN", help="of all users of this domain")
    target.add_argument("--user", metavar="USER", help="for all mailboxes of the user")
    target.add_argument("--mailbox", metavar="MAILBOX", help="for that mailbox and all below it: user/alice/Lists")
    made.add_argument("file", nargs="?", metavar="FILE", help="a file with rules; -: standard input")
    made.add_argument("--none", action="store_true", help="have none")
    made.add_argument("--dry-run", action="store_true", help="only say what is wrong with them")
    made = parser("expire last", show_last, "show what the last round of the server has done, and when the next one is")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


def _days(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days")
    return int(text)


# Run

def run(invocation: Invocation) -> int:
    """onecopy expire run"""
    arguments = invocation.arguments
    if bool(arguments.where) + bool(arguments.all) + (arguments.partition is not None) != 1:
        raise Failure("which mailboxes? Give users and mailboxes, or --partition, or --all")
    if arguments.at and not arguments.dry_run:
        raise Failure("--at is for --dry-run")
    now = time.time()
    plan = Plan(now + 86400 * arguments.at, change=not arguments.dry_run, only=frozenset(arguments.rule),
                most=MANY)
    with invocation.store() as store:
        if not arguments.dry_run:
            clockoption.require(store, trusted=arguments.trust_clock)
        book = Rulebook(store)
        unknown = set(arguments.rule) - {rule.name for source in book.all() for rule in source.rules}
        if unknown:
            raise Failure(f"there is no rule {', '.join(sorted(unknown))}")
        entries = _entries(store, arguments)
        on_record = nullcontext() if arguments.dry_run else invocation.repeatable("expire run")
        with on_record, bar("mailboxes", lambda: sum(1 for _ in _entries(store, arguments))) as tell:
            record, reported = expire_all(store, entries, book, plan, tell)
    _print(arguments, record, reported)
    return int(bool(record.problems))


def _entries(store: Store, arguments: Any) -> Iterator[MailboxEntry]:
    """Raises Failure, StoreError."""
    if arguments.partition is not None and arguments.partition not in store.partitions:
        raise no_partition(arguments.partition, store.partitions)
    named = [entry for text in arguments.where for entry in _named(store, text)]
    if arguments.where:
        return iter({entry.id: entry for entry in named}.values())
    return (entry for entry in rounds.after(store, "") if arguments.partition in (None, entry.partition))


def _named(store: Store, text: str) -> list[MailboxEntry]:
    """The mailboxes of a user, or that one. Raises StoreError NO_USER, Failure."""
    if text == PUBLIC:
        return store.names("")
    if text.startswith((OTHERS, PUBLIC)):
        return [_entry(store, text)]
    return store.names(account(store, text).user)


def _entry(store: Store, text: str) -> MailboxEntry:
    """Raises StoreError NO_MAILBOX, Failure."""
    if not text.startswith((OTHERS, PUBLIC)):
        raise Failure(f"{text}: a mailbox is named as in user/alice/Trash or public/news")
    name = mailbox_name("", text)
    if name.owner:
        name = MailboxName(store.directory.user_id(name.owner), name.path)
    try:
        return store.entry(name)
    except StoreError as error:
        raise StoreError(error.problem, f"There is no mailbox {name}") from None


def _print(arguments: Any, record: rounds.Record, reported: list[Reported]) -> None:
    facts = rounds.summary(record)
    if arguments.json:
        facts["reported"] = [{"mailbox": item.mailbox, "uidvalidity": item.uidvalidity, "rule": item.rule,
                              "uids": list(item.uids)} for item in reported]
        print_json({"dry_run": arguments.dry_run, **facts})
        return
    for item in reported:
        print(rounds.shown(item))
    _print_counters(facts)
    for problem, times in record.problems.items():
        print(f"onecopy: {problem}" + (f" ({times} mailboxes)" if times > 1 else ""), file=sys.stderr)
    verb = "would go" if arguments.dry_run else "have gone, or were reported"
    print(f"{record.mailboxes} mailboxes; {facts['messages']} messages, {size(facts['octets'])} {verb}")


def _print_counters(facts: dict[str, Any]) -> None:
    if facts["rules"]:
        print_table([{**row, "oldest": when(row["oldest"]) if row["oldest"] else None} for row in facts["rules"]],
                    ("rule", "messages", "octets", "oldest"))


# Rules

def show_rules(invocation: Invocation) -> int:
    """onecopy expire rules"""
    arguments = invocation.arguments
    with invocation.store() as store:
        book = Rulebook(store)
        if arguments.mailbox is not None:
            return _show_for(store, book, arguments)
        sources = list(book.all())
    complaints = [*book.complaints, *(line for source in sources for line in source.complaints())]
    rows = [] if arguments.check else [_row(Applied(rule, source)) for source in sources for rule in source.rules]
    if arguments.json:
        print_json({"rules": rows, "faults": complaints, "excluded": sorted(book.excluded)})
    else:
        if rows:
            print_table(rows, ("rule", "about", "hits", "action", "exclusive", "from"))
        for line in complaints:
            print(line, file=sys.stderr)
        if arguments.check and not complaints:
            print(f"{sum(len(source.rules) for source in sources)} rules, no faults")
    return int(bool(complaints))


def _row(one: Applied) -> dict[str, object]:
    rule, source = one.rule, one.source
    return {"rule": one.key, "about": rule.about or "all", "hits": str(rule), "action": rule.does,
            "exclusive": rule.exclusive,
            "from": _origin(source) + (f":{rule.line}" if source.scope else "")}


def _origin(source: Source) -> str:
    return source.where if source.scope else "store.expire_trash, store.expire_junk"


def _show_for(store: Store, book: Rulebook, arguments: Any) -> int:
    entry = _entry(store, arguments.mailbox)
    choice = book.choice(entry)
    why = f"it matches {str(entry.name)}"
    rows: list[dict[str, object]] = [
        {**_row(one), "holds": True, "why": "it is exclusive" if one.rule.exclusive else why} for one in choice.rules]
    if choice.others:
        rows += [{**_row(one), "holds": False, "why": f"{choice.rules[0].key} is exclusive"} for one in choice.others]
    if arguments.json:
        print_json({"mailbox": str(entry.name), "special_use": entry.special_use, "nothing_because": choice.why_none,
                    "rules": rows})
    elif choice.why_none:
        print(f"nothing is expired in {entry.name}: {choice.why_none}")
    elif not rows:
        print(f"no rule is about {entry.name}: nothing is expired in it")
    else:
        print_table(rows, ("rule", "holds", "hits", "action", "why", "from"))
    return int(bool(choice.why_none) and not choice.exempt)


def set_rules(invocation: Invocation) -> int:
    """onecopy expire set"""
    arguments = invocation.arguments
    if (arguments.file is None) is not bool(arguments.none):
        raise Failure("give a file with rules, or --none")
    text = None if arguments.none else _read(arguments.file)
    with invocation.store() as store:
        try:
            _set(store, arguments, text)
        except StoreError as error:
            if error.problem is Problem.LIMIT:
                raise Failure(f"{arguments.file}: {error.public}", 1) from None
            raise
    return 0


def _set(store: Store, arguments: Any, text: str | None) -> None:
    change = not arguments.dry_run
    if arguments.user is not None or arguments.mailbox is not None:
        entry = (_entry(store, arguments.mailbox) if arguments.mailbox is not None
                 else firstuse.inbox(store, account(store, arguments.user)))
        set_mailbox(store, entry, text, change=change)
        return
    if arguments.partition is not None:
        if arguments.partition not in store.partitions:
            raise no_partition(arguments.partition, store.partitions)
        path = partition_file(store.partitions[arguments.partition])
    else:
        try:
            path = domain_file(store, canonical_domain(arguments.domain))
        except ValueError as error:
            raise Failure(f"{arguments.domain}: {error}") from None
    set_file(path, text, change=change)


def _read(name: str) -> str:
    """Raises Failure."""
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_FILE + 1)
        else:
            with privatefiles.open_named(name) as file:
                data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise Failure(f"{name} is larger than {MAX_FILE} octets")
        return data.decode()
    except OSError as error:
        raise Failure(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(f"{name} is not UTF-8") from None


# The last round

def show_last(invocation: Invocation) -> int:
    """onecopy expire last"""
    with invocation.store() as store:
        record, setting = rounds.load(store), store.settings.expire_schedule
    following = rounds.following(setting, record, time.time())
    facts = rounds.summary(record)
    times = {"began": when(record.began) if record.began else None,
             "ended": None if record.running or not record.ended else when(record.ended),
             "done_up_to": record.position or None, "schedule": setting,
             "next": when(following) if following is not None else None}
    if invocation.arguments.json:
        print_json({**times, **facts})
        return 0
    print_facts({**times, **{name: facts[name] for name in ("mailboxes", "messages", "octets")}})
    _print_counters(facts)
    for problem, count in record.problems.items():
        print(f"{problem}" + (f" ({count} times)" if count > 1 else ""))
    return 0

