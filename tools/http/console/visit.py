"""A request to the console by somebody who has logged in, and the values that say which pages there are."""

import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Protocol, cast

from attrs import define, evolve, field, frozen
from markupsafe import Markup
from twisted.internet.defer import FirstError, ensureDeferred, gatherResults

from store import offload
from store.store import Store
from store.values import Secret
from tools.http.api.operationcalls import OperationCalls
from tools.http.api.permissions import Asker
from tools.http.api.running import Run
from tools.http.apitokens import ROLES, USER
from tools.http.clientconfig import ClientConfig
from tools.http.console.consolesessions import WHOLE, Session, Sessions, form_token
from tools.http.console.forms import TOKEN, Form
from tools.http.console.rendering import HTML, OF_PAGES, rendered, url
from tools.http.settings import Settings
from tools.http.webpages import Answer, Asked, Refused

LOOK_TIME = 60.0            # seconds for which a page waits for what it shows
PROGRESS_AFTER = 2.0        # seconds after which a form that was sent leads to a page that shows its progress

#: What a page says after an action: a fixed sentence for a word, so that no address can have a page say anything else.
DONE = {
    "changed": "The change has been made.",
    "checked": "The store has been checked. What was found is below.",
    "whole": "It has been read, and is as it was written.",
    "ended": "It has been ended.",
    "done": "It has been done.",
    "made": "It has been made.",
    "moved": "It has been moved.",
    "removed": "It has been removed.",
    "restored": "It has been brought back.",
    "password": "The password has been changed. All sessions of this user end."}

#: Operations whose exit status 1 says that they have found something, and not that they have failed.
FINDING = frozenset({"check"})


class Changed(Refused):
    """Somebody else has changed what an action is about, since its page was shown."""

    def __init__(self, what: str, now: object) -> None:
        super().__init__(409, f"{what} has been changed by somebody else since this page was shown; it is now: {now}. "
                              "Nothing was done. Go back, load the page again, and decide again.")


@frozen
class Outcome:
    """What an operation has come to: exit status, its JSON (or text), and what it complained of."""

    exit: int
    result: Any
    errors: str


class Serving(Protocol):
    """What a visit needs of the console."""

    @property
    def store(self) -> Store:
        """Served."""

    @property
    def calls(self) -> OperationCalls:
        """Of the store."""

    @property
    def settings(self) -> Settings:
        """As they are now."""

    @property
    def mail(self) -> ClientConfig:
        """What mail programs are told."""

    @property
    def health(self) -> Callable[[], Coroutine[Any, Any, dict[str, Any]]]:
        """How each part of the server is."""

    @property
    def sections(self) -> "Sequence[Section]":
        """Of the navigation."""


