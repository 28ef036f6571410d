"""A real nginx, the Debian package, with the mail proxy that we ship: its own folder, and free ports of loopback."""

import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support import ROOT
from tests.support.processes import wait
from tests.support.processes.ports import free_port

SHIPPED = ROOT / "docs/front/nginx.conf"
MODULES = Path("/usr/lib/nginx/modules")
START, STOP = 180, 180        # seconds


class Nginx:
    """It asks the port `front` who logs in, and shows `certificate`. Started on entry, stopped and gone on exit.

    `secret` is the front's file, which may come only before the start.
    `changes` are further parts of the shipped file that are replaced, as a site would.
    """

    def __init__(self, folder: Path, front: int, certificate: Path, secret: Path,
                 changes: Mapping[str, str] | None = None) -> None:
        if not shutil.which("nginx") or not (MODULES / "ngx_mail_module.so").exists():
            raise AssertionError("nginx is not installed: apt-get install nginx libnginx-mod-mail")
        self.folder = folder / "nginx"
        self.folder.mkdir()
        (self.folder / "modules").symlink_to(MODULES)       # their names are relative
        self.imap, self.imaps, self.pop3, self.pop3s = (free_port() for _ in range(4))
        self._process: subprocess.Popen[bytes] | None = None
        self._secret = secret
        text = SHIPPED.read_text()
        ports = {143: self.imap, 993: self.imaps, 110: self.pop3, 995: self.pop3s}
        for old, new in {
                **{f"listen {port} ": f"listen 127.0.0.1:{ours} " for port, ours in ports.items()},
                "http://127.0.0.1:8143/": f"http://127.0.0.1:{front}/",
                "include /etc/nginx/onecopy-secret.conf;": f"include {self.folder}/onecopy-secret.conf;",
                "/etc/ssl/certs/mail.example.org.pem": str(certificate),
                "/etc/ssl/private/mail.example.org.key": str(certificate),
                "/var/log/nginx/mail.log": str(self.folder / "mail.log"), "/run/nginx.pid": str(self.folder / "pid"),
                "worker_processes auto": "worker_processes 2", **(changes or {})}.items():
            assert text.count(old) == 1, f"nginx.conf has not {old!r} once"
            text = text.replace(old, new)
        (self.folder / "nginx.conf").write_text(text)

    def __enter__(self) -> "Nginx":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()

    def start(self) -> None:
        """Start it; return when it accepts."""
        made = re.search(r"\(umask 077; sed.*?\)$", SHIPPED.read_text().replace(" \\\n    #  ", ""), re.MULTILINE)
        assert made, "nginx.conf does not say how the secret comes to it"
        subprocess.run(made[0].replace("/var/lib/onecopy/front-secret", shlex.quote(str(self._secret))).replace(
            "/etc/nginx", shlex.quote(str(self.folder))), shell=True, check=True)
        words = ["nginx", "-p", str(self.folder), "-c", str(self.folder / "nginx.conf"), "-e",
                 str(self.folder / "mail.log"), "-g", "daemon off;"]
        with (self.folder / "said").open("ab") as said:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            wait.until(self._accepts, "nginx accepts", pid=self._process.pid, limit=START)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None

    def _accepts(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.imap), START) as connection:
                return connection.recv(4) == b"* OK"
        except (ConnectionRefusedError, ConnectionResetError):
            return False

    def stop(self) -> None:
        """At once, with all connections."""
        assert self._process is not None, "not running"
        process, self._process = self._process, None
        workers = wait.tree(process.pid)[1:]
        process.terminate()
        process.wait(STOP)
        for worker in workers:
            wait.gone(worker, "a worker of nginx", limit=STOP)

    def log(self) -> str:
        """What it has said so far."""
        return "".join(path.read_text(errors="replace") for path in (self.folder / "said", self.folder / "mail.log")
                       if path.exists())[-8000:]
