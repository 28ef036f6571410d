"""`onecopy --server URL --token-file FILE COMMAND ...`: a command that a server elsewhere carries out, by its API
(docs/http.md). What is read from standard input, the files of `--token-file` and `--server-ca`, and those that a
command reads as its input (`argumentnames.SENT`) are here; every other file that the command names is the server's."""

import argparse
import http.client
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
from store.accounts import clienttls
from store.errors import in_words
from tools.cli import program, registry
from tools.cli.elsewhere import batchlines
from tools.cli.elsewhere.argumentnames import SENT, STREAM, named, reads_input
from tools.cli.options import TYPED
from tools.cli.output import print_json
from tools.exits import Failure

PAUSE = 1.0             # seconds between two questions what has become of it
PATIENCE = 60.0         # seconds that the server may take to say something
MOST = 64 << 20         # octets of an answer
_LOCAL = frozenset({"help", "json", "bytes", "yes"})
_FILES = ("ARCHIVE", "DIR", "FILE", "FOLDER", "PATH")       # in what an argument is called that names one
#: What to do, by the number that OpenSSL has for what is wrong with a certificate.
_CERTIFICATES = {
    10: " (its owner must renew it)",
    18: ": --server-ca FILE names a file with it, where you know that it is the right one",
    19: ": --server-ca FILE names a file with the certificate of its authority",
    20: ": --server-ca FILE names a file with the certificate of its authority",
    62: ": give the name in --server that the certificate has",
    64: ": give the name in --server that the certificate has"}


def parser() -> argparse.ArgumentParser:
    """What stands in front of a command."""
    made = argparse.ArgumentParser(prog="onecopy", add_help=False, allow_abbrev=False)
    made.add_argument("--server", metavar="URL", required=True)
    made.add_argument("--token-file", metavar="FILE", type=Path, required=True)
    made.add_argument("--server-ca", metavar="FILE", type=Path)
    made.add_argument("command", nargs=argparse.REMAINDER)
    return made


def run(words: Sequence[str]) -> int:
    """Have it carried out, and print what it printed; its exit status. Raises Failure."""
    typed = parser().parse_args(words)
    if urlsplit(typed.server).scheme not in ("http", "https"):
        raise Failure("--server must be a URL, http:// or https://")
    if urlsplit(typed.server).scheme == "http" and not _is_this_host(urlsplit(typed.server).hostname or ""):
        raise Failure("--server must be https:// : anybody on the way could read the token")
    if typed.command[:1] == ["batch"]:
        return _batch(typed.command, words[:len(words) - len(typed.command)])
    name, given, arguments = _given(typed.command)
    if getattr(arguments, "yes", True) is False:
        raise Failure("nothing was changed: nobody is there to be asked; use --yes")
    if octets := _sent(name, given):
        given["stdin_base64"] = octets
    as_json = getattr(arguments, "json", False)
    place = f"/api/v1/{name.replace(' ', '/')}" + ("" if as_json else "?form=text")
    server = _Server(typed.server.rstrip("/"), _token(typed.token_file), _context(typed.server_ca))
    try:
        told = server.ask(place, json.dumps(given).encode())
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Failure(f"{typed.server}: {_why(error)}", 1) from None
    if as_json and "result" in told:
        print_json(told["result"])
    else:
        print(told.get("output", ""), end="")
    print(told.get("errors", ""), end="", file=sys.stderr)
    return int(told["exit"])


def _batch(command: Sequence[str], before: Sequence[str]) -> int:
    """The commands in a file of this machine, each by an operation of its own. Raises Failure."""
    arguments = program.parse(command).arguments
    lines = batchlines.read(arguments.file)
    batchlines.must_be_right(lines, lambda words: _given(words)[0])
    if arguments.check:
        return 0
    return batchlines.carry_out(lines, lambda words: program.guarded(lambda: run([*before, *words])),
                                goes_on=arguments.keep_going, as_json=arguments.json)


