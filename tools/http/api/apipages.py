"""The pages of the API: who asks, whether that role may, and what became of it."""

import math
import time

from attrs import define

from store import VERSION, offload
from store.accounts import refusallines
from store.errors import Problem, StoreError
from store.net.authentication import Authenticator
from store.net.limits import is_this_host
from store.store import Store
from store.values import Secret
from tools.http.api.operationcalls import OperationCalls
from tools.http.api.operationlist import STDIN, description
from tools.http.api.permissions import READING, Asker
from tools.http.api.running import Run
from tools.http.apitokens import Tokens
from tools.http.webpages import JSON, Answer, Asked, Pages, Refused, words_of

BASE = "/api/v1/"


@define(eq=False)
class Api:
    """The API of a store."""

    _store: Store
    calls: OperationCalls

    def add_pages(self, pages: Pages) -> None:
        """Have its pages."""
        pages.add("/api/openapi.json", self._description)
        pages.add(BASE, self._operation, "POST")
        pages.add(f"{BASE}operations/", self._progress)

    async def _description(self, asked: Asked) -> Answer:
        return Answer(body=await offload.run(self._store, "pages", description, VERSION), kind=JSON)

    async def _operation(self, asked: Asked) -> Answer:
        asker = await self.authenticate(asked)
        operation = (await self.calls.known()).get("/".join(words_of(asked.path.removeprefix(BASE))))
        if operation is None:
            raise Refused(404, "there is no such operation")
        given = asked.json()
        if not isinstance(given, dict):
            raise Refused(400, "the body must be an object")
        stdin = given.pop(STDIN, "")
        if not isinstance(stdin, str) or stdin and not operation.reads_stdin:
            raise Refused(400, f"{operation.name} reads no {STDIN}")
        if (form := asked.query.get("form", "json")) not in ("json", "text"):
            raise Refused(400, "form must be json or text")
        try:
            octets = stdin.encode()
        except UnicodeEncodeError:
            raise Refused(400, f"{STDIN} must be a string") from None
        return await self._outcome(await self.calls.carry_out_as(asker, operation.name, given, stdin=octets,
                                                                 as_json=form == "json"))

    async def _progress(self, asked: Asked) -> Answer:
        asker = await self.authenticate(asked)
        words = words_of(asked.path.removeprefix(BASE))
        run = self.calls.find(words[1], asker) if len(words) == 2 else None
        if run is None:
            raise Refused(404, "there is no such operation, or not any more")
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
        return Asker("http", token.id, token.role, token.scope, asked.peer, asked.session)
