"""Templates and what belongs to pages: the style sheet and the script. Every value that a template prints is text of
somebody else: it is escaped, and what cannot be seen, or turns the direction of text, is shown as what it is."""

import hashlib
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from mboxlist import privatefiles
from store.values import readable
from tools.http.webpages import Answer, Asked, Refused

BASE = "/console/"
HTML = "text/html; charset=utf-8"
_HERE = Path(__file__).parent
_STATIC = {"console.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8",
           "console.svg": "image/svg+xml"}
_KEPT = (("Cache-Control", "private, max-age=31536000, immutable"),)
# Categories of Unicode that show nothing, or change how other characters are shown.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

POLICY = ("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
          "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
# A page of the console is for one browser, which says in Origin where a form comes from: not with no-referrer.
OF_PAGES = (POLICY, ("Referrer-Policy", "same-origin"), ("Cross-Origin-Opener-Policy", "same-origin"),
            ("X-Frame-Options", "DENY"))


def url(path: str = "", /, **query: object) -> str:
    """The address of a page of the console; names of users and mailboxes are in the query, whatever is in them."""
    words = {name: str(value) for name, value in query.items() if value is not None and value != ""}
    return f"{BASE}{path}" + (f"?{urlencode(words, quote_via=quote, errors='surrogateescape')}" if words else "")


def seen(text: str) -> str:
    """Text with its invisible characters made visible: U+202E turns the direction of what follows it."""
    return text if text.isprintable() or text.isascii() and not text.strip(_PLAIN) else "".join(map(_seen, text))


_PLAIN = "".join(map(chr, range(32, 127))) + "\n"


def _seen(character: str) -> str:
    if character == "\n" or unicodedata.category(character) not in _UNSEEN:
        return character
    return f"⟨U+{ord(character):04X}⟩"


def _final(value: Any) -> Any:
    """What is printed for a value."""
    if value is None:
        return "–"
    return seen(value) if isinstance(value, str) and not isinstance(value, Markup) else value


# Filters

def octets(value: int | None) -> str:
    """An amount of octets for a person."""
    return "–" if value is None else f"−{readable(-value)}" if value < 0 else readable(value)


def limit(value: int | None) -> str:
    """A limit in octets as it is typed: with a unit where that says exactly so many."""
    for unit, size in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if value and not value % size:
            return f"{value // size}{unit}"
    return "" if value is None else str(value)


def limits(octets: int | None, messages: int | None) -> str:
    """Those of a quota root, in words."""
    return (f"{'any amount' if octets is None else limit(octets)} of mail, "
            f"{'any number of' if messages is None else messages} messages")


def number(value: int | None) -> str:
    """A number with its thousands apart."""
    return "–" if value is None else f"{value:,}".replace("-", "−")


def per_cent(part: int | None, whole: int | None) -> str:
    """How much of the whole, rounded down."""
    return f"{100 * part // whole} %" if part is not None and whole else "–"


def when(value: "float | str | None") -> Markup:
    """A Unix time, or one as commands print it in JSON, as an element with the time that programs read in it."""
    if value is None or value == "":
        return Markup("–")
    try:
        moment = datetime.fromtimestamp(value, UTC) if isinstance(value, int | float) else datetime.fromisoformat(
            value.replace("Z", "+00:00"))
    except (ValueError, OverflowError, OSError):
        return Markup("{}").format(seen(str(value)))
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(timespec="seconds"),
                                                          moment.strftime("%Y-%m-%d %H:%M"))


def exact(value: object) -> Markup:
    """A value as it is, for the value of a field: only escaped."""
    return Markup.escape(value)


@cache
def _environment() -> Environment:
    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                       loader=FunctionLoader(_template), finalize=_final, auto_reload=False)
    made.filters |= {"octets": octets, "number": number, "per_cent": per_cent, "when": when, "exact": exact,
                     "limit": limit}
    made.globals |= {"url": url, "static": static}
    return made


def _template(name: str) -> str:
    return privatefiles.read_named(_HERE / "templates" / name).decode()


def rendered(name: str, values: Mapping[str, Any]) -> bytes:
    """A page, from the template of that name."""
    return _environment().get_template(name).render(**values).encode("utf-8", "backslashreplace")


# Static files

@cache
def _file(name: str) -> tuple[bytes, str]:
    """The octets, and their digest."""
    octets = privatefiles.read_named(_HERE / "static" / name)
    return octets, hashlib.sha256(octets).hexdigest()[:32]


def static(name: str) -> str:
    """The address of a static file: another one whenever it has other octets, so that a browser may keep it."""
    return url(f"static/{_file(name)[1]}/{name}")


def static_answer(asked: Asked, path: str) -> Answer:
    """A static file, by the path below `static/`. Raises Refused."""
    _, _, name = path.partition("/")
    if name not in _STATIC:
        raise Refused(404, "There is no such page.")
    octets, digest = _file(name)
    if path != f"{digest}/{name}":              # of another version of the program
        return Answer(303, fields=[("Location", static(name))])
    fields = (*_KEPT, ("ETag", f'"{digest}"'))
    if f'"{digest}"' in asked.fields.get("if-none-match", ""):
        return Answer(304, fields=fields)
    return Answer(200, octets, _STATIC[name], fields)
