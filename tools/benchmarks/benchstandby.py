"""`tools/bench up --standby`: a standby on loopback beside the server, which follows it in the mode asked for."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mboxlist import privatefiles
from store.standby import longfollowing, standbystate
from tools.benchmarks.temporaryserver import (
    ADDRESS,
    free_ports,
    is_running,
    server_ports,
    start,
    stop,
    target,
    write_state,
)
from tools.exits import Failure

MODES = SYNCHRONOUS, _ = ("synchronous", "asynchronous")
SERVED, OWN = "mail.example.org", "second.example.org"      # names in the certificates
FOLLOW_TIME = 60.0          # seconds until it must follow
COMMAND_TIME = 300.0        # seconds that any other command may take
CHECK = 0.05
BENCH = Path(__file__).resolve().parents[2] / "tools" / "bench"


def prepare(folder: Path, root: Path, mode: str) -> tuple[dict[str, Any], list[str]]:
    """What is noted of the standby, and the options of the server. Raises Failure."""
    authorities, port, own = folder / "back-ends.pem", free_ports(1)[0], folder / "standby"
    privatefiles.make_folder(own)
    noted: dict[str, Any] = {"folder": str(own), "root": str(own / "store"), "ports": server_ports(), "workers": 1,
             "pid": 0, "mode": mode, "port": port, "authorities": str(authorities),
             "options": ["--store-host", SERVED, "--exchange-authorities", str(authorities)]}
    privatefiles.make_folder(own / "store")
    privatefiles.write(authorities, _onecopy(root, SERVED, noted, "config", "certificate")
                       + _onecopy(Path(noted["root"]), OWN, noted, "config", "certificate"))
    options = ["--store-host", SERVED, "--exchange-authorities", str(authorities),
               "--exchange-address", ADDRESS, "--exchange-port", str(port),
               "--exchange-standbys", OWN, *(["--exchange-synchronous", OWN] if mode == SYNCHRONOUS else [])]
    return noted, options


def begin(noted: dict[str, Any]) -> None:
    """Make it, and have it follow. Raises Failure."""
    if standbystate.read(Path(noted["root"])) is None:
        _onecopy(Path(noted["root"]), OWN, noted, "standby", "create", "--from", f"{SERVED}={ADDRESS}:{noted['port']}")
    log = Path(noted["folder"]) / "log"
    with privatefiles.open_file(log, "ab") as output:
        process = subprocess.Popen(_words(Path(noted["root"]), "standby", "follow"), env=_environment(OWN, noted),
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    noted["pid"] = process.pid
    deadline = time.monotonic() + FOLLOW_TIME
    while not _follows(noted):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failure(f"the standby does not follow: {log}", 1)
        time.sleep(CHECK)


def described(place: Path, state: dict[str, Any]) -> dict[str, Any]:
    """What a target has more where there is a standby."""
    noted = state["standby"]
    return {"standby": {**target({**noted, "users": state["users"]}), "mode": noted["mode"],
                        "promote": [str(BENCH), "--state", str(place), "promote"]}}


def promote(place: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Stop the server, make the standby the store in its place, and serve it; its target. Raises Failure."""
    noted = state.get("standby")
    if noted is None:
        raise Failure("there is no standby: tools/bench up --standby synchronous", 1)
    stop(state)
    _onecopy(Path(noted["root"]), OWN, noted, "standby", "promote", "--yes")
    served = {**state, **{name: noted[name] for name in ("root", "ports", "options", "workers")}, "pid": 0}
    del served["standby"]
    write_state(place, served)
    return start(place, served)


def _follows(noted: dict[str, Any]) -> bool:
    said = longfollowing.seen(Path(noted["root"]))
    return is_running(noted) and said.get("pid") == noted["pid"] and not said.get("trouble", "?") and (
        noted["mode"] != SYNCHRONOUS or said.get("step") == "in step")


def _words(root: Path, *words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "tools.cli.program", *words, "--root", str(root)]


def _environment(host: str, noted: dict[str, Any]) -> dict[str, str]:
    return {**os.environ, "ONECOPY_STORE_HOST": SERVED, "ONECOPY_EXCHANGE_HOST": host,
            "ONECOPY_EXCHANGE_AUTHORITIES": noted["authorities"]}


def _onecopy(root: Path, host: str, noted: dict[str, Any], *words: str) -> str:
    try:
        found = subprocess.run(_words(root, *words), env=_environment(host, noted), stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=COMMAND_TIME)
    except subprocess.TimeoutExpired:
        raise Failure(f"onecopy {shlex.join(words)} takes too long", 1) from None
    if found.returncode:
        raise Failure(f"onecopy {shlex.join(words)}: {found.stderr.strip()}", 1)
    return found.stdout
