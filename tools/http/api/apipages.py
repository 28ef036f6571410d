"""The pages of the API: who asks, whether that role may, and what became of it."""

import math
import time
from base64 import b64decode
from typing import Any

from attrs import define, field

from store import offload
from store.accounts import refusallines
from store.errors import Problem, StoreError
from store.net.authentication import Authenticator
from store.net.limits import is_this_host
from store.store import Store
from store.values import Secret
from tools.http.api.operationcalls import OperationCalls
from tools.http.api.operationlist import SECRET, STDIN, STDIN_BASE64
from tools.http.api.permissions import READING, Asker
from tools.http.api.running import Run
from tools.http.apitokens import TokenCache, Tokens
from tools.http.webpages import JSON, Answer, Asked, Pages, Refused, words_of

BASE = "/api/v1/"


@define(eq=False)
class Api:
    """The API of a store."""

    _store: Store
    calls: OperationCalls
    _tokens: TokenCache = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._tokens = TokenCache(Tokens(self._store.root))

    def add_pages(self, pages: Pages) -> None:
        """Have its pages."""
        pages.add("/api/openapi.json", self._description)
        pages.add(BASE, self._operation, "POST", early=self.authenticate)
        pages.add(f"{BASE}operations/", self._progress)

    async def _description(self, asked: Asked) -> Answer:
        return Answer(body=(await self.calls.known()).description, kind=JSON)

    async def _operation(self, asked: Asked) -> Answer:
        asker = await self.authenticate(asked)
        operation = (await self.calls.known()).by_path.get("/".join(words_of(asked.path.removeprefix(BASE))))
        if operation is None:
            raise Refused(404, "there is no such operation")
        given = asked.json()
        if not isinstance(given, dict):
            raise Refused(400, "the body must be an object")
        octets = _standard_input(given)
        if octets and not operation.reads_stdin:
            raise Refused(400, f"{operation.name} reads no {STDIN}")
        if (form := asked.query.get("form", "json")) not in ("json", "text"):
            raise Refused(400, "form must be json or text")
        return await self._outcome(await self.calls.carry_out_as(asker, operation.name, given, stdin=octets,
                                                                 as_json=form == "json"))

    async def _progress(self, asked: Asked) -> Answer:
        asker = await self.authenticate(asked)
        words = words_of(asked.path.removeprefix(BASE))
        run = await self.calls.find(words[1], asker) if len(words) == 2 else None
        if run is None:
            raise Refused(404, "there is no such operation, or not any more")
        if run.exit is not None and run.operation in SECRET:
            self.calls.runs.forget(run)
        return await self._outcome(run)

    async def _outcome(self, run: Run) -> Answer:
        ended = run.exit            # before its members are made
        members = await offload.run(self._store, "pages", run.members)
        if ended is None:
            return Answer(202, b"{%b}\n" % members, JSON, [("Location", f"{BASE}operations/{run.id}")])
        if ended and not (run.operation in READING and run.output):
            status = 400 if ended == 2 else 409
            return Answer.problem(Refused(status, run.errors.strip() or "it was refused"), members)
        return Answer(400 if ended == 2 else 200, b"{%b}\n" % members, JSON)

    # Who asks

    async def authenticate(self, asked: Asked) -> Asker:
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
            token = await offload.run(self._store, "pages", self._tokens.find, secret, time.time())
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
        return Asker("http", token.id, token.role, token.scope, asked.peer, asked.session)


def _standard_input(given: dict[str, Any]) -> bytes:
    """What there is to read; it is taken out of the arguments. Raises Refused."""
    text, octets = given.pop(STDIN, ""), given.pop(STDIN_BASE64, "")
    if text and octets:
        raise Refused(400, f"either {STDIN} or {STDIN_BASE64} can be given")
    try:
        return b64decode(octets, validate=True) or text.encode()
    except (AttributeError, TypeError, ValueError):         # no strings, no octets, or no base64
        raise Refused(400, f"{STDIN} must be a string, {STDIN_BASE64} one in base64") from None
