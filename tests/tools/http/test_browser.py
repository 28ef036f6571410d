"""tests/support/clients: the browser and axe, with which the web console is tried, see what is to be seen."""

import http.server
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.support.clients import axe
from tests.support.clients.chromium import Browser, Chromium
from tests.support.servers.certificates import Authority

PAGE = b"""<!doctype html><html lang="en"><head><title>Try</title><style>body {background: %s; color: #222}
@media (prefers-color-scheme: dark) {body {background: #000}}</style></head><body><main><h1>Try</h1>
<form method="post" action="/said"><label>Name <input name="name" value="before"></label>
<select name="kind" aria-label="Kind"><option>one<option>two</select><button>Send</button></form>%s</main></body>"""
"""%s: a color, and what else is in the body"""


class _Pages(http.server.BaseHTTPRequestHandler):
    """/said answers with what was sent, 303 first; /bad has what must not be."""

    said = b""

    def do_GET(self) -> None:
        more = {"/bad": b"<img src='http://192.0.2.1/x.png'><script>alert('ran')</script><script>nothing()</script>"
                        b"<p style='color: #eee; background: #fff'>faint</p>",
                "/said": b"<p id='said'>" + type(self).said + b"</p>"}.get(self.path, b"")
        body = PAGE % (b"#fff", more)
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Set-Cookie", f"seen={'again' if 'Cookie' in self.headers else 'first'}")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        type(self).said = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(303)
        self.send_header("Location", "/said")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """It says nothing."""


@contextmanager
def served(certificates: Path | None = None) -> Iterator[str]:
    """Its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as server:
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(Authority(certificates, "unknown").client(
                "elsewhere", usage=[ExtendedKeyUsageOID.SERVER_AUTH]))
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http{'s' if certificates else ''}://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as found:
        yield found


def test_a_form_is_filled_and_sent(browser: Browser, address: str) -> None:
    browser.open(address + "/")
    browser.fill("input", "a <b>&")
    browser.choose("select", "two")
    browser.click("button", loads=True)
    assert browser.address == address + "/said" and browser.status() == 200
    assert browser.text("#said") == "name=a+%3Cb%3E%26&kind=two"
    browser.open(address + "/none")
    assert browser.status() == 404


def test_by_keyboard_alone(browser: Browser, address: str) -> None:
    browser.open(address + "/")
    browser.press("Tab")
    assert browser.value("document.activeElement.name") == "name"
    browser.press("Enter", loads=True)
    assert browser.text("#said") == "name=before&kind=one"


def test_each_context_has_its_own_cookies(chromium_process: Chromium, browser: Browser, address: str) -> None:
    browser.open(address + "/")
    browser.open(address + "/")
    assert browser.value("document.cookie") == "seen=again"
    with chromium_process.context() as other:
        other.open(address + "/")
        assert other.value("document.cookie") == "seen=first"


def test_what_must_not_be_is_seen(browser: Browser, address: str) -> None:
    """A test that finds nothing is of worth only if it would."""
    browser.open(address + "/")
    assert axe.violations(browser) == []
    browser.open(address + "/bad")
    assert browser.dialogs == ["ran"]
    assert "http://192.0.2.1/x.png" in browser.requests
    assert any("nothing is not defined" in each for each in browser.errors)
    assert {each.split()[0] for each in axe.violations(browser)} == {"color-contrast", "image-alt"}


def test_sizes_colors_and_pictures(browser: Browser, address: str) -> None:
    browser.open(address + "/", 360, mobile=True, dark=True)
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(0, 0, 0)"
    browser.window(800)
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    picture = browser.screenshot(height=300)
    assert picture.startswith(b"\x89PNG\r\n\x1a\n") and struct.unpack(">II", picture[16:24]) == (800, 300)


def test_over_tls_with_a_certificate_of_our_own(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path) as address:
        browser.open(address + "/")
        assert browser.text("h1") == "Try" and browser.value("isSecureContext")


def test_nobody_outside_is_reached(browser: Browser) -> None:
    with pytest.raises(AssertionError, match="ERR_NAME_NOT_RESOLVED"):
        browser.open("http://example.org/")
