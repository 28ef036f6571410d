"""What users have of their own: how much is used, who is logged in, the password; mailboxes, who may do what with them,
and what was deleted. Whatever the role is, these are the rights of a user on what is the user's."""

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


SECTION = Section("own", "Your account", ROLES, (
    View("own", _show), View("own/end", _end, post=True), View("own/password", _password, post=True)))
MAILBOXES = Section("own/mailboxes", "Your mailboxes", ROLES, (
    View("own/mailboxes", _mailboxes), View("own/mailbox", _mailbox),
    View("own/mailboxes/undelete", _undelete_mailbox, post=True), View("own/mailbox/undelete", _undelete, post=True),
    View("own/mailbox/share", _share, post=True), View("own/mailbox/unshare", _unshare, post=True)))
