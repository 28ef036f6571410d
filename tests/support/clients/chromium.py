"""Chromium without a window, spoken to over a pipe (Chrome DevTools Protocol): no port, and no library.

It reaches this host alone: every other name and address is mapped away. A start takes seconds of the processor, so
there is one for many tests, each with a context of its own (`Chromium.context`): cookies, cache and pages are nobody
else's. Nothing sleeps: what is waited for is an event of the browser.
"""

import base64
import itertools
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field

LIMIT = 300.0               # seconds: a machine with other things to do
_WORDS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
          "--disable-component-update", "--disable-dev-shm-usage", "--disable-extensions", "--disable-sync",
          "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost", "--hide-scrollbars",
          "--remote-debugging-pipe", "about:blank")
_LOADED = "Page.loadEventFired"
_KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "Space": (32, " ")}


@define(eq=False)
class Pipe:
    """The connection: what is asked for has a number, and what comes unasked goes to the page that it is of."""

    write: int
    read: int
    _pages: "dict[str, Browser]" = field(factory=dict, init=False)
    _rest: bytes = field(default=b"", init=False)
    _numbers: Iterator[int] = field(factory=itertools.count, init=False)

    def send(self, method: str, session: str = "", **values: object) -> int:
        """Ask, and do not wait; the number of the answer."""
        message = {"id": next(self._numbers), "method": method, "params": values}
        if session:
            message["sessionId"] = session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        return int(str(message["id"]))

    def ask(self, method: str, session: str = "", **values: object) -> dict[str, Any]:
        """What the browser answers. Raises AssertionError when it refuses."""
        number = self.send(method, session, **values)
        while True:
            answer = self.next()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                result: dict[str, Any] = answer["result"]
                return result

    def next(self) -> dict[str, Any]:
        """The next message; an event is noted by its page."""
        until, answers = time.monotonic() + LIMIT, select.poll()     # select(2) knows no descriptor above 1,023
        answers.register(self.read, select.POLLIN)
        while b"\0" not in self._rest:
            assert answers.poll(max(0.0, until - time.monotonic()) * 1000), "the browser is silent"
            more = os.read(self.read, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        if "method" in found and (page := self._pages.get(found.get("sessionId", ""))) is not None:
            page.note(found)
        return found

    def page(self, context: str | None = None) -> "Browser":
        """A new page."""
        about = {"browserContextId": context} if context is not None else {}
        target = self.ask("Target.createTarget", url="about:blank", **about)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Browser(self, session)
        for domain in ("Page", "Network", "Log", "Runtime", "Security"):
            page.ask(f"{domain}.enable")
        page.ask("Security.setIgnoreCertificateErrors", ignore=True)        # tests have certificates of their own
        return page

    def forget(self, page: "Browser") -> None:
        """Nobody looks at it any more."""
        self._pages.pop(page.session, None)


@define(eq=False)
class Browser:
    """One page. `events`: every message that came unasked since it was opened; the lists behind are of its whole life:
    `requests` what was asked of the network, `dialogs` what a script has shown (alert), `errors` what the console has.
    """

    _pipe: Pipe
    session: str
    events: list[dict[str, Any]] = field(factory=list, init=False)
    requests: list[str] = field(factory=list, init=False)
    dialogs: list[str] = field(factory=list, init=False)
    errors: list[str] = field(factory=list, init=False)

    def ask(self, method: str, **values: object) -> dict[str, Any]:
        """What the browser answers about this page."""
        return self._pipe.ask(method, self.session, **values)

    def note(self, event: dict[str, Any]) -> None:
        """An event has come."""
        self.events.append(event)
        about = event["params"]
        match event["method"]:
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])
            case "Page.javascriptDialogOpening":        # the page waits for somebody who answers
                self.dialogs.append(about["message"])
                self._pipe.send("Page.handleJavaScriptDialog", self.session, accept=True)
            case "Log.entryAdded" if about["entry"]["level"] == "error":
                self.errors.append(about["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(about["exceptionDetails"]))

    # What is shown

    def window(self, width: int, *, mobile: bool = False, dark: bool = False, media: str = "", height: int = 800
               ) -> None:
        """The size of the window, and what its user prefers."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.ask("Emulation.setEmulatedMedia", media=media, features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, address: "Path | str", width: int = 0, *, mobile: bool = False, dark: bool = False, media: str = ""
             ) -> None:
        """Show a file or a URL, in a window of that width if one is given."""
        if width:
            self.window(width, mobile=mobile, dark=dark, media=media)
        self.events.clear()
        answer = self.ask("Page.navigate", url=address.as_uri() if isinstance(address, Path) else address)
        assert not answer.get("errorText"), (address, answer)
        self.loaded()

    def loaded(self, times: int = 1) -> None:
        """Wait until so many pages are there, one after the other, since `events` was cleared."""
        while len(self.named(_LOADED)) < times:
            self._pipe.next()

    @property
    def address(self) -> str:
        """Where it is, redirections followed."""
        return str(self.value("location.href"))

    def value(self, expression: str, *, wait: bool = False) -> Any:
        """What an expression in the page gives; with `wait` what its promise gives."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=wait)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until it is true in the page as it is, looked at for each frame that is drawn. Raises AssertionError."""
        self.value(f"""new Promise((done, failed) => {{
            const end = Date.now() + {LIMIT * 1000:.0f};
            const look = () => {{
                let is = false;
                try {{ is = {expression}; }} catch (error) {{ }}         // what it is about is not there yet
                if (is) done(true);
                else if (Date.now() > end) failed("never: " + {json.dumps(expression)});
                else requestAnimationFrame(look);
            }};
            look();
        }})""", wait=True)

    def text(self, selector: str = "body") -> str:
        """What a person reads there."""
        return str(self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def status(self) -> int:
        """Of the answer that is shown."""
        return next(int(event["response"]["status"]) for event in reversed(self.named("Network.responseReceived"))
                    if event["type"] == "Document")

    # What a person does

    def fill(self, selector: str, text: str) -> None:
        """Type into a field, in place of what is there."""
        self.value(f"(field => {{ field.focus(); field.select(); }})(document.querySelector({json.dumps(selector)}))")
        self.ask("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        """Choose an entry of a select."""
        self.value(f"(field => {{ field.value = {json.dumps(value)}; field.dispatchEvent(new Event('change', "
                   f"{{bubbles: true}})); }})(document.querySelector({json.dumps(selector)}))")

    def click(self, selector: str, *, loads: bool = False) -> None:
        """Press the mouse on it; with `loads` wait for the page to which that leads."""
        where = self.value("(each => { each.scrollIntoView({block: 'center', behavior: 'instant'}); const place = each."
                           "getBoundingClientRect(); return [place.x + place.width / 2, place.y + place.height / 2];"
                           f" }})(document.querySelector({json.dumps(selector)}))")
        self.events.clear()
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=where[0], y=where[1], button="left", clickCount=1)
        if loads:
            self.loaded()

    def press(self, key: str, *, loads: bool = False, shift: bool = False) -> None:
        """Press a key of the keyboard."""
        code, text = _KEYS[key]
        self.events.clear()
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=" " if key == "Space" else key, code=key, text=text if
                     kind == "keyDown" else "", windowsVirtualKeyCode=code, modifiers=8 if shift else 0)
        if loads:
            self.loaded()

    # What is kept of it

    def pdf(self) -> bytes:
        """The page in print."""
        return base64.b64decode(self.ask("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])

    def screenshot(self, height: int = 0) -> bytes:
        """A PNG of the page: all of it, or so much from its top."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], height or size["height"]),
                "scale": 1}
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                                         clip=clip)["data"])

    def named(self, method: str) -> list[dict[str, Any]]:
        """The events of that name since the page was opened."""
        return [event["params"] for event in self.events if event.get("method") == method]


@define(eq=False)
class Chromium:
    """A browser that runs."""

    pipe: Pipe

    @contextmanager
    def context(self) -> "Iterator[Browser]":
        """A page that shares nothing with any other: what two people have, each at a machine of their own."""
        context = self.pipe.ask("Target.createBrowserContext")["browserContextId"]
        page = self.pipe.page(context)
        try:
            yield page
        finally:
            self.pipe.forget(page)
            self.pipe.ask("Target.disposeBrowserContext", browserContextId=context)


@contextmanager
def running(folder: Path, network: Sequence[str] = ()) -> Iterator[Chromium]:
    """A browser with its files in the folder, and its end. `network`: words that put it into another network."""
    (theirs, write), (read, back) = os.pipe(), os.pipe()
    process = subprocess.Popen(
        [*network, "bash", "-c", f'exec "$@" 3<&{theirs} 4>&{back}', "bash", "chromium", f"--user-data-dir={folder}",
         *_WORDS],
        pass_fds=(theirs, back), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(theirs)
    os.close(back)
    pipe = Pipe(write, read)
    try:
        yield Chromium(pipe)
    finally:
        try:
            pipe.ask("Browser.close")
            process.wait(LIMIT)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
        os.close(write)
        os.close(read)


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser for one page."""
    with running(folder) as started:
        yield started.pipe.page()
