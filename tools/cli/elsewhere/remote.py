"""`onecopy --server URL --token-file FILE COMMAND ...`: a command that a server elsewhere carries out, by its API
(docs/http.md)."""

import argparse
import ipaddress
import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mboxlist import privatefiles
from tools.cli import program, registry
from tools.cli.elsewhere.argumentnames import named
from tools.cli.options import TYPED
from tools.cli.output import print_json
from tools.exits import Failure

PAUSE = 1.0             # seconds between two questions what has become of it
PATIENCE = 60.0         # seconds that the server may take to say something
MOST = 64 << 20         # octets of an answer
_LOCAL = frozenset({"help", "json", "bytes", "yes"})


def run(words: Sequence[str]) -> int:
    """Have it carried out, and print what it printed; its exit status. Raises Failure."""
    parser = argparse.ArgumentParser(prog="onecopy", add_help=False, allow_abbrev=False)
    parser.add_argument("--server", metavar="URL", required=True)
    parser.add_argument("--token-file", metavar="FILE", type=Path, required=True)
    parser.add_argument("--server-ca", metavar="FILE", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    typed = parser.parse_args(words)
    if urlsplit(typed.server).scheme not in ("http", "https"):
        raise Failure("--server must be a URL, http:// or https://")
    if urlsplit(typed.server).scheme == "http" and not _is_this_host(urlsplit(typed.server).hostname or ""):
        raise Failure("--server must be https:// : anybody on the way could read the token")
    name, given, arguments = _given(typed.command)
    if getattr(arguments, "yes", True) is False:
        raise Failure("nothing was changed: nobody is there to be asked; use --yes")
    if any(key.endswith("_stdin") for key in given) or name == "deliver":
        given["stdin_base64"] = b64encode(sys.stdin.buffer.read()).decode()
    as_json = getattr(arguments, "json", False)
    place = f"/api/v1/{name.replace(' ', '/')}" + ("" if as_json else "?form=text")
    try:
        token = privatefiles.read_named(typed.token_file).split()
        server = _Server(typed.server.rstrip("/"), token[0].decode() if token else "", typed.server_ca)
        told = server.ask(place, json.dumps(given).encode())
    except (OSError, ValueError) as error:
        raise Failure(f"{typed.server}: {error}", 1) from None
    if as_json and "result" in told:
        print_json(told["result"])
    else:
        print(told.get("output", ""), end="")
    print(told.get("errors", ""), end="", file=sys.stderr)
    return int(told["exit"])


def _given(words: Sequence[str]) -> tuple[str, dict[str, Any], argparse.Namespace]:
    """The command's name and its arguments, as the API has them."""
    grown = program._grown(words, registry.modules(words))
    for parser in grown.parsers:
        for action in parser._actions:
            action.type = None                  # the server reads them
    arguments, unknown = grown.top.parse_known_args(words)
    if unknown:
        arguments.parser.unknown(unknown)
    if any(name.startswith(TYPED) for name in vars(arguments)) or getattr(arguments, "config", None):
        raise Failure("the configuration is the server's: none of its options can be given with --server")
    given: dict[str, Any] = {}
    for name, _, action in named(arguments.parser):
        value = getattr(arguments, action.dest, None)
        if (name in _LOCAL or action.dest == "config" or action.dest.startswith(TYPED)
                or value == arguments.parser.get_default(action.dest)):
            continue
        if action.nargs == 0:
            if value == action.const:
                given[name] = True
        elif value not in ([], None):
            given[name] = value
    return arguments.program.removeprefix("onecopy "), given, arguments


def _is_this_host(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class _Server:
    """The API of one."""

    def __init__(self, url: str, token: str, authorities: Path | None) -> None:
        self._url = url
        self._fields = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        context = ssl.create_default_context(cafile=None if authorities is None else str(authorities))
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())

    def ask(self, place: str, body: bytes) -> Mapping[str, Any]:
        """What has become of the operation, when it has ended. Raises Failure, OSError, ValueError."""
        told, where = self._once(place, body)
        while told["state"] == "running":
            time.sleep(PAUSE)
            told, _ = self._once(where, None)
        return told

    def _once(self, place: str, body: bytes | None) -> tuple[Mapping[str, Any], str]:
        request = urllib.request.Request(self._url + place, body, self._fields)
        try:
            with self._opener.open(request, timeout=PATIENCE) as answer:
                return json.loads(answer.read(MOST)), answer.headers.get("Location", place)
        except urllib.error.HTTPError as error:
            told = json.loads(error.read(MOST))
            if "exit" in told:
                return told, place
            raise Failure(f"{self._url}: {told.get('detail', error.reason)}", 1) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token is for that server alone."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None is followed."""
