"""What a browser sends with a form: read, and known to come from a page of the console."""

import hmac
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from attrs import field, frozen

from store.values import Secret
from tools.http.console.consolesessions import form_token
from tools.http.webpages import Asked, Refused

KIND = "application/x-www-form-urlencoded"
TOKEN = "csrf"              # the field with the token
MOST_FIELDS = 1000


@frozen
class Form(Mapping[str, str]):
    """The fields; of one that came more than once, the last. A field that is missing raises Refused."""

    fields: tuple[tuple[str, str], ...]     # names and values, as they came
    _last: Mapping[str, str] = field(init=False)

    @_last.default
    def _by_name(self) -> Mapping[str, str]:
        return dict(self.fields)

    @classmethod
    def of(cls, asked: Asked) -> "Form":
        """Raises Refused."""
        if asked.fields.get("content-type", "").partition(";")[0].strip().lower() != KIND:
            raise Refused(415, "That was no form of a page.")
        try:
            return cls(tuple(parse_qsl(asked.body.decode("ascii"), keep_blank_values=True, strict_parsing=True,
                                       max_num_fields=MOST_FIELDS, errors="strict")) if asked.body else ())
        except ValueError:
            raise Refused(400, "The form cannot be read.") from None

    def __getitem__(self, name: str) -> str:
        if name not in self._last:
            raise Refused(400, f"The field {name} is missing in the form.")
        return self._last[name]

    def __contains__(self, name: object) -> bool:
        return name in self._last

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)

    def get(self, name: str, default: str = "") -> str:     # type: ignore[override]  # there is always text
        """The field, or that."""
        return self._last.get(name, default)

    def many(self, name: str) -> list[str]:
        """All values of a field, such as those of boxes that were ticked."""
        return [value for each, value in self.fields if each == name]


def filled(**words: object) -> dict[str, Any]:
    """Those that somebody has filled in: fields that are left empty are no arguments of an operation."""
    return {name: value for name, value in words.items() if value not in ("", None, False, [""])}


def require_own(asked: Asked, form: Form, cookie: Secret) -> None:
    """Raises Refused for a form that is of no page that we gave to that browser: each form has the browser's token; and
    a browser says from which page it comes (Origin, RFC 6454 §7; Sec-Fetch-Site)."""
    if not hmac.compare_digest(form.get(TOKEN).encode(), form_token(cookie).encode()):
        raise Refused(403, "The form is too old, or another page has sent it. Load the page again, and repeat it.")
    origin, site = asked.fields.get("origin"), asked.fields.get("sec-fetch-site")
    if site not in (None, "same-origin", "none") or origin is not None and not _is_here(asked, origin):
        raise Refused(403, "Another page has sent this form.")
    if origin is None and site is None:
        raise Refused(403, "Your browser does not say from which page the form comes.")


def _is_here(asked: Asked, origin: str) -> bool:
    """Whether the page has the address by which we were asked. A proxy may speak TLS for us: the scheme is not looked
    at but under TLS."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return (parts.netloc.lower() == asked.fields.get("host", "").lower() != "" and
            (parts.scheme == "https" or parts.scheme == "http" and not asked.secure))
