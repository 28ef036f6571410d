"""The second step of a login: a code, a recovery code or a security key; who must have one of these and has none sets
it up first."""

from functools import partial

from store.accounts.apppasswords import passkeys
from store.accounts.apppasswords.accessrecord import Access
from tools.http.apitokens import ROLES
from tools.http.console.consolesessions import SECOND
from tools.http.console.pages import accesspages, keypages
from tools.http.console.rendering import BASE
from tools.http.console.secondfactor import access_of, is_right, key_proof, let_in, proved, wanted
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer

WRONG_KEY = "That was no security key of yours."


async def _ask(visit: Visit) -> Answer:
    access = await access_of(visit)
    return await _page(visit, access, "") if access.has_second_factor else await accesspages.new(visit)


async def _page(visit: Visit, access: Access, wrong: str) -> Answer:
    key = await wanted(visit, access, passkeys.wanted_to_log_in) if access.keys else ""
    return await visit.show("second.html", "Second factor", 403 if wrong else 200, wrong=wrong, key=key,
                            has_keys=bool(access.keys), has_codes=access.totp is not None)


async def _code(visit: Visit) -> Answer:
    if not await is_right(visit, partial(proved, code=visit.form["code"])):
        return await _page(visit, await access_of(visit), accesspages.WRONG)
    await let_in(visit)
    return visit.redirect(BASE)


async def _key(visit: Visit) -> Answer:
    if not await is_right(visit, await key_proof(visit)):
        return await _page(visit, await access_of(visit), WRONG_KEY)
    await let_in(visit)
    return visit.redirect(BASE)


SECTION = Section("second", "", ROLES, (
    View("second", _ask, state=SECOND), View("second/code", _code, post=True, state=SECOND),
    View("second/key", _key, post=True, state=SECOND), View("second/enrol", accesspages.enrol, post=True, state=SECOND),
    View("second/newkey", keypages.new, state=SECOND), View("second/newkey", keypages.add, post=True, state=SECOND)))
