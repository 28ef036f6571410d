"""The origin of a page: scheme, host and port, as browsers write it (RFC 6454 §6.2)."""

import re

from attrs import frozen

_FORM = re.compile(r"(https?)://([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)(?::([0-9]{1,5}))?")
_USUAL = {"https": 443, "http": 80}


@frozen
class Origin:
    """Of a host that has a name: browsers make no security keys for addresses (WebAuthn §5.1.2)."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Origin":
        """Raises ValueError for what is none of a host with a name, under TLS or on the host itself: elsewhere browsers
        have no security keys."""
        found = _FORM.fullmatch(text.lower())
        if found is None:
            raise ValueError(f"{text} is no origin, such as https://mail.example.org")
        scheme, host, port = found.groups()
        number = int(port) if port else _USUAL[scheme]
        if not 0 < number < 65536 or host.rpartition(".")[2].isdecimal():
            raise ValueError(f"{text} is no origin of a host with a name")
        if scheme == "http" and host != "localhost" and not host.endswith(".localhost"):
            raise ValueError(f"{text} is without TLS: it must be https://")
        return cls(scheme, host, number)

    @classmethod
    def asked_for(cls, host: str, *, secure: bool) -> "Origin | None":
        """By the field Host of a request (RFC 9110 §7.2); None for what is no such origin."""
        try:
            return cls.parse(f"{'https' if secure else 'http'}://{host}")
        except ValueError:
            return None

    def __str__(self) -> str:
        port = "" if self.port == _USUAL[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"
