"""The password is asked for again before somebody makes what outlives the session: an app password, a second factor.
Whoever finds a browser that is logged in knows it not.

It counts as a login: the session goes on as a new one, so it is asked for again only when FRESH seconds have passed.
"""

import time
from collections.abc import Sequence
from functools import partial

from store.errors import Problem, StoreError
from store.net.authentication import Authenticator
from store.net.callers import Caller
from store.values import Secret
from tools.http.console.consolelogin import LONGEST, SERVICE
from tools.http.console.consolesessions import WHOLE
from tools.http.console.forms import TOKEN
from tools.http.console.secondfactor import access_of, is_right, let_in, proved
from tools.http.console.visit import Visit
from tools.http.webpages import Answer, Refused

FRESH = 600                 # seconds after a login in which nobody is asked
PATH, TO = "access/confirm", "to"
PAGES = ("access/new", "access/newkey")     # to which PATH leads
_PASSWORD, _CODE = "confirm_password", "confirm_code"       # fields of the form
_NO_PART = frozenset((TOKEN, _PASSWORD, _CODE))


def is_fresh(visit: Visit) -> bool:
    """Whether the user has logged in lately. Who is about to show a second factor has."""
    return visit.session.state != WHOLE or time.time() - visit.session.created <= FRESH


async def confirmed(visit: Visit, path: str = "", to: str = "") -> Answer | None:
    """None where the user has logged in lately, or shows the password now; else the page that asks for it. Its form
    brings along what the form of this visit had, to `path`; or goes to PATH, which leads on to the page `to`.

    Raises Refused.
    """
    if is_fresh(visit):
        return None
    given = [(TO, to)] if to else [each for each in visit.form.fields if each[0] not in _NO_PART]
    if to or _PASSWORD not in visit.form:
        return await _page(visit, path or PATH, given, "")
    if not await _is_theirs(visit):
        return await _page(visit, path, given, "The password or the code is wrong.")
    await let_in(visit)
    return None


async def confirm(visit: Visit) -> Answer:
    """POST: the password was shown to go on to a page. Raises Refused."""
    to = visit.form[TO]
    if to not in PAGES:
        raise Refused(400, "The form cannot be read.")
    return await confirmed(visit, PATH) or visit.redirect(visit.url(to))


async def _page(visit: Visit, path: str, given: Sequence[tuple[str, str]], wrong: str) -> Answer:
    access = await access_of(visit)
    return await visit.show("confirm.html", "Confirm that it is you", 403 if wrong else 200, path=path, given=given,
                            wrong=wrong, minutes=FRESH // 60, longest=LONGEST, has_second=access.has_second_factor,
                            has_codes=access.totp is not None)


async def _is_theirs(visit: Visit) -> bool:
    """Whether the password is right, and where there is a second factor, the code. Raises Refused."""
    assert visit.asked.stream is not None
    password = Secret(visit.form[_PASSWORD].encode("utf-8", "surrogateescape"))
    try:
        if not 0 < len(password.reveal()) <= LONGEST:
            return False
        await Authenticator.of(visit.console.store).password(
            Caller(visit.asked.stream, SERVICE, passwords=True, anywhere=True), visit.user, password)
    except StoreError as error:
        if error.problem is Problem.BAD_LOGIN:
            return False
        status = {Problem.LIMIT: 429, Problem.UNAVAILABLE: 503}.get(error.problem, 403)
        raise Refused(status, f"{error.public}.") from None
    if not (await access_of(visit)).has_second_factor:
        return True
    return await is_right(visit, partial(proved, code=visit.form.get(_CODE)))
