"""A person at the web console, without a browser: cookies, links and forms of the pages are those that the server
gives, and every page is looked at for what no page may have."""

import http.client
import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

from attrs import define, field

VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
_NOTHING_INLINE = re.compile(r"on[a-z]+|style", re.IGNORECASE)


@define
class Element:
    """One that was read: its attributes, and the text in it."""

    name: str
    attributes: dict[str, str]
    inside: list["Element | str"] = field(factory=list)

    @property
    def text(self) -> str:
        """All text in it, with single spaces."""
        return " ".join("".join(each if isinstance(each, str) else f" {each.text} " for each in self.inside).split())

    def all(self, name: str, /, **wanted: str) -> list["Element"]:
        """The elements of that name in it, with these attributes."""
        found = []
        for each in self.inside:
            if isinstance(each, Element):
                if each.name == name and wanted.items() <= each.attributes.items():
                    found.append(each)
                found += each.all(name, **wanted)
        return found


class _Reading(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.top = Element("", {})
        self.open = [self.top]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        made = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].inside.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> ends <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)


@define
class Answer:
    """What came."""

    status: int
    fields: dict[str, str]
    body: bytes
    page: Element

    @property
    def text(self) -> str:
        """Of the page, or what stands for it."""
        return self.page.text or self.body.decode(errors="replace")

    def form(self, action: str) -> Element:
        """The one form whose action begins so."""
        found = [each for each in self.page.all("form") if each.attributes["action"].startswith(action)]
        assert len(found) == 1, (action, [each.attributes["action"] for each in self.page.all("form")])
        return found[0]


@define
class Person:
    """Somebody at a browser."""

    port: int
    host: str = "127.0.0.1"
    cookies: dict[str, str] = field(factory=dict)
    origin: str | None = ""         # "": that of the server; None: the browser says nothing
    agent: str = "Mozilla/5.0 (a test)"

    def ask(self, method: str, path: str, body: bytes = b"", **fields: str) -> Answer:
        """One request; no redirection is followed."""
        link = http.client.HTTPConnection(self.host, self.port, timeout=300)
        try:
            link.request(method, path, body or None, {
                "User-Agent": self.agent, **({"Cookie": "; ".join(f"{name}={value}" for name, value in
                                                                  self.cookies.items())} if self.cookies else {}),
                **{name.replace("_", "-"): value for name, value in fields.items()}})
            got = link.getresponse()
            octets = got.read()
            for line in got.headers.get_all("Set-Cookie") or ():
                name, _, value = line.partition(";")[0].partition("=")
                assert "HttpOnly" in line and "SameSite=Strict" in line and "Path=/" in line, line
                self.cookies[name] = value
                if not value:
                    del self.cookies[name]
            return _looked_at(Answer(got.status, dict(got.headers.items()), octets, Element("", {})))
        finally:
            link.close()

    def get(self, path: str) -> Answer:
        """A page, past redirections, and past that of progress."""
        for _ in range(6):
            answer = self.ask("GET", path)
            under_way = [each for each in _every(answer.page) if "data-progress" in each.attributes]
            if under_way:
                self._wait(under_way[0].attributes["data-progress"])
            elif answer.status == 303:
                path = answer.fields["Location"]
            else:
                return answer
        raise AssertionError(f"{path}: too many redirections")

    def _wait(self, address: str) -> None:
        """As the script does: until what is under way has ended."""
        while json.loads(self.ask("GET", address).body)["running"]:
            pass                                # the answer has waited

    def post(self, path: str, values: Mapping[str, str], *, follow: bool = True) -> Answer:
        """Send a form as it is typed."""
        fields = {"Content-Type": "application/x-www-form-urlencoded"}
        if self.origin is not None:
            fields["Origin"] = self.origin or f"http://{self.host}:{self.port}"
        answer = self.ask("POST", path, urlencode(values).encode(), **fields)
        return self.get(answer.fields["Location"]) if answer.status == 303 and follow else answer

    def submit(self, form: Element, *, follow: bool = True, **values: str) -> Answer:
        """Fill in a form of a page, and send it."""
        given = {each.attributes["name"]: each.attributes.get("value", "") for each in form.all("input")
                 if each.attributes.get("type") not in ("checkbox", "radio") or "checked" in each.attributes}
        for each in form.all("select"):
            options = each.all("option")
            chosen = next((one for one in options if "selected" in one.attributes), options[0])
            given[each.attributes["name"]] = chosen.attributes.get("value", chosen.text)
        for each in form.all("textarea"):
            given[each.attributes["name"]] = "".join(map(str, each.inside))
        names = given.keys() | {each.attributes["name"] for each in form.all("input")}
        assert values.keys() <= names, (values, names)
        assert form.attributes["method"] == "post"
        return self.post(form.attributes["action"], {**given, **values}, follow=follow)

    def log_in(self, user: str, password: str = "secret", path: str = "/console/") -> Answer:
        """The page that comes after it."""
        return self.submit(self.get(path).form("/console/login"), user=user, password=password)


def _looked_at(answer: Answer) -> Answer:
    """Read, with what every page must keep to: no script or style but the two files, nothing from elsewhere, labels for
    fields, headings of tables; and no traceback."""
    if not answer.fields.get("Content-Type", "").startswith("text/html"):
        return answer
    reading = _Reading()
    reading.feed(answer.body.decode())
    reading.close()
    assert len(reading.open) == 1, [each.name for each in reading.open]
    answer.page = reading.top
    policy = answer.fields["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "http" not in policy
    assert answer.fields["Cache-Control"] == "no-store" and answer.fields["X-Content-Type-Options"] == "nosniff"
    assert "Traceback" not in answer.text
    _look_into(answer.page)
    return answer


def _look_into(page: Element) -> None:
    labels = {each.attributes.get("for") for each in page.all("label")}
    identities: list[str] = []
    assert len(page.all("main")) == len(page.all("h1")) == len(page.all("head")[0].all("title")) == 1
    for each in _every(page):
        assert not any(map(_NOTHING_INLINE.fullmatch, each.attributes)), each
        assert each.name not in ("style", "iframe", "object", "embed", "base"), each
        for name in ("href", "src", "action", "data-progress"):
            if name in each.attributes:
                assert re.match(r"/console/|#", each.attributes[name]), each
        if each.name == "script":
            assert "src" in each.attributes and not each.text
        if each.name in ("input", "select", "textarea") and each.attributes.get("type") != "hidden":
            assert each.attributes.get("id") in labels or "aria-label" in each.attributes or _within_label(
                page, each), each
        if each.name == "form" and each.attributes.get("method") == "post":
            assert each.all("input", name="csrf", type="hidden"), each
        if each.name == "table":
            assert each.all("caption") or "aria-label" in each.attributes or "aria-labelledby" in each.attributes, each
            assert all("scope" in head.attributes for head in each.all("th")), each
        if each.name == "svg" and each.attributes.get("role") == "img":
            assert each.attributes["aria-label"]
        if "id" in each.attributes:
            identities.append(each.attributes["id"])
    assert len(identities) == len(set(identities)), identities


def _within_label(page: Element, wanted: Element) -> bool:
    return any(each is wanted for label in page.all("label") for each in _every(label))


def _every(element: Element) -> Any:
    for each in element.inside:
        if isinstance(each, Element):
            yield each
            yield from _every(each)
