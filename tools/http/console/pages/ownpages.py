"""What users have of their own: how much is used, who is logged in, the password; mailboxes, who may do what with them,
and what was deleted; and what is answered while they are away. Whatever the role is, these are the rights of a user on
what is the user's."""

import json
from datetime import date
from typing import Any

from attrs import evolve

from store.accounts.builtin import BuiltinDirectory
from store.errors import Problem, StoreError
from store.net.authentication import Authenticator
from store.net.callers import Caller
from store.values import Secret
from tools.http.api.permissions import OWNER
from tools.http.apitokens import ROLES
from tools.http.console.consolelogin import LONGEST, SERVICE
from tools.http.console.pages.userpages import connections, new_password
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer, Refused

_ROWS = 200                 # mailboxes of a page
AWAY = "out of office"      # the script that the console writes
ANSWER_DAYS = 7             # in which a sender gets one answer at most
_MADE = "# made by the console: "
#: What somebody can be granted, in words, and the rights of RFC 4314 §4 that it takes.
GRANTS = {"read": ("read", "lrs"), "change": ("read, mark, add and delete messages", "lrswite"),
          "all": ("everything but granting", "lrswipkxte"), "manage": ("everything, also granting", "lrswipkxtea")}


async def _show(visit: Visit) -> Answer:
    """GET own: the account."""
    account, sessions = await visit.together(visit.ask("user show", own=True, user=visit.user),
                                             connections(visit, visit.user, own=True))
    return await visit.show("own.html", "Your account", account=account, sessions=sessions,
                            has_password=_is_ours(visit))


def _is_ours(visit: Visit) -> bool:
    """Whether the password is one that we can change: not where another directory has it."""
    return type(visit.console.store.directory) is BuiltinDirectory


async def _end(visit: Visit) -> Answer:
    """POST: one of the sessions, or all."""
    ids = {"ids": [visit.form["session"]]} if visit.form.get("session") else {}
    return await visit.act("connections", {"user": visit.user, "end": True, **ids}, back=visit.url("own"), done="ended",
                           own=True)


async def _password(visit: Visit) -> Answer:
    """POST: whoever finds an open browser does not know the password, so it is asked for."""
    if not _is_ours(visit):
        raise Refused(403, "Your password is kept by another directory: change it there.")
    new, asked = new_password(visit), visit.asked
    password = Secret(visit.form["password"].encode("utf-8", "surrogateescape"))
    assert asked.stream is not None
    try:
        if not 0 < len(password.reveal()) <= LONGEST:
            raise StoreError(Problem.BAD_LOGIN)
        await Authenticator.of(visit.console.store).password(
            Caller(asked.stream, SERVICE, passwords=True, anywhere=True), visit.user, password)
    except StoreError as error:
        raise Refused(403, "The present password is wrong. Nothing has been changed."
                      if error.problem is Problem.BAD_LOGIN else f"{error.public}. Nothing has been changed.") from None
    visit.token = evolve(visit.token, role=OWNER, scope=visit.user)
    return await visit.act("user set", {"user": visit.user, "password_stdin": True}, new,
                           back=visit.url("login"), done="password")


# Mailboxes

async def _mailboxes(visit: Visit) -> Answer:
    """GET own/mailboxes?after=..: a page of them, and those that were deleted."""
    after = visit.query.get("after")
    given: dict[str, Any] = {"user": visit.user, "most": _ROWS + 1, **({"after": after} if after else {})}
    rows, deleted = await visit.together(
        visit.ask("mailbox list", own=True, **given),
        visit.ask("mailbox list", own=True, user=visit.user, deleted=True))
    return await visit.show("own_mailboxes.html", "Your mailboxes", rows=rows[:_ROWS], more=len(rows) > _ROWS,
                            after=after, deleted=deleted, travels=await visit.travels())


async def _mailbox(visit: Visit) -> Answer:
    """GET own/mailbox?name=..: who may do what, and messages that can be brought back."""
    about = {"user": visit.user, "mailbox": visit.query["name"]}
    facts, rights, expunged = await visit.together(
        visit.ask("mailbox info", own=True, **about), visit.ask("mailbox acl", own=True, **about),
        visit.ask("undelete", own=True, list=True, **about))
    return await visit.show("own_mailbox.html", facts["mailbox"], mailbox=facts, rights=rights,
                            expunged=expunged[-_ROWS:], hidden=max(0, len(expunged) - _ROWS), grants=GRANTS)


async def _undelete_mailbox(visit: Visit) -> Answer:
    name, new = visit.query["name"], visit.form.get("as").strip()
    return await visit.act("mailbox undelete", {"user": visit.user, "mailbox": name, **({"as": new} if new else {})},
                           back=visit.url("own/mailboxes"), done="restored", own=True)


