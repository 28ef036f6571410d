"""onecopy explain message|access|quota|login"""

import time
from collections.abc import Iterator
from typing import Any

import attrs

from store.accounts.loginsettings import Settings as LoginSettings
from store.errors import Problem, StoreError
from store.quota import roots
from store.store import Store
from store.users import decisions, explanation, loginfacts
from store.users.origins import know, origins
from store.values import duration
from tools.cli.controlclient import ask_one, is_up
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.lookup import account, mailbox
from tools.cli.output import print_facts, print_json, print_table, size, when
from tools.cli.progressbar import counted
from tools.commands.connections import address_or_local, span
from tools.commands.mailbox import OWNER_HELP
from tools.exits import Failure

STRANGER = "anyone"


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("explain message", message, "why a message was refused or put off, or where it has gone; exit status "
                                              "1 if nothing is known of it")
    made.add_argument("message_id", metavar="MESSAGE-ID", nargs="?",
                      help="its Message-ID, or its id in our replies to the relay and in the log; recipients are "
                           "refused before there is a message, and only found by --recipient or --sender")
    made.add_argument("--recipient", metavar="ADDRESS", help="only what was for that address, or that user")
    made.add_argument("--sender", metavar="ADDRESS", help="only what that address has sent")
    made.add_argument("--refused", action="store_true", help="only what was refused, for now or for good")
    made.add_argument("--since", type=typed(duration), metavar="TIME", default=None,
                      help="how far to look back, such as 2h or 3d (as far as the journal goes: store.journal_time)")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    made = parser("explain access", access, "which entries, groups and rules give a user each right on a mailbox, or "
                                            "deny it")
    made.add_argument("user", metavar="USER", help=f"a user or address; {STRANGER}: a sender who is no user")
    made.add_argument("owner", metavar="OWNER", help=OWNER_HELP)
    made.add_argument("mailbox", metavar="MAILBOX", help="as its owner's client writes it")
    made.add_argument("--json", action="store_true")
    made = parser("explain quota", quota, "why a user's mail is refused, or when it will be: limits and where they "
                                          "come from, what fills them, what helps; exit status 1 if mail is refused "
                                          "now")
    made.add_argument("user", metavar="USER", help="a user or address")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    made = parser("explain login", login, "why a user cannot log in, or had to wait: status, access rules, earlier "
                                          "failures, and which logins were refused; exit status 1 if nobody could log "
                                          "in as that user now (an outside directory: see onecopy directory test)")
    made.add_argument("user", metavar="USER", help="a user or address, or whatever the client says it is")
    made.add_argument("--from", metavar="ADDRESS", type=address_or_local, default="", dest="peer",
                      help="from where: then the rule that decides is named, and only refusals from there")
    made.add_argument("--since", type=typed(duration), metavar="TIME", default=None,
                      help="how far to look back, such as 2h or 3d (as far as the journal goes: store.journal_time)")
    made.add_argument("--json", action="store_true")


