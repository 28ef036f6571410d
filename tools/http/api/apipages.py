"""The pages of the API: who asks, whether that role may, and what became of it."""

import logging
import math
import time
from collections.abc import Callable
from typing import Any

from attrs import define, field

from store import VERSION, offload
from store.accounts import refusallines
from store.errors import Problem, StoreError
from store.net.authentication import Authenticator
from store.net.limits import is_this_host
from store.store import Store
from store.values import Secret
from tools.cli.options import Config
from tools.http.api.operationlist import STDIN, Operation, openapi, operations
from tools.http.api.permissions import READING, allowed, within_scope
from tools.http.api.running import Run, Runs
from tools.http.apitokens import Token, Tokens
from tools.http.settings import Settings
from tools.http.userroles import superiors
from tools.http.webpages import Answer, Asked, Pages, Refused, words_of

log = logging.getLogger(__name__)

BASE = "/api/v1/"
AT_ONCE = 10.0              # seconds for which a client waits, before it hears where to ask


@define(eq=False)
class Api:
    """The API of a store."""

    _store: Store
    _config: Config
    settings: Callable[[], Settings] = field()      # those of the HTTP door as they are now
    runs: Runs = field(init=False)

    @settings.default
    def _settings_at_start(self) -> Callable[[], Settings]:
        return lambda: self._config.settings("http", Settings)

    def __attrs_post_init__(self) -> None:
        settings = self.settings()
        self.runs = Runs(self._config, settings.operations, settings.operation_time)

    def add_pages(self, pages: Pages) -> None:
        """Have its pages."""
        pages.add("/api/openapi.json", self._description)
        pages.add(BASE, self._operation, "POST")
        pages.add(f"{BASE}operations/", self._progress)

    async def _description(self, asked: Asked) -> Answer:
        known = await offload.run(self._store, "pages", operations)
        return Answer.json(openapi(known, VERSION))

    async def _operation(self, asked: Asked) -> Answer:
        token = await self.authenticate(asked)
        operation = await self.operation("/".join(words_of(asked.path.removeprefix(BASE))))
        given = asked.json()
        if not isinstance(given, dict):
            raise Refused(400, "the body must be an object")
        stdin = given.pop(STDIN, "")
        if (form := asked.query.get("form", "json")) not in ("json", "text"):
            raise Refused(400, "form must be json or text")
        return self._outcome(await self.carry_out(token, operation, given, stdin, asked, as_json=form == "json"))

    async def operation(self, path: str) -> Operation:
        """The one with that path. Raises Refused."""
        found = (await offload.run(self._store, "pages", operations)).get(path)
        if found is None:
            raise Refused(404, "there is no such operation")
        return found

    async def carry_out(self, token: Token, operation: Operation, given: dict[str, Any], stdin: object, asked: Asked, *,
                        as_json: bool = True, wait: float = AT_ONCE) -> Run:
        """Have whoever holds the token do that: the run, which has ended unless it takes longer than `wait` seconds.

        Raises Refused for what makes no sense, and what the role may not do.
        """
        if not isinstance(stdin, str) or stdin and not operation.reads_stdin:
            raise Refused(400, f"{operation.name} reads no {STDIN}")
        operation.words(given)
        try:
            stdin.encode()
            allowed(token, operation, given)
            given = await offload.run(self._store, "pages", within_scope, self._store, token, given,
                                      self._superiors())
        except UnicodeEncodeError:
            raise Refused(400, f"{STDIN} must be a string") from None
        except Refused as refused:
            if refused.status == 403:
                refusallines.refused(refusallines.RIGHT, asked.peer, f"token {token.id}", "http",
                                     f"{operation.name}: {refused.public}", session=asked.session)
            raise
        if self.runs.running >= self.runs.most:
            raise Refused(429, "too many operations are under way", [("Retry-After", "5")])
        run = self.runs.new(operation.name, token.id, as_json=as_json and "--json" in operation.flags)
        log.info("%s by token %s (%s %s) from %s: begins", operation.name, token.id, token.role, token.scope,
                 asked.peer)
        words = operation.words(given, as_json=as_json)
        offload.start(self._store, "operations", lambda: self._work(run, words, stdin, token))
        await offload.run(self._store, "waiting", run.done.wait, wait)
        if run.exit is not None:
            self.runs.forget(run)               # it is answered here
        return run

    def _superiors(self) -> frozenset[str]:
        """Users, and groups of them, who may do more than users may."""
        logins = Authenticator.of(self._store).settings
        return frozenset((*logins.administrators, *logins.proxies, *superiors(self.settings()), *str(
            self._config.values["imap.admins"]).replace(",", " ").split()))

    def _work(self, run: Run, words: list[str], stdin: str, token: Token) -> None:
        self.runs.carry_out(run, words, stdin, f"{token.id} {token.role} {token.scope}".rstrip())
        log.info("%s by token %s: exit status %s", run.operation, token.id, run.exit)

    async def _progress(self, asked: Asked) -> Answer:
        token = await self.authenticate(asked)
        words = words_of(asked.path.removeprefix(BASE))
        run = self.runs.find(words[1], token.id) if len(words) == 2 else None
        if run is None:
            raise Refused(404, "there is no such operation, or not any more")
        return self._outcome(run)

    def _outcome(self, run: Run) -> Answer:
        told = run.outcome()
        if run.exit is None:
            return Answer.json(told, 202, [("Location", f"{BASE}operations/{run.id}")])
        if run.exit and not (run.operation in READING and run.output):
            status = 400 if run.exit == 2 else 409
            return Answer.problem(Refused(status, run.errors.strip() or "it was refused"), told)
        return Answer.json(told, 400 if run.exit == 2 else 200)

    # Who asks

    async def authenticate(self, asked: Asked) -> Token:
        """Whose token was shown. Raises Refused."""
        scheme, _, shown = asked.fields.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not shown.strip():
            raise Refused(401, "a token is needed: Authorization: Bearer TOKEN", [("WWW-Authenticate", "Bearer")])
        if not (asked.secure or is_this_host(asked.peer)):
            raise Refused(403, "tokens are taken only under TLS")
        authenticator = Authenticator.of(self._store)
        place = authenticator.place(asked.peer)
        try:
            turn = authenticator.slow.take(place, "")
        except StoreError as error:
            status = 429 if error.problem is Problem.LIMIT else 503
            raise Refused(status, error.public, [("Retry-After", "30")]) from None
        if turn.wait > 1:
            authenticator.slow.release(turn)
            raise Refused(429, "too many logins have failed: try again later",
                          [("Retry-After", str(math.ceil(turn.wait)))])
        secret = Secret(shown.strip().encode("utf-8", "replace"))
        try:
            token = await offload.run(self._store, "pages", Tokens(self._store.root).find, secret, time.time())
        except BaseException:                   # nobody has looked at it: it is no failed login
            authenticator.slow.release(turn)
            raise
        if token is None:
            authenticator.failed += 1
            authenticator.slow.failed(turn, secret)
            refusallines.refused(refusallines.LOGIN, asked.peer, "", "http", "a token that does not hold",
                                 session=asked.session)
            raise Refused(401, "the token does not hold", [("WWW-Authenticate", 'Bearer error="invalid_token"')])
        authenticator.slow.release(turn)
        return token
