"""A real Thunderbird on a screen that nobody sees (Xvfb), spoken to by Marionette, which it has in it: JSON over a TCP
connection, each message with its length before it. No library.

It knows nothing but the hosts that it is given and what /etc/thunderbird/policies says. A start takes seconds of the
processor, so there is one for many tests.
"""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.overlaid import Overlaid

LIMIT = 300.0               # seconds: a machine with other things to do
SIZE = "1280x800x24"
_PREFERENCES: Mapping[str, "str | int | bool"] = {
    "app.donation.eoy.version.viewed": 999, "app.update.enabled": False, "browser.dom.window.dump.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False, "mail.shell.checkDefaultClient": False,
    "mail.spotlight.firstRunDone": True, "mail.rights.version": 1, "mailnews.start_page.enabled": False,
    "mailnews.start_page_override.mstone": "ignore", "mail.winsearch.firstRunDone": True,
    "network.captive-portal-service.enabled": False, "network.connectivity-service.enabled": False,
    "network.manage-offline-status": False, "security.sandbox.content.level": 0, "signon.rememberSignons": True,
    "toolkit.telemetry.reportingpolicy.firstRun": False, "extensions.getAddons.cache.enabled": False,
    "services.settings.server": "data:,", "calendar.timezone.local": "UTC", "intl.locale.requested": "en-US"}

# In its main window: the elements of its web components, too.
_DEEP = """(window.deep = (selector, below = document) => [
    ...below.querySelectorAll(selector), ...[...below.querySelectorAll("*")].filter(each => each.shadowRoot).flatMap(
        each => window.deep(selector, each.shadowRoot))], true)"""
_TYPE = """((field, text) => {{
    field.focus();
    field.value = text;
    for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, {{bubbles: true, composed: true}}));
    field.blur();
    return true;
}})(window.deep({})[0], {})"""
# An account of which all is known.
_ADD = """(() => {{
    const server = MailServices.accounts.createIncomingServer({user}, {host}, "imap");
    Object.assign(server, {{port: {port}, socketType: 0, authMethod: 3, password: {password}}});
    const account = MailServices.accounts.createAccount();
    account.incomingServer = server;
    account.addIdentity(MailServices.accounts.createIdentity());
    return true;
}})()"""
# The account, a mailbox of it by its name, what shows them, and a message by its subject.
_ACCOUNT = """(host => {
    window.account = MailServices.accounts.allServers.find(each => (each.hostname || each.hostName) == host);
    window.at = name => account.rootFolder.descendants.find(each => each.URI.endsWith(`@${host}/${name}`));
    window.pane = document.getElementById("tabmail").currentAbout3Pane;
    window.mail = (name, subject) => [...at(name).messages].find(
        each => (each.flags & Ci.nsMsgMessageFlags.HasRe ? "Re: " : "") + each.mime2DecodedSubject == subject);
    return true;
})"""
# What it has of a mailbox: UID, Message-ID, the flags that it shows, and keywords.
_KNOWN = """[...at({}).messages].map(each => [each.messageKey, each.messageId, [
    each.isRead && "\\\\Seen", each.isFlagged && "\\\\Flagged",
    each.flags & Ci.nsMsgMessageFlags.Replied && "\\\\Answered",
    ...each.getStringProperty("keywords").split(" ")].filter(each => each)])"""
# Ask the server for what is new there; the end of it, whatever that was. Beside something else that it does there it
# may never say how that ended: whoever waits for something asks again then.
_UPDATE = """new Promise(done => {{
    setTimeout(done, 10000);
    at({}).QueryInterface(Ci.nsIMsgImapMailFolder).updateFolderWithListener(msgWindow, {{
        OnStartRunningUrl() {{}}, OnStopRunningUrl: (url, status) => done(status)}});
}})"""
# A connection made in another network is handed over.
_CONNECT = """
import socket, sys, time
end = time.monotonic() + float(sys.argv[3])
while True:
    try:
        made = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
        break
    except ConnectionRefusedError:
        if time.monotonic() > end:
            raise
        time.sleep(0.05)
socket.send_fds(socket.socket(fileno=int(sys.argv[1])), [b"x"], [made.fileno()])
"""