def _noted(notes: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return counted(notes, "notes of the delivery log")


# Messages

def message(invocation: Invocation) -> int:
    """onecopy explain message"""
    arguments = invocation.arguments
    if not (arguments.message_id or arguments.recipient or arguments.sender):
        raise Failure("which message? Give its Message-ID, --recipient or --sender")
    with invocation.store() as store:
        since = time.time() - arguments.since if arguments.since is not None else 0.0
        found = [_with_fates(store, each) for each in decisions.of_messages(
            store, arguments.message_id, arguments.recipient, arguments.sender, since, refused=arguments.refused,
            watched=_noted)]
    if arguments.json:
        print_json(found)
    else:
        for each in found:
            _print_decision(each)
        if not found:
            print("nothing is known of it: it has not come to this server, or longer ago than the journal goes back "
                  "(store.journal_time), or within the last second")
    return 0 if found else 1


def _with_fates(store: Store, found: dict[str, Any]) -> dict[str, Any]:
    """The note, with where each copy is now."""
    to = [{**one, "now": explanation.fate(store, found["mid"], one["mailbox_id"], one["uid"])}
          if "uid" in one and "mid" in found else one for one in found["to"]]
    return {**found, "time": when(found["time"]), "to": to}


def _print_decision(found: dict[str, Any]) -> None:
    what = f"message {found['message_id'] or '(no Message-ID)'}, {size(found['size'])}," if "size" in found else (
        "a recipient" if found["kind"] == "recipient" else "a message")
    print(f"{found['time']}  {what} from <{found['from']}> by {found['peer'] or 'unknown'}"
          + (f", id {found['id']}" if found.get("id") else ""))
    for one in found["to"]:
        where = f" -> {one['mailbox']}" if "mailbox" in one else ""
        uid = f", UID {one['uid']}" if "uid" in one else ""
        print(f"    <{one['recipient']}>{where}{uid}: {one['reply']} {_meaning(one)}")
        if "now" in one:
            print(f"        {one['now']}")


def _meaning(one: dict[str, Any]) -> str:
    reply, reason = one["reply"], one.get("why", "")
    words = {"2": "accepted", "4": "refused for now", "5": "refused for good", "N": "refused"}.get(reply[:1], "")
    return f"{words}: {reason}" if reason else words


# Access

def access(invocation: Invocation) -> int:
    """onecopy explain access"""
    arguments = invocation.arguments
    with invocation.store() as store:
        user = "" if arguments.user == STRANGER else account(store, arguments.user).user
        found = explanation.access(store, user, mailbox(store, arguments.owner, arguments.mailbox))
    if arguments.json:
        print_json({**attrs.asdict(found), "held": found.held})
        return 0
    print_facts({"user": found.user or "anyone who is no user", "groups": found.groups or None,
                 "mailbox": found.mailbox, "owner": found.owner or "public", "rights": found.held or "none",
                 "entries": [f"{name} {held}" for name, held in found.acl.items()] or None})
    print()
    print_table([{"right": each.right, "held": each.held, "meaning": each.meaning, "because": "; ".join(each.because)}
                 for each in found.rights], ("right", "held", "meaning", "because"))
    for note in found.notes:
        print(f"\n{note}")
    return 0


# Quota

def quota(invocation: Invocation) -> int:
    """onecopy explain quota"""
    arguments = invocation.arguments
    with invocation.store() as store:
        user = account(store, arguments.user).user
        found = explanation.quota(store, user)
        origin = _origin(invocation, store, user)
    refused = found.enforced and any(root.verdict.startswith("refused") for root in found.roots)
    if arguments.json:
        print_json(_quota_json(found, origin))
    else:
        _print_quota(found, origin)
    return 1 if refused else 0


def _origin(invocation: Invocation, store: Store, user: str) -> str:
    """Where the limit on octets comes from."""
    login = invocation.config.settings("login", LoginSettings)
    try:
        return origins(store, know(store, user), login, roots.quota(store, user))["octet_limit"]
    except StoreError as error:
        return f"the directory cannot be asked: {error.public}"


def _quota_json(found: explanation.Quota, origin: str) -> dict[str, Any]:
    return {"user": found.user, "roots": [_root_row(root, origin if root.root == found.user else "") for root in
                                          found.roots],
            "mailboxes": list(found.mailboxes),
            "largest": [{**row, "received": when(row["received"])} for row in found.largest],
            "expunged": {"octets": found.waiting[0], "messages": found.waiting[1]},
            "enforced": found.enforced, "advice": list(found.advice)}


def _root_row(root: explanation.Root, origin: str) -> dict[str, Any]:
    return {"root": root.root, "verdict": root.verdict, "per_cent": root.per_cent, "octets": root.use.octets,
            "charged": root.charged, "octet_limit": root.octet_limit, "messages": root.use.messages,
            "message_limit": root.message_limit,
            "origin": origin or ("default: store.default_quota" if root.default else "onecopy quota set"),
            "refused_since": root.refused_since and when(root.refused_since),
            "refused_for_good_from": root.refused_for_good and when(root.refused_for_good)}


def _print_quota(found: explanation.Quota, origin: str) -> None:
    for root in found.roots:
        row = _root_row(root, origin if root.root == found.user else "")
        most = f"limit {root.message_limit}" if root.message_limit else "no limit"
        limit = "no limit" if root.octet_limit is None else f"limit {size(root.octet_limit)}"
        facts = {"root": root.root, "mail": root.verdict if root.verdict.startswith("refused") else "is taken",
                 "used": f"{size(root.charged)}, {limit}", "per_cent": root.per_cent,
                 "messages": f"{root.use.messages}, {most}",
                 "limit_from": row["origin"], "first_refused": row["refused_since"],
                 "refused_for_good_from": row["refused_for_good_from"]}
        print_facts({name: value for name, value in facts.items() if value is not None})
        if root.verdict == "refused for now" and root.refused_for_good:
            print(f"what comes is refused with 452 4.2.2, and the relay tries again; in "
                  f"{span(root.refused_for_good - time.time())} it will be refused with 552 5.2.2 and go back")
        print()
    print_table([{**row, "octets": size(row["octets"])} for row in found.mailboxes if row["messages"]],
                ("mailbox", "root", "octets", "messages", "deleted"))
    if found.largest:
        print("\nthe largest messages:")
        print_table([{**row, "octets": size(row["octets"]), "received": when(row["received"]),
                      "uid": str(row["uid"])} for row in found.largest], ("mailbox", "uid", "octets", "received"))
    if found.waiting[1]:
        print(f"\n{found.waiting[1]} expunged messages of {size(found.waiting[0])} can be restored until the "
              "purge; they do not count")
    for line in found.advice:
        print(f"\n{line}")


# Logins

def login(invocation: Invocation) -> int:
    """onecopy explain login"""
    arguments, settings = invocation.arguments, invocation.config.settings("login", LoginSettings)
    with invocation.store() as store:
        user = store.directory.user_id(arguments.user)
        try:
            known = account(store, arguments.user)
            user = known.user
            found = loginfacts.login(store, settings, known, arguments.peer)
            problem = "" if user == store.directory.user_id(arguments.user) else (
                f"{arguments.user} is an alias of {user}: with an alias nobody can log in")
        except StoreError as error:
            found, problem = None, error.public
            if error.problem is not Problem.NO_USER:
                problem = f"the directory cannot be asked: {error.public}"
        since = time.time() - arguments.since if arguments.since is not None else 0.0
        noted = [{**each, "time": when(each["time"])} for each in decisions.of_logins(
            store, {user, store.directory.user_id(arguments.user)}, arguments.peer, since, _noted)]
    asked = ask_one(invocation.config.root, "keeper", "slow", user=user, peer=arguments.peer) if is_up(
        invocation.config.root) else None
    delay = asked["delay"] if asked else 0.0
    if arguments.json:
        print_json({"user": user, "problem": problem or None, "now": None if found is None else attrs.asdict(found),
                    "delay": delay, "refusals": noted})
    else:
        _print_login(user, problem, found, delay, noted)
    return 1 if problem or found is None or found.refused else 0


def _print_login(user: str, problem: str, found: loginfacts.Login | None, delay: float,
                 noted: list[dict[str, Any]]) -> None:
    print_facts({"user": user, "problem": problem or None, "status": found.status if found is not None else None})
    if found is not None:
        print()
        print_table([{"service": each.service, "without_tls": each.clear, "under_tls": each.tls,
                      "because": "; ".join(each.because)} for each in found.services],
                    ("service", "without_tls", "under_tls", "because"))
        for note in found.notes:
            print(f"\n{note}")
    if delay:
        print(f"\nthe next login waits for {delay:g} s: others have failed (login.slow_first); `onecopy logins` shows "
              "and clears them")
    print("\nrefused, or made to wait:" if noted else "\nno login is known to have been refused (store.journal_time; "
                                                      "what has just happened is noted within a second)")
    for each in noted:
        times = f", {each['times']} times" if each.get("times", 1) > 1 else ""
        print(f"{each['time']}  {each['service']} from {each['peer']}{times}: {each['why']}")
