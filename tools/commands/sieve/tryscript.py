"""onecopy sieve test"""

from datetime import UTC, datetime
from typing import Any

from mboxlist.entry import MailboxEntry
from store.delivery.commit import Target
from store.filtering.disposition import Disposition
from store.filtering.filters import WAITING, Filters, Recipient
from store.filtering.sievesettings import Settings
from store.filtering.userscripts import find
from store.mailboxes import firstuse
from store.sieve.compiling import compile_script
from store.sieve.language import SIEVE
from store.sieve.receivedmail import ReceivedMail
from store.sieve.scriptoutcome import Outcome
from store.sieve.scriptrun import Node, run
from store.store import Store
from store.values import Flag
from tools.cli.invocation import Invocation, Parsers
from tools.cli.lookup import account, mailbox
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
    steps: list[dict[str, Any]] = []

    def noted(node: Node, said: bool | None) -> None:
        if said is not None or not node.block:
            steps.append({"line": node.place.line, "column": node.place.column, "name": node.name, "said": said})

    with invocation.store() as store, refusals_shown(invocation.arguments.user):
        octets, owner = _message(store, arguments), account(store, arguments.user)
        inbox = firstuse.inbox(store, owner)
        filters = Filters.of(store, invocation.config.settings("sieve", Settings))
        if arguments.script is None:
            trees = filters.trees(owner.user)
        else:
            trees = (compile_script(find(store.mailboxes, owner.user, arguments.script).text.decode(), SIEVE),)
        recipient = Recipient(Target(inbox), arguments.to or owner.user)
        message, now, wanted = ReceivedMail.of(octets), datetime.now(UTC).astimezone(), list[str]()

        def create(name: str, use: str) -> MailboxEntry | None:
            wanted.append(name)
            return None

        settings = filters.settings_of(owner.user)
        state = filters.state(message, filters.envelope(arguments.sender, recipient), inbox, now, settings, WAITING)
        state.noted = noted
        outcome = run(trees, state)
        disposer = filters.disposer(message, state.envelope, recipient.target, now, settings, 1)
        disposer.create, disposer.may_send, disposer.keep = create, lambda letters: True, lambda root, octets: ""
        found = _said(outcome, disposer.dispose(outcome), wanted)
    if arguments.json:
        print_json({"steps": steps, **found})
    else:
        for step in steps:
            said = "" if step["said"] is None else ": yes" if step["said"] else ": no"
            print(f"line {step['line']}, column {step['column']}: {step['name']}{said}")
        for name, value in found.items():
            for one in value if isinstance(value, list) else [value] if value else []:
                print(f"{name.replace('_', ' ')}: {one if isinstance(one, str) else _shown(one)}")
    return int(bool(outcome.failure))


def _said(outcome: Outcome, disposition: Disposition, wanted: list[str]) -> dict[str, Any]:
    """What would be done."""
    filed = [*(each for each in disposition.targets if each.filed),
             *(target for _, target in (*disposition.others, *disposition.copies))]
    answer = outcome.answer
    return {
        "filed": [{"mailbox": each.entry.name.path, "flags": _flags(each)} for each in filed],
        "would_be_made": wanted, "sent_on": [each.address for each in outcome.redirects],
        "refused": outcome.refused.reason if outcome.refused else "",
        "vacation": answer.reason if answer else "", "notified": [each.method for each in outcome.notices],
        "notes": [note for note in disposition.notes if not any(name in note for name in wanted)],
        "failure": outcome.failure}


def _flags(target: Target) -> list[str]:
    system = ["\\" + str(flag.name).capitalize() for flag in Flag if flag in target.flags.system]
    return [*system, *target.flags.keywords]


def _shown(filed: dict[str, Any]) -> str:
    flags = " ".join(filed["flags"])
    return f"{filed['mailbox']}{f' ({flags})' if flags else ''}"