class Thunderbird:
    """`hosts` are names and addresses; `authority` has signed their certificates. Started on entry, gone on exit.
    `network`: words before a command that is to run in another network."""

    def __init__(self, folder: Path, hosts: Mapping[str, str], authority: Path, network: Sequence[str] = ()) -> None:
        self.folder = folder
        self._network = list(network)
        self._port = free_port()
        self._programs = Overlaid("thunderbird", folder / "own")
        self._programs.write("etc/hosts", "127.0.0.1 localhost\n" + "".join(
            f"{address} {name}\n" for name, address in hosts.items()))
        self._programs.write("etc/resolv.conf", "nameserver 127.0.0.1\n")        # nobody is there: it hears at once
        self._programs.write("etc/thunderbird/policies/policies.json", json.dumps({"policies": {
            "Certificates": {"Install": [str(authority)]}, "DisableTelemetry": True, "DisableAppUpdate": True}}))
        (folder / "profile").mkdir(parents=True)
        (folder / "profile/user.js").write_text("".join(
            f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
            for name, value in {**_PREFERENCES, "marionette.port": self._port}.items()))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._numbers = 0

    def __enter__(self) -> "Thunderbird":
        read, write = os.pipe()
        os.set_inheritable(write, True)
        try:
            with (self.folder / "said").open("ab") as said:
                self._processes.append(subprocess.Popen(
                    [*self._network, *self._programs.words("Xvfb", "-displayfd", str(write), "-screen", "0", SIZE,
                                                           "-nolisten", "tcp")],
                    stdin=subprocess.DEVNULL, stdout=said, stderr=said, pass_fds=(write,), start_new_session=True))
            os.close(write)
            with os.fdopen(read) as told:
                display = told.readline().strip()
            assert display, self.log()
            self._processes.append(self._programs.start(
                ["/usr/lib/thunderbird/thunderbird-bin", "--marionette", "--remote-allow-system-access", "--no-remote",
                 "--profile", str(self.folder / "profile")], self.folder / "said",
                {"DISPLAY": f":{display}", "HOME": str(self.folder), "MOZ_DISABLE_CONTENT_SANDBOX": "1", "TZ": "UTC",
                 "NO_AT_BRIDGE": "1", "GDK_BACKEND": "x11", "LC_ALL": "C.UTF-8"}, self._network))
            self._socket = self._reached_there() if self._network else wait.until(
                self._reached, "Thunderbird accepts", pid=self._processes[-1].pid, limit=LIMIT)
            self._file = self._socket.makefile("rb")
            self._next()                    # who it is
            self.ask("WebDriver:NewSession")
            self.ask("Marionette:SetContext", value="chrome")
            self.ask("WebDriver:SetTimeouts", script=int(LIMIT * 1000))
            self.value(_DEEP)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _reached(self) -> "socket.socket | None":
        try:
            return socket.create_connection(("127.0.0.1", self._port), LIMIT)
        except ConnectionRefusedError:
            return None

    def _reached_there(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            subprocess.run([*self._network, sys.executable, "-c", _CONNECT, str(theirs.fileno()), str(self._port),
                            str(LIMIT)], pass_fds=(theirs.fileno(),), check=True)
            return socket.socket(fileno=socket.recv_fds(ours, 1, 1)[1][0])

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def log(self) -> str:
        """What it has said."""
        return (self.folder / "said").read_text(errors="replace")[-4000:]

    def _next(self) -> Any:
        length = b""
        while (octet := self._file.read(1)) != b":":
            assert octet, f"Thunderbird has ended\n{self.log()}"
            length += octet
        return json.loads(self._file.read(int(length)))

    def ask(self, command: str, **values: object) -> Any:
        """What Marionette answers. Raises AssertionError when it refuses."""
        self._numbers += 1
        message = json.dumps([0, self._numbers, command, values]).encode()
        self._socket.sendall(b"%d:%b" % (len(message), message))
        _, number, error, result = self._next()
        assert number == self._numbers and error is None, (command, values, error)
        return result

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives in the main window, with Thunderbird's own rights; of a promise, what it
        gives in the end."""
        found = self.ask("WebDriver:ExecuteAsyncScript", script=f"""
            const done = arguments[arguments.length - 1];
            (async () => ({expression}))().then(value => done({{value}}), error => done({{error: `${{error}}`}}));
            """, args=[], sandbox="system", newSandbox=False)["value"]
        assert "error" not in found, found["error"]
        return found.get("value")

    def until(self, expression: str) -> None:
        """Wait until it gives something that is true. Raises AssertionError."""
        self.value(f"""(async () => {{
            const end = Date.now() + {LIMIT * 900:.0f};
            let trouble = "";
            while (Date.now() < end) {{
                try {{ if (await ({expression})) return true; }} catch (error) {{ trouble = error; }}
                await new Promise(done => setTimeout(done, 20));
            }}
            throw `never: ${{trouble}} ` + {json.dumps(expression)};
        }})()""")

    # What a person does

    def press(self, selector: str) -> None:
        """A button, once it can be pressed."""
        self.until(f"window.deep({json.dumps(selector)}).some(each => !each.disabled && each.offsetParent)")
        self.value(f"window.deep({json.dumps(selector)}).find(each => each.offsetParent).click()")

    def type(self, selector: str, text: str) -> None:
        """Into a field, once it is there."""
        self.until(f"window.deep({json.dumps(selector)}).some(each => each.offsetParent)")
        self.value(_TYPE.format(json.dumps(selector), json.dumps(text)))

    def set_up(self, address: str, password: str, found: Callable[[], object] = lambda: None) -> None:
        """Type an address and a password, and nothing else; `found` is called when the settings are shown."""
        self.type("#realName", "Alice")
        self.type("#email", address)
        self.press("#forward")
        self.until("window.deep('email-config-found')[0].offsetParent")
        found()
        self.press("#forward")
        self.type("#password", password)
        self.press("#forward")
        self.until("window.deep('email-added-success')[0].offsetParent")
        self.press("#forward")
        self._use("mail.example.org")

    def add_account(self, user: str, password: str, address: str, port: int) -> None:
        """One more, without TLS: from now on all is about that one."""
        self.value(_ADD.format(user=json.dumps(user), password=json.dumps(password), host=json.dumps(address),
                               port=port))
        self._use(address)

    def _use(self, host: str) -> None:
        self.value(f"{_ACCOUNT}({json.dumps(host)})")

    def update(self, mailbox: str) -> Mapping[int, tuple[str, frozenset[str]]]:
        """Have it ask the server for what is new in that mailbox, if it reaches it; what it has then, by UID:
        Message-ID and flags."""
        self.value(_UPDATE.format(json.dumps(mailbox)))
        return {uid: (name, frozenset(flags)) for uid, name, flags in self.value(_KNOWN.format(json.dumps(mailbox)))}

    def open(self, mailbox: str) -> None:
        """Show it."""
        self.until(f"at({json.dumps(mailbox)})")
        self.value(f"(pane.displayFolder(at({json.dumps(mailbox)}).URI), true)")

    def choose(self, mailbox: str, subject: str) -> str:
        """Read a message; its text."""
        self.open(mailbox)
        which = f"mail({json.dumps(mailbox)}, {json.dumps(subject)})"
        self.until(which)
        row = f"pane.gDBView.findIndexOfMsgHdr({which}, true)"
        self.until(f"pane.gDBView && {row} < pane.gDBView.rowCount")
        self.value(f"(pane.threadTree.selectedIndex = {row}, true)")
        shown = "pane.messageBrowser.contentWindow"
        text = f"{shown}.getMessagePaneBrowser().contentDocument.body.innerText.trim()"
        self.until(f"{shown}.gMessage && {shown}.gMessage.messageKey == {which}.messageKey && {text}")
        return str(self.value(text))

    def screenshot(self) -> bytes:
        """A PNG of the window."""
        return base64.b64decode(self.ask("WebDriver:TakeScreenshot", full=False)["value"])