async def _undelete(visit: Visit) -> Answer:
    """POST: the messages that were ticked."""
    uids = visit.form.many("uid")
    if not uids:
        raise Refused(400, "No message was chosen.")
    name = visit.query["name"]
    return await visit.act("undelete", {"user": visit.user, "mailbox": name, "uid": uids},
                           back=visit.url("own/mailbox", name=name), done="restored", own=True)


async def _share(visit: Visit) -> Answer:
    """POST: grant somebody something, in the place of what was granted before."""
    name, grant, who = visit.query["name"], visit.form["grant"], visit.form["who"].strip()
    if grant not in GRANTS or not who:
        raise Refused(400, "Whom is it to be shared with, and what may they do?")
    return await visit.act("mailbox acl", {"user": visit.user, "mailbox": name, "entries": [who, GRANTS[grant][1]]},
                           back=visit.url("own/mailbox", name=name), done="changed", own=True)


async def _unshare(visit: Visit) -> Answer:
    name = visit.query["name"]
    return await visit.act("mailbox acl", {"user": visit.user, "mailbox": name, "remove": visit.query["who"]},
                           back=visit.url("own/mailbox", name=name), done="changed", own=True)


# Out of office

def vacation_script(facts: dict[str, str]) -> str:
    """A Sieve script (RFC 5230) that answers with `subject` and `text`, until the day `last` if there is one. Its first
    line has these facts, so that the page can show them again."""
    answer = f'vacation :days {ANSWER_DAYS} :subject {_quoted(facts["subject"])} {_quoted(facts["text"])};'
    until = f'if currentdate :value "le" "date" {_quoted(facts["last"])} {{ {answer} }}' if facts["last"] else answer
    return f'{_MADE}{json.dumps(facts)}\r\nrequire ["vacation", "date", "relational"];\r\n{until}\r\n'


def _quoted(text: str) -> str:
    """RFC 5228 §2.4.2."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _facts_in(script: str) -> dict[str, str]:
    """What the first line says; nothing of a script that was made elsewhere."""
    first = script.partition("\n")[0].strip()
    try:
        found = json.loads(first.removeprefix(_MADE)) if first.startswith(_MADE) else {}
        return {name: str(found[name]) for name in ("subject", "text", "last")} if found else {}
    except (ValueError, TypeError, KeyError):
        return {}


async def _other_script(visit: Visit) -> tuple[str, bool]:
    """The active script, if it is another one than ours, and whether ours is there."""
    rows = await visit.ask("sieve list", own=True, user=visit.user)
    return (next((str(row["name"]) for row in rows if row["active"] and row["name"] != AWAY), ""),
            any(row["name"] == AWAY for row in rows))


async def _away(visit: Visit) -> Answer:
    """GET own/away."""
    other, there = await _other_script(visit)
    kept: dict[str, Any] = {"active": False, "script": ""}
    if there:
        kept = await visit.ask("sieve get", own=True, user=visit.user, name=AWAY)
    facts = _facts_in(kept["script"])
    return await visit.show("own_away.html", "Out of office", other=other, active=kept["active"] and bool(facts),
                            days=ANSWER_DAYS, facts=facts or {"subject": "Out of office", "text": "", "last": ""})


async def _leave(visit: Visit) -> Answer:
    """POST: from now on senders get that answer."""
    facts = {name: visit.form.get(name).strip() for name in ("subject", "text", "last")}
    if not facts["subject"] or not facts["text"]:
        raise Refused(400, "An answer has a subject and a text.")
    try:
        facts["last"] = facts["last"] and date.fromisoformat(facts["last"]).isoformat()
    except ValueError:
        raise Refused(400, "The last day is a day such as 2026-12-24.") from None
    other, _ = await _other_script(visit)
    if other:
        raise Refused(409, f"Your script {other} is active, and only one can be. Nothing has been changed.")
    return await visit.act("sieve put", {"user": visit.user, "name": AWAY, "activate": True}, vacation_script(facts),
                           back=visit.url("own/away"), done="changed", own=True)


async def _return(visit: Visit) -> Answer:
    """POST: nobody gets an answer any more; its text is kept."""
    other, _ = await _other_script(visit)
    if other:                               # it has been made active meanwhile, elsewhere
        return visit.redirect(visit.url("own/away"))
    return await visit.act("sieve activate", {"user": visit.user}, back=visit.url("own/away"), done="changed", own=True)


SECTION = Section("own", "Your account", ROLES, (
    View("own", _show), View("own/end", _end, post=True), View("own/password", _password, post=True)))
MAILBOXES = Section("own/mailboxes", "Your mailboxes", ROLES, (
    View("own/mailboxes", _mailboxes), View("own/mailbox", _mailbox),
    View("own/mailboxes/undelete", _undelete_mailbox, post=True), View("own/mailbox/undelete", _undelete, post=True),
    View("own/mailbox/share", _share, post=True), View("own/mailbox/unshare", _unshare, post=True)))
AWAY_SECTION = Section("own/away", "Out of office", ROLES, (
    View("own/away", _away), View("own/away/leave", _leave, post=True), View("own/away/return", _return, post=True)))
