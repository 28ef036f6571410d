"""README's session, typed as it is printed: what README promises to answer is what comes."""

import os
import re
import subprocess
from pathlib import Path

from store.settings import Settings
from tests.support import ROOT
from tests.support.servers.server import PASSWORD, PROGRAM, Server

README = ROOT / "README.md"


def session() -> list[tuple[str, list[str]]]:
    """The commands of the session, each with the lines that README shows as its answer (without empty ones)."""
    text = README.read_text().split("## A session")[1].split("\n## ")[0].replace("\\\n", "")
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("    $ "):
            found.append((line[6:], []))
        elif line.startswith("    ") and found:
            found[-1][1].append(line[4:])
        elif line and found:
            found.append(("true", []))          # prose: what is indented after it is not an answer to the last command
    return [(command, answer) for command, answer in found if command != "true"]


def test_the_session_works_as_printed(tmp_path: Path) -> None:
    commands = session()
    assert len(commands) >= 10
    usual = {"store.special_mailboxes": ",".join(Settings().special_mailboxes)}     # as whoever types it has them
    with Server(tmp_path, ["alice", "bob"], usual, program=PROGRAM) as server:
        ports = {"1143": server.imap, "1110": server.pop3, "1024": server.lmtp,
                 "1993": server.options["imap.tls_port"], "1995": server.options["pop3.tls_port"]}
        environment = {**os.environ, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "ONECOPY_ROOT": str(server.root),
                       "ALICE": f"alice:{PASSWORD}", "BOB": f"bob:{PASSWORD}"}
        for command, answer in commands:
            typed = re.sub(r"(?<=:)(1143|1110|1024|1993|1995)\b", lambda port: str(ports[port[1]]), command)
            typed = typed.replace("var/store", str(server.root))
            done = subprocess.run(["bash", "-c", typed], env=environment, capture_output=True, text=True, timeout=180,
                                  stdin=subprocess.DEVNULL, check=False)
            assert done.returncode == 0, f"{typed}\n{done.stdout}{done.stderr}"
            lines = [line for line in done.stdout.splitlines() if line]
            assert not answer or lines[:len(answer)] == answer, typed
