"""Pages of the HTTP door: a request and an answer as values, and which function answers which path. Pure: no I/O."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from attrs import define, field, frozen

from store.net.stream import Stream

JSON, TEXT = "application/json", "text/plain; charset=utf-8"
PROBLEM = "application/problem+json"            # RFC 9457
MOST_WORDS = 100                                # of a query
STRANGERS_BODY = 64 << 10                       # octets of a body that is read of who has not shown who they are
_ALONE = frozenset({"host", "authorization", "content-type", "content-length", "origin", "referer"})

# Of every answer: nothing of it is kept, taken for something else, or shown within another page.
ALWAYS = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"))
NO_SCRIPT = ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")


class Refused(Exception):
    """A request that is not carried out: `status` of RFC 9110 §15, and why, in words for the client."""

    def __init__(self, status: int, public: str = "", fields: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(public)
        self.status = status
        self.public = public
        self.fields = tuple(fields)


@frozen
class Answer:
    """What goes to the client; `body` is of the type `kind`."""

    status: int = 200
    body: bytes = b""
    kind: str = TEXT
    fields: Sequence[tuple[str, str]] = ()

    @classmethod
    def json(cls, value: object, status: int = 200, fields: Sequence[tuple[str, str]] = ()) -> "Answer":
        """A value as JSON, one line."""
        return cls(status, json.dumps(value).encode() + b"\n", JSON, fields)

    @classmethod
    def problem(cls, refused: Refused, more: bytes = b"") -> "Answer":
        """A refusal, as RFC 9457 has it, with further members: JSON without its brackets."""
        title = HTTPStatus(refused.status).phrase
        body = json.dumps({"type": "about:blank", "title": title, "status": refused.status,
                           "detail": refused.public or title}).encode()
        return cls(refused.status, b"%b%b%b}\n" % (body[:-1], b", " if more else b"", more), PROBLEM, refused.fields)


@frozen
class Asked:
    """A request. The names of `fields` are in lower case; `repeated`: those that came more than once."""

    method: str
    target: str
    fields: Mapping[str, str]
    body: bytes = b""
    peer: str = "local"
    secure: bool = False                # under TLS
    repeated: frozenset[str] = frozenset()
    stream: Stream | None = None        # the connection; whoever logs in there is counted there

    @classmethod
    def of(cls, method: bytes, target: bytes, fields: Mapping[bytes, Sequence[bytes]], body: bytes,
           **about: Any) -> "Asked":
        """From the octets that came."""
        joined = {name.decode("latin-1").lower(): b", ".join(values).decode("latin-1")
                  for name, values in fields.items()}
        repeated = frozenset(name.decode("latin-1").lower() for name, values in fields.items() if len(values) > 1)
        return cls(method.decode("latin-1"), target.decode("latin-1"), joined, body, repeated=repeated, **about)

    @property
    def session(self) -> str:
        """The id of the connection."""
        return self.stream.id if self.stream is not None else ""

    @property
    def path(self) -> str:
        """That of the target, with its %-escapes: as it was sent."""
        return self._parts()[0]

    @property
    def query(self) -> dict[str, str]:
        """The words behind the question mark; of one that is repeated the last counts. Raises Refused."""
        try:
            return dict(parse_qsl(self._parts()[1], keep_blank_values=True, strict_parsing=True,
                                  max_num_fields=MOST_WORDS, errors="strict")) if self._parts()[1] else {}
        except ValueError:
            raise Refused(400, "the query cannot be read") from None

    def json(self) -> Any:
        """The value in the body. Raises Refused."""
        if self.fields.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise Refused(415, f"the body must be {JSON}")
        try:
            return json.loads(self.body.decode("utf-8"), parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise Refused(400, "the body is not JSON") from None

    def check(self) -> None:
        """Raises Refused for what no page takes."""
        if not all(32 < ord(character) < 127 for character in self.target) or "#" in self.target:
            raise Refused(400, "the target of the request cannot be read")
        if twice := self.repeated & _ALONE:
            raise Refused(400, f"the field {min(twice)} must be there once")

    def require_small(self) -> None:
        """Raises Refused for a body that is longer than that of a stranger may be, or whose length nobody knows."""
        if "transfer-encoding" in self.fields:
            raise Refused(411, "say how long the body is (Content-Length)")
        if int(self.fields.get("content-length", "0")) > STRANGERS_BODY:
            raise Refused(413, "the body is too long")

    def _parts(self) -> tuple[str, str]:
        target = self.target
        if not target.startswith("/"):              # RFC 9112 §3.2.2: the absolute form
            try:
                parts = urlsplit(target)
            except ValueError:
                raise Refused(400, "the target of the request cannot be read") from None
            if parts.scheme not in ("http", "https"):
                raise Refused(400, "the target of the request cannot be read")
            return parts.path or "/", parts.query
        path, _, query = target.partition("?")
        return path, query


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON (RFC 8259 §6)")


Page = Callable[[Asked], Awaitable[Answer]]


@frozen
class _Entry:
    page: Page
    methods: tuple[str, ...]
    early: Callable[[Asked], Awaitable[object]] | None


@define(eq=False)
class Pages:
    """Which page answers which path. A path that ends with a slash is that of all below it, too; the longest counts."""

    _entries: dict[str, _Entry] = field(factory=dict, init=False)

    def add(self, path: str, page: Page, *methods: str, early: Callable[[Asked], Awaitable[object]] | None = None
            ) -> None:
        """Have `page` answer these methods (GET, if none is named) at that path. `early` raises Refused for a request
        whose body is not even read; it is called where that takes time. Without it only small bodies are read."""
        assert path.startswith("/") and path not in self._entries, path
        self._entries[path] = _Entry(page, methods or ("GET",), early)

    async def answer(self, asked: Asked) -> Answer:
        """The answer to a request. Raises Refused."""
        return await self._entry(asked).page(asked)

    async def early(self, asked: Asked) -> None:
        """Look at a request without its body. Raises Refused."""
        early = self._entry(asked).early
        if early is None:
            asked.require_small()
        else:
            await early(asked)

    def _entry(self, asked: Asked) -> _Entry:
        asked.check()
        entry = self._find(asked.path)
        if entry is None:
            raise Refused(404, "there is no such page")
        method = "GET" if asked.method == "HEAD" else asked.method      # RFC 9110 §9.3.2
        if method not in entry.methods:
            allowed = ", ".join([*entry.methods, *(["HEAD"] if "GET" in entry.methods else [])])
            raise Refused(405, f"allowed here: {allowed}", [("Allow", allowed)])
        return entry

    def _find(self, path: str) -> _Entry | None:
        if path in self._entries:
            return self._entries[path]
        while path:
            path = path[:-1].rpartition("/")[0]
            if entry := self._entries.get(path + "/"):
                return entry
        return None


def words_of(path: str) -> list[str]:
    """The parts of a path between slashes, unquoted. Raises Refused for what is no UTF-8."""
    try:
        return [unquote(word, errors="strict") for word in path.strip("/").split("/")]
    except UnicodeDecodeError:
        raise Refused(404, "there is no such page") from None
