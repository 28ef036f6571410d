"""App passwords and the second factor: what each user has of these, and the second step of a login."""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from store import hosting, offload
from store.accounts.apppasswords import apppassword, recoverycodes, totp
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.accounts.apppasswords.accessrecord import Access
from store.accounts.apppasswords.apppassword import SERVICES
from store.audit.sessionaudit import note
from store.errors import Problem, StoreError
from store.net.authentication import Authenticator
from store.net.callers import Caller
from tools.http.apitokens import ROLES
from tools.http.console.consolelogin import Doorway, cookie_field
from tools.http.console.consolesessions import SECOND, WHOLE
from tools.http.console.rendering import BASE
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer, Refused

log = logging.getLogger(__name__)

DAY = 86400
ISSUER = "onecopy"
WRONG = "The code is wrong, or has been used before."
#: What each service is called on the page.
NAMES = {"imap": "IMAP (reading mail)", "pop": "POP3 (fetching mail)", "smtp": "SMTP (sending mail)"}
Change = Callable[[Access], Access | None]


async def _changed(visit: Visit, work: Callable[[Access], Access]) -> Access:
    """What the user has, once it is what `work` makes of it, and all processes have heard of it. Raises Refused."""
    store = visit.console.store
    try:
        found = await offload.run(store, "pages", AccessFiles(store.root).change, visit.user, work)
    except StoreError as error:
        if error.problem in (Problem.BAD_NAME, Problem.LIMIT):
            raise Refused(400 if error.problem is Problem.BAD_NAME else 409, f"{error.public}.") from None
        raise
    store.directory.noticed(visit.user)
    return found


async def _note(visit: Visit, what: str, **facts: Any) -> None:
    await note(visit.console.store, "access", what, actor=visit.user, address=visit.asked.peer, service="http", **facts)
    log.info("%s: %s in the console, from %s", visit.user, what, visit.asked.peer)


async def _of(visit: Visit) -> Access:
    store = visit.console.store
    return await offload.run(store, "pages", AccessFiles(store.root).of, visit.user)


# What a user has

async def _show(visit: Visit) -> Answer:
    return await _page(visit, "")


async def _page(visit: Visit, wrong: str) -> Answer:
    return await visit.show("access.html", "Access", 403 if wrong else 200, access=await _of(visit), names=NAMES,
                            wrong=wrong, most=apppassword.LONGEST_NAME)


async def _make(visit: Visit) -> Answer:
    """An app password, which this page alone shows."""
    form, now = visit.form, time.time()
    days = form.get("days")
    if days and not (days.isascii() and days.isdigit() and len(days) < 6 and int(days)):
        raise Refused(400, "The time must be a number of days.")
    services = [each for each in form.many("service") if each in SERVICES]
    try:
        made, shown = apppassword.make(form["name"], services, read_only="read_only" in form, now=now,
                                       until=now + int(days) * DAY if days else None)
    except StoreError as error:
        raise Refused(400, f"{error.public}.") from None
    await _changed(visit, lambda before: before.with_password(made, now))
    await _note(visit, "app password made", id=made.id)
    return await visit.show("accessonce.html", "App password", codes=[shown], name=made.name, recovery=False)


async def _revoke(visit: Visit) -> Answer:
    id = visit.form["id"]
    await _changed(visit, lambda before: before.without_passwords([id]))
    await _note(visit, "app password revoked", id=id[:20])
    return visit.redirect(visit.url("access", done="removed"))


# Setting a second factor up

async def _new(visit: Visit) -> Answer:
    if (await _of(visit)).has_second_factor:
        raise Refused(409, "You have a second factor. Remove it first.")
    return await _enrolment(visit, totp.new_secret(), "")


async def _enrolment(visit: Visit, secret: str, wrong: str) -> Answer:
    back = "second/enrol" if visit.session.state == SECOND else "access/enrol"
    return await visit.show("accessenrol.html", "Second factor", 403 if wrong else 200, secret=secret, wrong=wrong,
                            groups=[secret[at:at + 4] for at in range(0, len(secret), 4)], back=back,
                            address=totp.address_of(secret, visit.user, ISSUER))


