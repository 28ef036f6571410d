"""The page Access: app passwords and the second factor of each user."""

import time

from store.accounts.apppasswords import apppassword, recoverycodes, totp
from store.accounts.apppasswords.accessrecord import Access
from store.accounts.apppasswords.apppassword import SERVICES
from store.errors import StoreError
from store.values import Secret
from tools.cli.later import Later
from tools.http.apitokens import ROLES
from tools.http.clientconfig import apple, profile
from tools.http.console.consolesessions import SECOND
from tools.http.console.pages import keypages
from tools.http.console.reauthentication import PATH, confirm, confirmed
from tools.http.console.rendering import OF_PAGES
from tools.http.console.secondfactor import (
    access_of,
    changed,
    end_others,
    is_right,
    let_in,
    note_change,
    origin_of,
    proved,
    require_writable,
)
from tools.http.console.visit import Section, View, Visit
from tools.http.webpages import Answer, Refused

DAY = 86400
ISSUER = "onecopy"
WRONG = "The code is wrong, or has been used before."
#: What each service is called on the page.
NAMES = {"imap": "IMAP (reading mail)", "pop": "POP3 (fetching mail)", "smtp": "SMTP (sending mail)"}
_qr_code = Later("tools.http.console.qrcodes:qr_code")      # it loads segno


# What a user has

async def _show(visit: Visit) -> Answer:
    return await _page(visit, "")


async def _page(visit: Visit, wrong: str) -> Answer:
    return await visit.show("access.html", "Access", 403 if wrong else 200, access=await access_of(visit), names=NAMES,
                            wrong=wrong, most=apppassword.LONGEST_NAME, keys_here=origin_of(visit) is not None)


async def _make(visit: Visit) -> Answer:
    """An app password, which this page alone shows."""
    require_writable(visit)
    if (asked := await confirmed(visit, "access/make")) is not None:
        return asked
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
    await changed(visit, lambda before: before.with_password(made, now))
    await note_change(visit, "app password made", id=made.id)
    address = visit.console.mail.address_of(visit.user) if "imap" in made.services else ""
    return await visit.show("accessonce.html", "App password", codes=[shown], name=made.name, recovery=False,
                            address=address)


async def _profile(visit: Visit) -> Answer:
    """POST: a profile for Apple's devices with an app password that was made just now, which the form brings along."""
    password, mail = Secret(visit.form["password"].encode("utf-8", "surrogateescape")), visit.console.mail
    digest, now = apppassword.digest_of(password), time.time()
    found = next((each for each in (await access_of(visit)).passwords
                  if digest is not None and each.fits(digest) and each.holds(now) and "imap" in each.services), None)
    address = mail.address_of(visit.user)
    if found is None or not address:
        raise Refused(400, "This is no app password of yours for IMAP.")
    return profile(apple(mail.found, address, password.reveal().decode(), sends="smtp" in found.services), OF_PAGES)


async def _revoke(visit: Visit) -> Answer:
    id = visit.form["id"]

    def without(before: Access) -> Access:
        after = before.without_passwords([id])
        if after == before:
            raise Refused(404, "There is no such app password, or not any more.")
        return after

    await changed(visit, without)
    await note_change(visit, "app password revoked", id=id[:20])
    return visit.redirect(visit.url("access", done="removed"))


# Setting a second factor up

async def new(visit: Visit) -> Answer:
    """The page on which an authenticator app is set up. Raises Refused."""
    access = await access_of(visit)
    if not _may(visit, access):
        raise Refused(409, "You have a second factor. Remove it first.")
    return await confirmed(visit, to="access/new") or await _enrolment(visit, totp.new_secret(), "")


async def _enrolment(visit: Visit, secret: str, wrong: str) -> Answer:
    base, address = "second" if visit.session.state == SECOND else "access", totp.address_of(secret, visit.user, ISSUER)
    return await visit.show("accessenrol.html", "Second factor", 403 if wrong else 200, secret=secret, wrong=wrong,
                            back=f"{base}/enrol", newkey=f"{base}/newkey", keys_here=origin_of(visit) is not None,
                            groups=[secret[at:at + 4] for at in range(0, len(secret), 4)],
                            address=address, drawn=_qr_code(address, "QR code of the key"))


async def enrol(visit: Visit) -> Answer:
    """The app shows the right code: from now on each login asks for one. Recovery codes are shown, once.

    Raises Refused.
    """
    secret, shown = visit.form["secret"], list[str]()
    if not totp.is_secret(secret):
        raise Refused(400, "The form cannot be read.")
    require_writable(visit)
    if (asked := await confirmed(visit, "access/enrol")) is not None:
        return asked

    def with_it(access: Access) -> Access | None:
        found = totp.enrolled(access, secret, visit.form["code"], time.time()) if _may(visit, access) else None
        if found is not None and not access.has_second_factor:
            found, shown[:] = recoverycodes.renewed(found)
        return found

    if not await is_right(visit, with_it):
        return await _enrolment(visit, secret, WRONG)
    visit.console.store.directory.noticed(visit.user)
    await note_change(visit, "second factor set up")
    if shown:
        await end_others(visit)
    if visit.session.state == SECOND:
        await let_in(visit)
    if not shown:                           # there is a security key, with which they came
        return visit.redirect(visit.url("access", done="made"))
    return await visit.show("accessonce.html", "Recovery codes", codes=shown, name="", recovery=True)


def _may(visit: Visit, access: Access) -> bool:
    """Whether an app may be set up: who has a second factor shows it first."""
    return access.totp is None and not (visit.session.state == SECOND and access.has_second_factor)


async def _remove(visit: Visit) -> Answer:
    """Without a second factor from now on: who has none to show may not say so."""
    require_writable(visit)
    if not await is_right(visit, lambda access: _without(proved(access, visit.form["code"]))):
        return await _page(visit, WRONG)
    await note_change(visit, "second factor removed")
    return visit.redirect(visit.url("access", done="removed"))


def _without(access: Access | None) -> Access | None:
    return None if access is None else access.without_second_factor()


SECTION = Section("access", "Access", ROLES, (
    View("access", _show), View("access/make", _make, post=True), View("access/revoke", _revoke, post=True),
    View("access/profile", _profile, post=True), View(PATH, confirm, post=True),
    View("access/new", new), View("access/enrol", enrol, post=True), View("access/remove", _remove, post=True),
    *keypages.VIEWS))
