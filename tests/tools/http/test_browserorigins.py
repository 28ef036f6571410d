"""Origins: those for which browsers have security keys, and no others."""

import pytest

from tools.http.browserorigins import Origin
from tools.http.settings import Settings


@pytest.mark.parametrize(("text", "host", "shown"), [
    ("https://mail.example.org", "mail.example.org", "https://mail.example.org"),
    ("https://Mail.Example.org:8443", "mail.example.org", "https://mail.example.org:8443"),
    ("https://mail.example.org:443", "mail.example.org", "https://mail.example.org"),
    ("http://localhost:80", "localhost", "http://localhost"), ("http://localhost:8080", "localhost",
                                                               "http://localhost:8080")])
def test_an_origin_is_written_as_browsers_write_it(text: str, host: str, shown: str) -> None:
    """RFC 6454 §6.2: in small letters, without the usual port."""
    found = Origin.parse(text)
    assert (found.host, str(found)) == (host, shown)
    assert Settings(origin=text).origin == text


@pytest.mark.parametrize("text", [
    "mail.example.org", "http://mail.example.org", "https://192.0.2.1", "https://[2001:db8::1]", "https://a@b.example",
    "https://mail.example.org/", "https://mail.example.org:0", "https://mail.example.org:65536", "ftp://localhost",
    "https://", "https://a b", "http://evil.example#.localhost", "https://-x", "http://notlocalhost"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Settings(origin=text)


def test_the_host_that_a_browser_names() -> None:
    assert str(Origin.asked_for("mail.example.org:8443", secure=True)) == "https://mail.example.org:8443"
    assert str(Origin.asked_for("localhost:8080", secure=False)) == "http://localhost:8080"
    for host in ("mail.example.org", "127.0.0.1:8080", "", "[::1]:8080"):
        assert Origin.asked_for(host, secure=False) is None
