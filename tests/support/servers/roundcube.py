"""A real Roundcube, the Debian package, with the configuration that we ship, on PHP's own web server and with an SQLite
database of the test's own, on a free port of loopback.

It runs as root, which the built-in server of PHP allows; in life a web server's user runs it.
"""

import os
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support import ROOT
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.overlaid import Overlaid

SHIPPED = ROOT / "docs/examples/roundcube/config.inc.php"
START, STOP = 180, 180        # seconds
WORKERS = "3"               # a page asks for several things at once
# In this order: a module after those that it needs.
_MODULES = ("iconv", "ctype", "dom", "simplexml", "xmlreader", "xmlwriter", "fileinfo", "mbstring", "intl", "sockets",
            "pdo", "pdo_sqlite", "exif", "gd")


class Roundcube:
    """It reads mail on the TLS port `imap`, and keeps filters on the port `sieve`; `authority` has signed the
    certificate. Started on entry, gone on exit.

    `changes` are further parts of the shipped file that are replaced, as a site would; `more` is put at its end.
    """

    def __init__(self, folder: Path, imap: int, sieve: int, authority: Path,
                 changes: Mapping[str, str] | None = None, more: str = "") -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.programs = Overlaid("roundcube", folder / "own")
        self._process: subprocess.Popen[bytes] | None = None
        text = SHIPPED.read_text()
        for old, new in {"ssl://mail.example.org:993": f"ssl://127.0.0.1:{imap}",
                         "tls://mail.example.org:4190": f"tls://127.0.0.1:{sieve}",
                         "put 24 of your own here.": "twenty-four of the test's"[:24].replace("'", "-"),
                         **(changes or {})}.items():
            assert text.count(old) == 1, f"config.inc.php has not {old!r} once"
            text = text.replace(old, new)
        for name in ("temp", "log"):
            (folder / name).mkdir(parents=True)
        self.programs.write("etc/roundcube/config.inc.php", text + f"""
$config['log_dir'] = '{folder}/log/';
$config['temp_dir'] = '{folder}/temp/';
{more}
""")
        self.programs.write("etc/roundcube/debian-db.php",
                            f"<?php $dbtype = 'sqlite3'; $basepath = '{folder}'; $dbname = 'roundcube.sqlite';\n")
        self.programs.write("etc/onecopy-php/test.ini", "".join(f"extension={name}\n" for name in _MODULES) + f"""\
zend_extension=opcache
opcache.enable_cli=1
opcache.file_update_protection=0
opcache.validate_timestamps=0
openssl.cafile={authority}
date.timezone=UTC
""")
        with sqlite3.connect(folder / "roundcube.sqlite") as database:
            database.executescript((self.programs.package / "usr/share/roundcube/SQL/sqlite.initial.sql").read_text())
        database.close()

    def __enter__(self) -> "Roundcube":
        self._process = self.programs.start(
            ["php.default", "-S", f"127.0.0.1:{self.port}", "-t", "/var/lib/roundcube/public_html"],
            self.folder / "said", {"PHP_INI_SCAN_DIR": "/etc/onecopy-php", "PHP_CLI_SERVER_WORKERS": WORKERS})
        try:
            wait.until(self._accepts, "Roundcube accepts", pid=self._process.pid, limit=START)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None
        return self

    def _accepts(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), START):
                return True
        except ConnectionRefusedError:
            return False

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)        # PHP's server leaves its workers behind at SIGTERM
            self._process.wait(STOP)

    def log(self) -> str:
        """What PHP and Roundcube have said so far; a page that went well says nothing in `errors`."""
        return "".join(path.read_text(errors="replace") for path in (self.folder / "said", *(
            self.folder / "log").iterdir()) if path.exists())[-8000:]

    def errors(self) -> str:
        """What Roundcube and PHP hold for an error."""
        file = self.folder / "log/errors.log"
        return (file.read_text(errors="replace") if file.exists() else "") + "".join(
            line for line in (self.folder / "said").read_text(errors="replace").splitlines(keepends=True)
            if any(word in line for word in ("PHP Fatal", "PHP Warning", "PHP Notice", "PHP Deprecated")))
