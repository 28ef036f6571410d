"""Passkeys and security keys (WebAuthn) as a second factor: registering one, and removing it."""

from attrs import evolve

from store.accounts.apppasswords import apppassword, passkeys, recoverycodes
from store.accounts.apppasswords.accessrecord import Access
from tools.http.console.consolesessions import SECOND
from tools.http.console.reauthentication import confirmed
from tools.http.console.secondfactor import (
    access_of,
    changed,
    end_others,
    let_in,
    note_change,
    wanted,
    where_and_challenge,
)
from tools.http.console.visit import View, Visit
from tools.http.webpages import Answer, Refused

NONE_MADE = "The browser has sent no new security key."


async def new(visit: Visit) -> Answer:
    """The page on which one is registered. Raises Refused."""
    access = await access_of(visit)
    _require_may(visit, access)
    return await confirmed(visit, to="access/newkey") or await _page(visit, access, "")


async def _page(visit: Visit, access: Access, wrong: str) -> Answer:
    key = await wanted(visit, access, passkeys.wanted_to_register)
    back = "second/newkey" if visit.session.state == SECOND else "access/newkey"
    return await visit.show("accesskey.html", "Security key", 403 if wrong else 200, key=key, wrong=wrong, back=back,
                            most=apppassword.LONGEST_NAME)


async def add(visit: Visit) -> Answer:
    """The browser has made one. With the first second factor come recovery codes. Raises Refused."""
    if (asked := await confirmed(visit, to="access/newkey")) is not None:       # the key belongs to the older session
        return asked
    name, sent, shown, made = visit.form["name"].strip(), visit.form["credential"], list[str](), list[str]()
    if not name or len(name) > apppassword.LONGEST_NAME or not name.isprintable():
        raise Refused(400, f"The name of a security key has 1 to {apppassword.LONGEST_NAME} printable characters.")
    about = await where_and_challenge(visit)

    def with_key(access: Access) -> Access:
        _require_may(visit, access)
        found = passkeys.registered(access, name, sent, **about)
        if found is None:
            return access
        made.append(found.keys[-1].id)
        if not access.has_second_factor:
            found, shown[:] = recoverycodes.renewed(found)
        return found

    access = await changed(visit, with_key)
    if not made:
        return await _page(visit, access, NONE_MADE)
    await note_change(visit, "security key added", id=made[0][:20])
    if shown:
        await end_others(visit)
    if visit.session.state == SECOND:
        await let_in(visit)
    if shown:
        return await visit.show("accessonce.html", "Recovery codes", codes=shown, name="", recovery=True)
    return visit.redirect(visit.url("access", done="made"))


async def _remove(visit: Visit) -> Answer:
    if (asked := await confirmed(visit, "access/key/remove")) is not None:
        return asked
    id = visit.form["id"]

    def without(access: Access) -> Access:
        if not any(each.id == id for each in access.keys):
            raise Refused(404, "There is no such security key, or not any more.")
        left = evolve(access, keys=tuple(each for each in access.keys if each.id != id))
        return left if left.has_second_factor else left.without_second_factor()

    await changed(visit, without)
    await note_change(visit, "security key removed", id=id[:20])
    return visit.redirect(visit.url("access", done="removed"))


def _require_may(visit: Visit, access: Access) -> None:
    """Raises Refused. Who has a second factor shows it before there is another one."""
    if visit.session.state == SECOND and access.has_second_factor:
        raise Refused(409, "You have a second factor. Show it first.")


VIEWS = (View("access/newkey", new), View("access/newkey", add, post=True),
         View("access/key/remove", _remove, post=True))
