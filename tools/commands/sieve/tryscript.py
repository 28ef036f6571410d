"""onecopy sieve test"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from store.delivery.commit import Target
from store.events.scriptevents import APPEND, COPY, FLAG
from store.filtering.disposition import Disposition
from store.filtering.eventscripts import names_of
from store.filtering.eventtrial import script_of, try_event
from store.filtering.filters import WAITING, Filters, Recipient
from store.filtering.sievesettings import Settings
from store.filtering.userscripts import find
from store.mailboxes import firstuse
from store.sieve.compiling import compile_script
from store.sieve.language import SIEVE
from store.sieve.receivedmail import ReceivedMail
from store.sieve.scriptoutcome import Outcome
from store.sieve.scriptrun import Node, Tree, run
from store.store import Store
from tools.cli.invocation import Invocation, Parsers
from tools.cli.lookup import account, flags_of, mailbox
from tools.cli.output import print_json
from tools.commands.sieve.keepscripts import given, refusals_shown
from tools.exits import Failure


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("sieve test", test, "say what a user's scripts would do with the message on standard input, test by "
                                      "test, and do nothing of it; exit status 1 if a script fails")
    made.add_argument("user", metavar="USER")
    made.add_argument("--script", metavar="NAME", help="one script of the user; default: all that run for its mail")
    made.add_argument("--from", dest="sender", metavar="ADDRESS", default="", help="the envelope's sender; default: <>")
    made.add_argument("--to", metavar="ADDRESS", help="the envelope's recipient; default: the user")
    made.add_argument("--mailbox", metavar="MAILBOX", default="INBOX", help="with --uid: where that message is; "
                      "default: INBOX")
    made.add_argument("--uid", type=int, metavar="UID", help="a message that the user has, and nothing on standard "
                      "input")
    made.add_argument("--event", choices=[cause.lower() for cause in (APPEND, COPY, FLAG)], help="with --uid: what the "
                      "script of that mailbox would do after such a command of IMAP, not after a delivery")
    made.add_argument("--flag", metavar="FLAG", action="append", default=[], help="with --event flag: a flag that was "
                      "changed: seen, answered, flagged, deleted, draft, or a keyword such as $Junk; can be repeated. "
                      "The message has them as it is now")
    made.add_argument("--json", action="store_true")


def _message(store: Store, arguments: Any) -> bytes:
    """The message that is meant. Raises Failure, StoreError."""
    if arguments.uid is None:
        octets = given()
        if not octets.strip():
            raise Failure("there is no message on standard input")
        return octets
    entry = mailbox(store, arguments.user, arguments.mailbox)
    found = store.open_mailbox(entry).row(arguments.uid)
    if found is None:
        raise Failure(f"there is no message {arguments.uid} in {arguments.mailbox}", 1)
    with store.open_message(entry, found) as file:
        return file.read(0, file.size)


def test(invocation: Invocation) -> int:
    """onecopy sieve test"""
    arguments = invocation.arguments
    if arguments.event is not None and arguments.uid is None:
        raise Failure("--event goes with --uid: an event is of a message that is there")
    if arguments.flag and arguments.event != FLAG.lower():
        raise Failure("--flag goes with --event flag")
    steps: list[dict[str, Any]] = []

    def noted(node: Node, said: bool | None) -> None:
        if said is not None or not node.block:
            steps.append({"line": node.place.line, "column": node.place.column, "name": node.name, "said": said})

    with invocation.store() as store, refusals_shown(invocation.arguments.user):
        filters = Filters.of(store, invocation.config.settings("sieve", Settings))
        found = (_delivered if arguments.event is None else _event)(store, filters, arguments, noted)
    if arguments.json:
        print_json({"steps": steps, **found})
    else:
        for step in steps:
            said = "" if step["said"] is None else ": yes" if step["said"] else ": no"
            print(f"line {step['line']}, column {step['column']}: {step['name']}{said}")
        for name, value in found.items():
            for one in value if isinstance(value, list) else [value] if value else []:
                print(f"{name.replace('_', ' ')}: {one if isinstance(one, str) else _shown(one)}")
    return int(bool(found["failure"]))


Noted = Callable[[Node, bool | None], None]


def _delivered(store: Store, filters: Filters, arguments: Any, noted: Noted) -> dict[str, Any]:
    """What would be done with mail that comes."""
    octets, owner = _message(store, arguments), account(store, arguments.user)
    inbox = firstuse.inbox(store, owner)
    trees = filters.trees(owner.user) if arguments.script is None else (_named(store, owner.user, arguments.script),)
    recipient = Recipient(Target(inbox), arguments.to or owner.user)
    message, now, wanted = ReceivedMail.of(octets), datetime.now(UTC).astimezone(), list[str]()
    settings = filters.settings_of(owner.user)
    state = filters.state(message, filters.envelope(arguments.sender, recipient), inbox, now, settings, WAITING)
    state.noted = noted
    outcome = run(trees, state)
    disposer = filters.disposer(message, state.envelope, recipient.target, now, settings, 1)
    disposer.only_tried(wanted)
    disposition = disposer.dispose(outcome)
    return {"filed": _filed(disposition), "would_be_made": wanted, **_said(outcome, disposition.notes, wanted)}


def _event(store: Store, filters: Filters, arguments: Any, noted: Noted) -> dict[str, Any]:
    """What would be done after a command of IMAP (RFC 6785)."""
    user = account(store, arguments.user).user
    entry, made = mailbox(store, user, arguments.mailbox), list[str]()
    tree = script_of(store, entry) if arguments.script is None else _named(store, user, arguments.script)
    flags = names_of(flags_of(arguments.flag))
    wanted = try_event(store, entry, arguments.uid, (arguments.event.upper(), flags), tree, noted, made)
    if wanted is None:
        raise Failure(f"there is no message {arguments.uid} in {arguments.mailbox}", 1)
    return {"flags_set": list(names_of(wanted.come)), "flags_removed": list(names_of(wanted.gone)),
            "filed": [{"mailbox": each.name.path, "flags": list(names_of(flags))} for each, flags in wanted.copies],
            "would_be_made": made, **_said(wanted.outcome, tuple(wanted.disposer.notes), made)}


def _named(store: Store, user: str, name: str) -> Tree:
    return compile_script(find(store.mailboxes, user, name).text.decode(), SIEVE)


def _filed(disposition: Disposition) -> list[dict[str, Any]]:
    targets = [*(each for each in disposition.targets if each.filed),
               *(target for _, target in (*disposition.others, *disposition.copies))]
    return [{"mailbox": each.entry.name.path, "flags": list(names_of(each.flags))} for each in targets]


def _said(outcome: Outcome, notes: tuple[str, ...], made: list[str]) -> dict[str, Any]:
    """What would leave, and what was wanted and cannot be had."""
    answer = outcome.answer
    return {
        "sent_on": [each.address for each in outcome.redirects],
        "refused": outcome.refused.reason if outcome.refused else "",
        "vacation": answer.reason if answer else "", "notified": [each.method for each in outcome.notices],
        "notes": [note for note in notes if not any(name in note for name in made)],
        "failure": outcome.failure}


def _shown(filed: dict[str, Any]) -> str:
    flags = " ".join(filed["flags"])
    return f"{filed['mailbox']}{f' ({flags})' if flags else ''}"
