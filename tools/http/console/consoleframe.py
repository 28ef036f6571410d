"""The front door of the console: which page answers, for whom, and what is shown when something goes wrong."""

import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from http import HTTPStatus
from typing import Any

from attrs import define, field

from store import hosting, offload
from store.errors import StoreError
from store.net.linestates import ConnectionLost, Stopping
from store.store import Store
from store.values import Secret
from tools.http.api.operationcalls import OperationCalls
from tools.http.api.permissions import Asker
from tools.http.apitokens import ROLES
from tools.http.clientconfig import ClientConfig
from tools.http.console.consolelogin import Doorway, cookie_field, is_secure, shown_cookie
from tools.http.console.consolesessions import SECOND, Session, Sessions
from tools.http.console.forms import Form, require_own
from tools.http.console.progresspage import PROGRESS
from tools.http.console.rendering import BASE, HTML, OF_PAGES, rendered, static_answer, url
from tools.http.console.visit import Section, View, Visit
from tools.http.settings import Settings
from tools.http.userroles import role_of
from tools.http.webpages import Answer, Asked, Pages, Refused

log = logging.getLogger(__name__)

#: What a status means, and what to do about it, for a person.
ADVICE = {
    400: "The address or the form is not complete. Go back and try again.",
    403: "Go back, or ask an administrator of this server.",
    404: "The page may have another address now. Use the navigation.",
    409: "Nothing else has been done. Go back, load the page again, and look at what is there now.",
    429: "Wait a little, and try again.",
    500: "The log of the server has more. Ask an administrator of this server.",
    503: "Wait a little, and try again."}


async def _log_out(visit: Visit) -> Answer:
    """End the session."""
    await offload.run(visit.console.store, "pages", visit.sessions.end, visit.session.id)
    log.info("%s has logged out of the console", visit.user)
    visit.cookies.append(cookie_field(visit.console.store, visit.asked, None))
    return visit.redirect(url("login", done="logged-out"))


#: What is in no navigation, for everybody.
OF_ALL = Section("", "", ROLES, (View("logout", _log_out, post=True),
                                 View("second/logout", _log_out, post=True, state=SECOND), *PROGRESS))


@define(eq=False)
class Console:
    """The console of a store, with these sections. `current` gives the settings as they are now; `mail` is what mail
    programs are told."""

    store: Store
    calls: OperationCalls
    sections: Sequence[Section]
    current: Callable[[], Settings]
    health: Callable[[], Coroutine[Any, Any, dict[str, Any]]]       # how each part is, as /health has it
    mail: ClientConfig = ClientConfig((), "")
    _doorway: Doorway = field(init=False)
    _views: dict[tuple[str, bool], tuple[Section, View]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._doorway = Doorway(self.store, self.calls)
        for section in (OF_ALL, *self.sections):
            for view in section.views:
                assert (view.path, view.post) not in self._views, view.path
                self._views[view.path, view.post] = section, view

    @property
    def settings(self) -> Settings:
        """As they are now."""
        return self.current()

    def add_pages(self, pages: Pages) -> None:
        """Have its pages."""
        pages.add(BASE, self._answer, "GET", "POST", early=self._early)
        pages.add(BASE.rstrip("/"), self._to_first)

    async def _early(self, asked: Asked) -> None:
        """Large forms are read only of who has logged in. Raises Refused."""
        try:
            asked.require_small()
        except Refused:
            try:
                known = await self._session(asked) is not None
            except StoreError:
                known = False
            if not known:
                raise

    async def _to_first(self, asked: Asked) -> Answer:
        return Answer(303, fields=[("Location", BASE)])

    async def _answer(self, asked: Asked) -> Answer:
        """Whatever happens, there is a page that says it."""
        try:
            return await self._find(asked)
        except (ConnectionLost, Stopping):
            raise
        except Refused as refused:
            return await self._problem(refused.status, refused.public, refused.fields)
        except StoreError as error:
            return await self._problem(503, error.public)
        except Exception:
            log.exception("a page of the console could not be made")
            return await self._problem(500, "The page could not be made.")

    async def _find(self, asked: Asked) -> Answer:
        if not self.settings.console:
            raise Refused(404, "There is no console on this server: http.console is off.")
        path = asked.path.removeprefix(BASE)
        if path.startswith("static/"):
            return await offload.run(self.store, "pages", static_answer, asked, path.removeprefix("static/"))
        post = asked.method == "POST"
        if path == "login":
            return await (self._doorway.log_in if post else self._doorway.show)(asked, self.settings)
        found = await self._session(asked)
        if found is None:
            back = {} if post or not path else {"next": asked.target}
            return Answer(303, fields=[("Location", url("login", **back)), *OF_PAGES])
        session, cookie, token = found
        section, view = self._views.get((path, post), (None, None))
        if section is None or view is None:
            raise Refused(405 if (path, not post) in self._views else 404, "There is no such page.")
        if session.state != view.state:
            return Answer(303, fields=[("Location", url("second") if session.state == SECOND else BASE), *OF_PAGES])
        if not path and token.role not in section.roles:
            return Answer(303, fields=[("Location", url(self._first(token.role))), *OF_PAGES])
        if token.role not in section.roles or token.role not in view.roles:
            raise Refused(403, f"This page is not for your role, {token.role}.")
        visit = Visit(self, asked, session, token, cookie, section.path)
        if post:
            visit.form = Form.of(asked)
            require_own(asked, visit.form, cookie)
        try:
            return await view.answer(visit)
        except Refused as refused:          # the browser may have another session than it came with
            raise Refused(refused.status, refused.public, [*refused.fields, *visit.cookie_fields()]) from refused

    def _first(self, role: str) -> str:
        """The path of the first page of that role."""
        return next(each.path for each in self.sections if each.title and role in each.roles)

    async def _session(self, asked: Asked) -> tuple[Session, Secret, Asker] | None:
        """Who that is, and what they may do. Raises StoreError UNAVAILABLE."""
        cookie, settings = shown_cookie(self.store, asked), self.settings
        if cookie is None:
            return None
        sessions = Sessions(self.store.root)
        found = await offload.run(self.store, "pages", sessions.find, cookie, time.time(), settings.session_idle)
        if found is None or found.secure and not is_secure(self.store, asked):
            return None
        account = await hosting.find(self.store, found.user)
        if account is None or not found.is_of(account):
            await offload.run(self.store, "pages", sessions.end, found.id)
            log.info("%s is logged in to the console no more: the account has changed", found.user)
            return None
        role, scope = role_of(settings, account.user, account.groups)
        return found, cookie, Asker("console", account.user, role, scope, asked.peer, asked.session)

    async def _problem(self, status: int, public: str, fields: Sequence[tuple[str, str]] = ()) -> Answer:
        phrase = HTTPStatus(status).phrase
        page = await offload.run(self.store, "pages", rendered, "problem.html", {
            "title": phrase, "public": public or phrase, "advice": ADVICE.get(status, ADVICE[400])})
        return Answer(status, page, HTML, [*OF_PAGES, *fields])

