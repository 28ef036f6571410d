"""onecopy audit"""

import argparse
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from store.audit import auditverification, trail
from store.audit.auditline import CHOICES, FOLDER, OWN, Head
from store.values import duration
from tools import commandaudit
from tools.cli.invocation import Invocation, Parsers, number, typed
from tools.cli.output import print_json, printable
from tools.cli.progressbar import counted
from tools.exits import Failure

FIRST = ("kind", "time", "what", "actor", "user", "before", "number")    # facts that are not shown by name
_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("audit verify", verify, "read the whole audit trail, and say which lines were changed, removed, "
                                          "inserted or moved; exit status 1 if some were")
    made.add_argument("--head", type=_head, metavar="NUMBER:DIGEST",
                      help="a head that was printed before and kept elsewhere; without one, who owns the store can "
                           "have written the trail anew")
    made.add_argument("--json", action="store_true")
    made = parser("audit show", show, "show who did what, the oldest first")
    made.add_argument("--user", metavar="USER", help="only what that user or administrator did, or what was done to "
                                                     "that user")
    made.add_argument("--kind", choices=(*CHOICES, OWN), action="append", help="only of that kind; can be repeated")
    made.add_argument("--since", type=_since, default=0.0, metavar="TIME",
                      help="only since then: a date and time in UTC (2026-11-24, 2026-11-24T13:00), or how long ago "
                           "(2d)")
    made.add_argument("--most", type=typed(number), metavar="N", help="only the newest N of these")
    made.add_argument("--before", type=typed(number), metavar="NUMBER", help="only lines with a smaller number")
    made.add_argument("--json", action="store_true")
    made = parser("audit head", head, "print the number and digest of the last line, to be kept elsewhere; exit status "
                                      "1 if there is none")
    made.add_argument("--json", action="store_true")
    made = parser("audit remove", remove, "remove files of the audit trail that are old enough; that is noted, and the "
                                          "rest can still be verified")
    made.add_argument("--before", type=_month, required=True, metavar="MONTH",
                      help="those of earlier months: 2026-01; the last file always stays")
    made.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--json", action="store_true")


def _head(text: str) -> Head:
    match = _HEAD.fullmatch(text)
    if not match:
        raise argparse.ArgumentTypeError("that is no head, as `onecopy audit head` prints it")
    return Head(int(match[1]), match[2])


def _month(text: str) -> str:
    if not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", text):
        raise argparse.ArgumentTypeError("that is no month (such as 2026-01)")
    return text


def _since(text: str) -> float:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return time.time() - typed(duration)(text)


def verify(invocation: Invocation) -> int:
    """onecopy audit verify"""
    found = auditverification.verify(invocation.config.root, invocation.arguments.head,
                                     watched=lambda lines: counted(lines, "lines"))
    if invocation.arguments.json:
        print_json({"lines": found.lines, "head": str(found.head), "cut": found.cut, "removed": found.removed,
                    "faults": [{"place": place, "what": what} for place, what in found.faults]})
        return int(bool(found.faults))
    for place, what in found.faults:
        print(f"{place}: {what}")
    print(f"{found.lines} lines, {'as they were written' if not found.faults else f'{len(found.faults)} faults'}" + (
        f"; lines 1 to {found.removed} were removed by command" if found.removed else "") + (
        f"; {found.cut} were cut off as they were written" if found.cut else ""))
    return int(bool(found.faults))


def show(invocation: Invocation) -> int:
    """onecopy audit show"""
    arguments = invocation.arguments
    trail_lines = counted(auditverification.read(invocation.config.root), "lines", printing=not arguments.json)
    found = (line.facts for line in trail_lines if line.facts is not None)
    lines = _wanted(found, arguments, str(invocation.config.values["store.default_domain"]))
    if arguments.most is not None:
        lines = iter(deque(lines, arguments.most))
    if arguments.json:
        print_json(list(lines))
        return 0
    for facts in lines:
        print(_line(facts))
    return 0


def _wanted(lines: Iterator[dict[str, Any]], arguments: Any, domain: str) -> Iterator[dict[str, Any]]:
    user = arguments.user.lower().removesuffix(f"@{domain}") if arguments.user else ""
    for facts in lines:
        names = [*(facts.get(name) for name in ("actor", "login", "user", "owner", "identifier")),
                 *(word for name in ("token", "account") for word in str(facts.get(name, "")).split())]
        if user and user not in [*names, *facts.get("arguments", ())]:
            continue
        if arguments.kind and facts.get("kind") not in arguments.kind:
            continue
        if arguments.since and _time(facts) < arguments.since:
            continue
        if arguments.before is not None and facts.get("number", 0) >= arguments.before:
            break
        yield facts


def _time(facts: Mapping[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(facts.get("time"))).timestamp()
    except ValueError:
        return 0.0


def _line(facts: Mapping[str, Any]) -> str:
    """For a person: when, of what kind, who (as whom), what, and all else by name."""
    who = str(facts.get("actor", "-")) + (f" as {facts['user']}" if facts.get("user") else "")
    more = " ".join(f"{name}={' '.join(map(str, value)) if isinstance(value, list) else value}"
                    for name, value in facts.items() if name not in FIRST)
    when = str(facts.get("time", ""))[:19]
    return printable(f"{when}Z {facts.get('kind', '-')} {who}: {facts.get('what', '-')} {more}".rstrip())


def head(invocation: Invocation) -> int:
    """onecopy audit head"""
    found = trail.head_of(invocation.config.root / FOLDER)
    if found is None or not found.number:
        if found is None and trail.has_begun(invocation.config.root):
            raise Failure("the audit trail is gone: `onecopy audit verify` says more", 1)
        raise Failure("nothing has been noted yet", 1)
    if invocation.arguments.json:
        print_json({"number": found.number, "digest": found.digest})
    else:
        print(found)
    return 0


def remove(invocation: Invocation) -> int:
    """onecopy audit remove"""
    arguments, root = invocation.arguments, invocation.config.root
    due = [path.name for path in trail.removable(root, arguments.before)]
    if due and not arguments.dry_run:
        invocation.confirm(f"Remove {len(due)} files of the audit trail?")
        due = trail.remove(root, arguments.before, commandaudit.who(commandaudit.running()))
    if arguments.json:
        print_json({"removed": due})
    else:
        print(f"{'would be removed' if arguments.dry_run else 'removed'}: {', '.join(due) or 'none'}")
    return 0
