"""Roundcube, as somebody sees it in a browser."""

import json
import os
from pathlib import Path

from attrs import frozen

from tests.support.clients.chromium import Browser
from tests.support.servers.server import PASSWORD

READING = "document.querySelector('#messagecontframe').contentDocument"        # the message beside the list


@frozen
class Webmail:
    """Somebody at the page of Roundcube at this address."""

    page: Browser
    address: str

    def log_in(self, user: str, password: str = PASSWORD) -> None:
        """By the form."""
        self.page.open(self.address, 1400)
        self.page.fill("#rcmloginuser", user)
        self.page.fill("#rcmloginpwd", password)
        self.page.click("#rcmloginsubmit", loads=True)
        assert "_task=mail" in self.page.address, self.page.text()
        self.idle()

    def idle(self) -> None:
        """Nothing is under way."""
        self.page.until("!rcmail.busy")

    def enabled(self, command: str, window: str = "window") -> None:
        """Wait until a button does something: a page is shown before its script has come so far."""
        self.page.until(f"!{window}.rcmail.busy && {window}.rcmail.commands[{json.dumps(command)}]")

    def open(self, task: str, **values: str) -> None:
        """Another page."""
        self.page.open(f"{self.address}/?_task={task}" + "".join(
            f"&_{name}={value}" for name, value in values.items()))
        self.idle()

    def subjects(self) -> list[str]:
        """What is listed."""
        found = self.page.value("[...document.querySelectorAll('#messagelist tr.message span.subject a')].filter("
                                "each => each.offsetParent).map(each => each.innerText.trim())")
        return list(found)

    def lists(self, *subjects: str) -> None:
        """Wait until these are listed, the newest first."""
        self.page.until("!rcmail.busy && JSON.stringify([...document.querySelectorAll('#messagelist tr.message "
                        "span.subject a')].filter(each => each.offsetParent).map(each => each.innerText.trim())) == "
                        f"{json.dumps(json.dumps(subjects, separators=(',', ':'), ensure_ascii=False))}")

    def choose(self, subject: str) -> None:
        """Press on a message, and read it."""
        self.mark("#messagelist span.subject a", subject)
        self.page.click("[data-test]")
        self.page.until(f"{READING}.querySelector('h2.subject').innerText.includes({json.dumps(subject)})")

    def mark(self, selector: str, text: str, document: str = "document") -> None:
        """The first of these that says so is `[data-test]`."""
        self.page.until(f"""(found => {{
            document.querySelectorAll("[data-test]").forEach(each => each.removeAttribute("data-test"));
            if (found) found.dataset.test = "";
            return !!found;
        }})([...{document}.querySelectorAll({json.dumps(selector)})].find(
            each => each.innerText.trim() == {json.dumps(text)} && each.offsetParent))""")

    def does(self, command: str, *values: object) -> None:
        """What an entry of a menu does; what is asked for while something is under way is not done."""
        self.enabled(command)
        self.page.value(f"rcmail.command({', '.join(json.dumps(each) for each in (command, *values))})")
        self.idle()

    def confirm(self) -> None:
        """Yes, to what it asks."""
        self.page.until("document.querySelector('.ui-dialog button.mainaction')")
        self.page.click(".ui-dialog button.mainaction")

    def folders(self) -> list[str]:
        """What the list at the left has."""
        return list(self.page.value("[...document.querySelectorAll('#mailboxlist li a')].map(each => each.rel)"))

    def picture(self, name: str) -> None:
        """For the documentation, if it is wanted."""
        if folder := os.environ.get("PICTURES"):
            (Path(folder) / f"{name}.png").write_bytes(self.page.screenshot(800))
