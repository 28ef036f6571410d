"""What pages about the second factor share: whether what somebody shows is right, and going on after it."""

import json
import logging
import time
from collections.abc import Callable
from typing import Any

from store import hosting, offload
from store.accounts.apppasswords import passkeys, recoverycodes, totp
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.accounts.apppasswords.accessrecord import Access
from store.audit.sessionaudit import note
from store.errors import Problem, StoreError
from store.net.authentication import Authenticator
from store.net.callers import Caller
from store.users.accesschanges import change_access
from tools.http.browserorigins import Origin
from tools.http.console.consolelogin import TOO_MANY, Doorway, cookie_field, is_secure
from tools.http.console.consolesessions import WHOLE, TooMany
from tools.http.console.visit import Visit
from tools.http.webpages import Refused

log = logging.getLogger(__name__)

Change = Callable[[Access], Access | None]


async def access_of(visit: Visit) -> Access:
    """What the user has."""
    store = visit.console.store
    return await offload.run(store, "pages", AccessFiles(store.root).of, visit.user)


async def changed(visit: Visit, work: Callable[[Access], Access]) -> Access:
    """What the user has, once it is what `work` makes of it, and all processes have heard of it. Raises Refused."""
    store = visit.console.store
    require_writable(visit)
    try:
        found = await offload.run(store, "pages", change_access, store, visit.user, work)
    except StoreError as error:
        if error.problem in (Problem.BAD_NAME, Problem.LIMIT):
            raise Refused(400 if error.problem is Problem.BAD_NAME else 409, f"{error.public}.") from None
        raise
    return found


def require_writable(visit: Visit) -> None:
    """Raises Refused where the store is a copy for reading: what is changed there the machine that serves would never
    hear of, so that an app password which was revoked would still hold."""
    if visit.console.store.read_only:
        raise Refused(409, "Mail is only read here at present: nothing has been changed. Try again later, or where you "
                           "read and write mail.")


async def note_change(visit: Visit, what: str, **facts: Any) -> None:
    """In the audit trail, and in the log."""
    await note(visit.console.store, "access", what, actor=visit.user, address=visit.asked.peer, service="http", **facts)
    log.info("%s: %s in the console, from %s", visit.user, what, visit.asked.peer)


# What somebody shows

def proved(access: Access, code: str) -> Access | None:
    """After a code of the app, or a recovery code; None for a wrong one."""
    return totp.taken(access, code, time.time()) or recoverycodes.taken(access, code)


async def is_right(visit: Visit, work: Change) -> bool:
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

        change_access(store, visit.user, once)
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


# Security keys

def origin_of(visit: Visit) -> Origin | None:
    """Where the browser sees this page, by http.origin or by the request; None where it makes no security keys."""
    text = visit.console.settings.origin
    return Origin.parse(text) if text else Origin.asked_for(
        visit.asked.fields.get("host", ""), secure=is_secure(visit.console.store, visit.asked))


async def wanted(visit: Visit, access: Access, make: Callable[[Access, str, bytes], dict[str, Any]]) -> str:
    """What the script hands the browser, as JSON, with a new challenge; "" where the browser has no keys for this page.
    """
    origin = origin_of(visit)
    if origin is None:
        return ""
    challenge = await offload.run(visit.console.store, "pages", visit.sessions.give_challenge, visit.session,
                                  time.time())
    return json.dumps(make(access, origin.host, challenge))


async def where_and_challenge(visit: Visit) -> dict[str, Any]:
    """What the answer of a key must be for, as `passkeys` takes it. Raises Refused where the page was too old."""
    origin = origin_of(visit)
    given = await offload.run(visit.console.store, "pages", visit.sessions.take_challenge, visit.session, time.time())
    if origin is None or given is None:
        raise Refused(409, "The page was too old, or was shown once more since. Load it again, and use the key then.")
    return {"challenge": given, "rp_id": origin.host, "origin": str(origin), "now": time.time()}


async def key_proof(visit: Visit) -> Change:
    """That the key has signed what this page has asked for. Raises Refused."""
    about, sent = await where_and_challenge(visit), visit.form["credential"]
    return lambda access: passkeys.shown(access, sent, **about)


# Going on

async def let_in(visit: Visit) -> None:
    """The session goes on as another one, which is whole: what the browser showed before is worth nothing now.

    Raises Refused.
    """
    store = visit.console.store
    account = await hosting.find(store, visit.user)
    if account is None or not visit.session.is_of(account):
        raise Refused(403, "The account has changed: log in again.")
    before = visit.session.id
    doorway = Doorway(store, visit.console.calls)
    try:
        visit.session, visit.cookie = await offload.run(store, "pages", doorway.begin, visit.asked,
                                                        visit.console.settings, account, WHOLE)
    except TooMany:
        raise Refused(503, TOO_MANY) from None
    await offload.run(store, "pages", visit.sessions.end, before)
    visit.cookies.append(cookie_field(store, visit.asked, visit.cookie))
    log.info("%s has shown again who it is, from %s", visit.user, visit.asked.peer)


async def end_others(visit: Visit) -> None:
    """The other sessions of the user, which have shown less than is asked for now."""
    await offload.run(visit.console.store, "pages", visit.sessions.end_of, visit.user, visit.session.id)