@define(eq=False)
class Visit:
    """One request. `token` says who that is, with role and scope, as one of the API does; `cookie` is the secret of the
    browser."""

    console: Serving
    asked: Asked
    session: Session
    token: Asker
    cookie: Secret
    section: str                            # the path of its section
    form: Form = field(factory=lambda: Form(()))
    cookies: list[str] = field(factory=list, init=False)        # to be set

    @property
    def user(self) -> str:
        """Who that is."""
        return self.session.user

    @property
    def role(self) -> str:
        """In the console."""
        return self.token.role

    @property
    def query(self) -> "Query":
        """The words of the address; one that is missing raises Refused. `query.get(name)` gives "" instead."""
        return Query(self.asked.query)

    @property
    def own(self) -> Asker:
        """With the rights that users have on what is theirs."""
        return evolve(self.token, role=USER, scope=self.user)

    @property
    def sessions(self) -> Sessions:
        """Of everybody."""
        return Sessions(self.console.store.root)

    url = staticmethod(url)

    # What the API does

    def may(self, name: str, *, own: bool = False, **given: object) -> bool:
        """Whether the role may do that, as far as it does not depend on whom it is about."""
        return self.console.calls.may(self.own if own else self.token, name, given)

    async def travels(self) -> bool:
        """Whether this one may look into snapshots."""
        return await offload.run(self.console.store, "pages", self.console.calls.travels, self.own)

    async def ask(self, name: str, /, *, own: bool = False, **given: Any) -> Any:
        """What an operation that looks at something gives: its JSON. Raises Refused with what it complained of."""
        found = await self.attempt(name, own=own, **given)
        if found.exit and (found.exit == 2 or found.result in (None, "")):
            raise Refused(409, _for_people(found.errors) or "It could not be found out.")
        return found.result

    async def ask_all(self, *names: str, **given: Any) -> list[Any]:
        """What several operations give, which run side by side; the arguments are those of each. Raises Refused."""
        return await self.together(*(self.ask(name, **given) for name in names))

    async def together(self, *looks: Coroutine[Any, Any, Any]) -> list[Any]:
        """What several give that run side by side. Raises what the first of them raises."""
        try:
            return list(await gatherResults([ensureDeferred(each) for each in looks], consumeErrors=True))
        except FirstError as error:
            raise cast(Exception, error.subFailure.value) from None

    async def attempt(self, name: str, /, *, own: bool = False, stdin: str = "", **given: Any) -> Outcome:
        """What an operation has come to, whether it went well or not. Raises Refused where the role may not do it, and
        where it takes too long for a page."""
        run = await self._begin(name, given, stdin, LOOK_TIME, own=own)
        if run.exit is None:
            raise Refused(503, "That takes too long at present. Try again later.", [("Retry-After", "10")])
        return Outcome(run.exit, await offload.run(self.console.store, "pages", run.value), run.errors)

    async def act(self, name: str, given: Mapping[str, Any], stdin: str = "", *, back: str, done: str = "done",
                  own: bool = False) -> Answer:
        """Carry out what a form asks for: then show the page `back`, which says `done`, a word of DONE; or the page
        that shows the progress of what takes longer. Raises Refused with what was wrong."""
        assert done in DONE
        run = await self._begin(name, given, stdin, PROGRESS_AFTER, own=own)
        back += f"{'&' if '?' in back else '?'}done={done}"
        if run.exit is None:
            return self.redirect(url("progress", id=run.id, back=back))
        if run.exit and not (run.exit == 1 and name in FINDING):
            raise Refused(409, _for_people(run.errors) or "It was refused.")
        return self.redirect(back)

    async def _begin(self, name: str, given: Mapping[str, Any], stdin: str, wait: float, *, own: bool) -> Run:
        typed = {key: str(value) if type(value) is int else value for key, value in given.items()}
        return await self.console.calls.carry_out_as(self.own if own else self.token, name, typed, wait=wait,
                                                     stdin=stdin.encode(), patience=LOOK_TIME)

    # Answers

    def require_unchanged(self, what: str, seen: object, now: object, told: str = "") -> None:
        """Raises Changed where a form was filled in by somebody who saw something else than is there now; `told` says
        in words what that is."""
        if str(seen) != str(now):
            raise Changed(what, told or now or "nothing")

    def redirect(self, to: str) -> Answer:
        """After a form: have the browser show that page, with GET (RFC 9110 §15.4.4)."""
        return Answer(303, fields=[("Location", to), *OF_PAGES, *self.cookie_fields()])

    async def show(self, template: str, title: str, /, code: int = 200, **values: Any) -> Answer:
        """A page from a template, in the layout of all; `code` is the status of the answer."""
        return await offload.run(self.console.store, "pages", self._shown, template, title, code, values)

    def _shown(self, template: str, title: str, status: int, values: Mapping[str, Any]) -> Answer:
        csrf = Markup('<input type="hidden" name="{}" value="{}">').format(TOKEN, form_token(self.cookie))
        try:
            done = self.asked.query.get("done", "")
        except Refused:
            done = ""
        page = rendered(template, {
            "title": title, "current": self.section, "user": self.user, "role": self.role, "scope": self.token.scope,
            "sections": [each for each in self.console.sections if self.role in each.roles],
            "whole": self.session.state == WHOLE, "csrf": csrf, "may": self.may, "notice": DONE.get(done, ""),
            "now": time.time(), **values})
        return Answer(status, page, HTML, [*OF_PAGES, *self.cookie_fields()])

    def cookie_fields(self) -> list[tuple[str, str]]:
        """Have the browser keep the cookies that are to be set."""
        return [("Set-Cookie", each) for each in self.cookies]


def _for_people(errors: str) -> str:
    """What a command complains of, without its name before each line."""
    return "\n".join(line.removeprefix("onecopy: ") for line in errors.strip().splitlines())


@frozen
class Query(Mapping[str, str]):
    """The words of an address."""

    _words: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        if name not in self._words:
            raise Refused(400, f"The address of this page lacks {name}.")
        return self._words[name]

    def __contains__(self, name: object) -> bool:
        return name in self._words

    def __iter__(self) -> Any:
        return iter(self._words)

    def __len__(self) -> int:
        return len(self._words)

    def get(self, name: str, default: str = "") -> str:     # type: ignore[override]  # there is always text
        """The word, or that."""
        return self._words.get(name, default)


@frozen
class View:
    """What answers at a path below /console/: GET, or (with `post`) a form. `roles`: of whom, where not of all of the
    section; `state`: in which the session must be."""

    path: str
    answer: Callable[[Visit], Awaitable[Answer]]
    post: bool = False
    roles: Collection[str] = ROLES
    state: str = WHOLE


@frozen
class Section:
    """Pages that belong together; `path` and `title` are what the navigation has, "" for what is not in it."""

    path: str
    title: str
    roles: Collection[str]
    views: Sequence[View]