def _sent(name: str, given: dict[str, Any]) -> str:
    """What goes along with a command, in base64: the file of this machine that it names as its input, which is replaced
    in `given`, or standard input. Raises Failure."""
    files = [each for each in given if (name, each) in SENT and given[each] != STREAM]
    if len(files) + reads_input(name, given) > 1:
        raise Failure(f"{name}: only one file, or standard input, can be sent to the server")
    for each in files:
        octets = _octets(Path(given.pop(each)))
        given.update([SENT[name, each]])
        return b64encode(octets).decode()
    if not reads_input(name, given):
        return ""
    if sys.stdin is None:
        raise Failure("there is no standard input")
    return b64encode(sys.stdin.buffer.read()).decode()


def _octets(file: Path) -> bytes:
    """Those of a file of this machine. Raises Failure."""
    try:
        return privatefiles.read_named(file)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror or error}", 1) from None


def _token(file: Path) -> str:
    """The first word in the file. Raises Failure."""
    words = _octets(file).split()
    if not words or not words[0].isascii():
        raise Failure(f"{file} has no token: `onecopy token create` on the server prints one")
    return words[0].decode()


def _context(authorities: Path | None) -> ssl.SSLContext:
    """Takes the certificate of the host that was named, by an authority that is known here, or in that file. Raises
    Failure."""
    if authorities is None:
        return clienttls.context()
    try:
        return clienttls.context(pem=_octets(authorities).decode("ascii", "replace"))
    except ssl.SSLError:
        raise Failure(f"{authorities} has no certificate in PEM") from None


def _why(error: Exception) -> str:
    """What went wrong, and what to do about it, where one can know that."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        advice = _CERTIFICATES.get(reason.verify_code, "")
        return f"its certificate is not accepted: {reason.verify_message.rstrip('.')}{advice}"
    if isinstance(reason, ssl.SSLError):
        return f"it does not speak TLS as we do ({reason.reason or reason}): is this the port of http.tls_port?"
    if isinstance(reason, TimeoutError):
        return "it does not answer in time"
    if isinstance(reason, OSError):
        return in_words(reason)
    return "what answers there is no onecopy, or its port is not that of HTTP"


def _given(words: Sequence[str]) -> tuple[str, dict[str, Any], argparse.Namespace]:
    """The command's name and its arguments, as the API has them."""
    grown = program._grown(words, registry.modules(words))
    files = set[argparse.Action]()
    for parser in grown.parsers:
        for action in parser._actions:
            if action.type is Path or any(word in str(action.metavar) for word in _FILES):
                files.add(action)
            action.type = None                  # the server reads them
    arguments, unknown = grown.top.parse_known_args(words)
    if unknown:
        arguments.parser.unknown(unknown)
    if any(name.startswith(TYPED) for name in vars(arguments)) or getattr(arguments, "config", None):
        raise Failure("the configuration is the server's: none of its options can be given with --server")
    command, given = arguments.program.removeprefix("onecopy "), dict[str, Any]()
    for name, _, action in named(arguments.parser):
        value = getattr(arguments, action.dest, None)
        if (name in _LOCAL or action.dest == "config" or action.dest.startswith(TYPED)
                or value == arguments.parser.get_default(action.dest)):
            continue
        if action.nargs == 0:
            if value == action.const:
                given[name] = True
        elif value not in ([], None):
            if action in files and (command, name) not in SENT:
                _require_whole_paths(name, value if isinstance(value, list) else [value])
            given[name] = value
    return command, given, arguments


def _require_whole_paths(name: str, values: Sequence[str]) -> None:
    """A file is one of the server, which knows nothing of the folder in which somebody stands here. Raises Failure."""
    for value in values:
        if value != STREAM and "://" not in value and not value.startswith("/"):
            raise Failure(f"{name} names a file of the server, not of this machine: give its whole path there, not "
                          f"{value}")


def _is_this_host(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class _Server:
    """The API of one."""

    def __init__(self, url: str, token: str, context: ssl.SSLContext) -> None:
        self._url = url
        self._fields = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
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
