"""Chromium without a window, spoken to over a pipe (Chrome DevTools Protocol): no port, and no library."""

import base64
import itertools
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field

LIMIT = 120.0               # seconds: a machine with other things to do
_WORDS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
          "--disable-component-update", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND",
          "--remote-debugging-pipe", "about:blank")


@define(eq=False)
class Browser:
    """One page, and what has happened to it: every message that came unasked."""

    write: int
    read: int
    events: list[dict[str, Any]] = field(factory=list)
    _session: str = ""
    _rest: bytes = b""
    _number: Iterator[int] = field(factory=itertools.count)

    def ask(self, method: str, **values: object) -> dict[str, Any]:
        """What the browser answers. Raises AssertionError when it refuses."""
        number = next(self._number)
        message = {"id": number, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        until, answers = time.monotonic() + LIMIT, select.poll()     # select(2) knows no descriptor above 1,023
        answers.register(self.read, select.POLLIN)
        while b"\0" not in self._rest:
            assert answers.poll(max(0.0, until - time.monotonic()) * 1000), "the browser is silent"
            more = os.read(self.read, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def begin(self) -> None:
        """Attach to a page of its own."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.ask(f"{domain}.enable")

    def open(self, path: Path, width: int, *, mobile: bool = False, dark: bool = False, media: str = "") -> None:
        """Show a file in a window of that width."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=mobile)
        self.ask("Emulation.setEmulatedMedia", media=media, features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events.clear()
        self.ask("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        """What an expression in the page gives."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def pdf(self) -> bytes:
        """The page in print."""
        return base64.b64decode(self.ask("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])

    def named(self, method: str) -> list[dict[str, Any]]:
        """The events of that name since the page was opened."""
        return [event["params"] for event in self.events if event.get("method") == method]


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser with its files in the folder, and its end."""
    (theirs, write), (read, back) = os.pipe(), os.pipe()
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{back}', "bash", "chromium", f"--user-data-dir={folder}", *_WORDS],
        pass_fds=(theirs, back), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(theirs)
    os.close(back)
    browser = Browser(write, read)
    try:
        browser.begin()
        yield browser
    finally:
        browser._session = ""
        try:
            browser.ask("Browser.close")
            process.wait(LIMIT)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
        os.close(write)
        os.close(read)