async def _enrol(visit: Visit) -> Answer:
    """The app shows the right code: from now on each login asks for one. Recovery codes are shown, once."""
    secret, shown = visit.form["secret"], list[str]()
    if not totp.is_secret(secret):
        raise Refused(400, "The form cannot be read.")

    def with_it(access: Access) -> Access | None:
        if access.has_second_factor:        # which must be shown, and removed, first
            return None
        found = totp.enrolled(access, secret, visit.form["code"], time.time())
        if found is None:
            return None
        found, shown[:] = recoverycodes.renewed(found)
        return found

    if not await _is_right(visit, with_it):
        return await _enrolment(visit, secret, WRONG)
    visit.console.store.directory.noticed(visit.user)
    await _note(visit, "second factor set up")
    await offload.run(visit.console.store, "pages", visit.sessions.end_of, visit.user, visit.session.id)
    if visit.session.state == SECOND:
        await _let_in(visit)
    return await visit.show("accessonce.html", "Recovery codes", codes=shown, name="", recovery=True)


async def _remove(visit: Visit) -> Answer:
    """Without a second factor from now on: who has none to show may not say so."""
    if not await _is_right(visit, lambda access: _without(_proved(access, visit.form["code"]))):
        return await _page(visit, WRONG)
    await _note(visit, "second factor removed")
    return visit.redirect(visit.url("access", done="removed"))


def _without(access: Access | None) -> Access | None:
    return None if access is None else access.without_second_factor()


def _proved(access: Access, code: str) -> Access | None:
    """After a code of the app, or a recovery code; None for a wrong one."""
    return totp.taken(access, code, time.time()) or recoverycodes.taken(access, code)


async def _is_right(visit: Visit, work: Change) -> bool:
    """Whether what somebody has shown is right: then `work` has been done. Wrong ones are slowed down.

    Raises Refused.
    """
    assert visit.asked.stream is not None
    store = visit.console.store

    def check() -> bool:
        found: list[Access | None] = []

        def once(before: Access) -> Access:
            found[:] = [work(before)]
            return found[0] or before

        AccessFiles(store.root).change(visit.user, once)
        return found[0] is not None

    caller = Caller(visit.asked.stream, "http", passwords=True, anywhere=True)
    try:
        await Authenticator.of(store).second_factor(caller, visit.user, check)
    except StoreError as error:
        if error.problem is Problem.LIMIT:
            raise Refused(429, f"{error.public}.") from None
        if error.problem is not Problem.BAD_LOGIN:
            raise
        return False
    return True


# The second step of a login

async def _ask(visit: Visit) -> Answer:
    access = await _of(visit)
    if not access.has_second_factor:            # it must be set up first
        return await _new(visit)
    return await _second(visit, "")


async def _second(visit: Visit, wrong: str) -> Answer:
    return await visit.show("second.html", "Second factor", 403 if wrong else 200, wrong=wrong)


async def _shown(visit: Visit) -> Answer:
    if not await _is_right(visit, partial(_proved, code=visit.form["code"])):
        return await _second(visit, WRONG)
    await _let_in(visit)
    return visit.redirect(BASE)


async def _let_in(visit: Visit) -> None:
    """The session goes on as another one, which is whole: what the browser showed before is worth nothing now."""
    store = visit.console.store
    account = await hosting.find(store, visit.user)
    if account is None or not visit.session.is_of(account):
        raise Refused(403, "The account has changed: log in again.")
    before = visit.session.id
    visit.session, visit.cookie = await offload.run(store, "pages", Doorway(store).begin, visit.asked,
                                                    visit.console.settings, account, WHOLE)
    await offload.run(store, "pages", visit.sessions.end, before)
    visit.cookies.append(cookie_field(store, visit.asked, visit.cookie))
    log.info("%s has shown a second factor, from %s", visit.user, visit.asked.peer)


SECTION = Section("access", "Access", ROLES, (
    View("access", _show), View("access/make", _make, post=True), View("access/revoke", _revoke, post=True),
    View("access/new", _new), View("access/enrol", _enrol, post=True), View("access/remove", _remove, post=True),
    View("second", _ask, state=SECOND), View("second/code", _shown, post=True, state=SECOND),
    View("second/enrol", _enrol, post=True, state=SECOND)))
