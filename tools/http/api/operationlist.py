"""The operations of the API, as a process that serves HTTP knows them: it loads no command, which would hold up
whatever else it serves. `operationparsers` makes them, in the process that operations are forked from."""

import json
from collections.abc import Mapping
from typing import Any

from attrs import asdict, frozen

from tools.cli.elsewhere.argumentnames import READING_INPUT, STREAM
from tools.http.webpages import Refused

#: What a program elsewhere cannot use: they talk to a terminal, serve, or are about this host alone. A query of Spark
#: can run any program (SELECT TRANSFORM ... USING) and write any file. The rows of the databases are the owner's. What
#: is in a file of commands is asked for one by one (`tools/cli/elsewhere`).
NOT_OFFERED = frozenset({"init", "serve", "man", "completion", "spark shell", "spark sql", "spark generate",
                         "dump", "batch",
                         "standby create", "standby follow", "standby status", "standby promote",
                         "standby rejoin", "standby copy", "standby serve"})    # no server there
#: What is said once: nothing keeps what they print.
SECRET = frozenset({"token create", "access create", "user hash"})
MOST_VALUES = 1000          # of one argument,
LONGEST = 8192              # and characters of a value
STDIN, STDIN_BASE64 = "stdin", "stdin_base64"       # text, or any octets


@frozen
class Argument:
    """One of them. `flag`: how it is typed, "" for one that stands by its place; `many`: it takes several values."""

    name: str
    flag: str
    kind: str               # boolean, string
    many: bool
    help: str
    choices: tuple[str, ...] = ()
    spread: bool = False    # several values stand behind one flag

    def words(self, value: Any) -> list[str]:
        """As it is typed. Raises Refused."""
        if self.kind == "boolean":
            if not isinstance(value, bool):
                raise Refused(400, f"{self.name} must be true or false")
            return [self.flag] if value else []
        values = value if self.many and isinstance(value, list) else [value]
        if len(values) > MOST_VALUES:
            raise Refused(413, f"{self.name} has more than {MOST_VALUES} values")
        typed = [self._text(each) for each in values]
        if self.spread:
            if any(each.startswith("-") for each in typed):
                raise Refused(400, f"no value of {self.name} may begin with -")
            return [self.flag, *typed]
        return [f"{self.flag}={each}" for each in typed] if self.flag else typed

    def _text(self, value: Any) -> str:
        if not isinstance(value, str) or "\0" in value or not _is_unicode(value):
            raise Refused(400, f"{self.name} must be a string")
        if len(value) > LONGEST:
            raise Refused(413, f"{self.name} is longer than {LONGEST} characters")
        if not self.flag and value == "--":
            raise Refused(400, f"{self.name} must not be --")
        return value


@frozen
class Operation:
    """A command that can be asked for."""

    name: str
    help: str
    arguments: Mapping[str, Argument]
    flags: frozenset[str]           # all that it has

    @property
    def path(self) -> str:
        """Below /api/v1/."""
        return self.name.replace(" ", "/")

    @property
    def reads_stdin(self) -> bool:
        """Whether it can be given something to read."""
        return any(name.endswith(f"_{STDIN}") for name in self.arguments) or self.name in READING_INPUT

    def words(self, given: Mapping[str, Any], *, as_json: bool = True) -> list[str]:
        """What is typed for these arguments. Raises Refused."""
        if unknown := sorted(given.keys() - self.arguments.keys()):
            raise Refused(400, f"{self.name} has no argument {unknown[0][:100]}")
        if self.name in ("backup", "restore") and _is_streamed(given):
            raise Refused(400, "an archive is no text: name a file of the server for it")
        options, placed = list[str](), list[str]()
        for name, argument in self.arguments.items():
            if name in given:
                (options if argument.flag else placed).extend(argument.words(given[name]))
        forms = [flag for flag in (*(("--json",) if as_json else ()), "--yes") if flag in self.flags]
        return [*self.name.split(), *forms, *options, *(["--", *placed] if placed else [])]


def _is_streamed(given: Mapping[str, Any]) -> bool:
    """Whether an archive is to be read from standard input, or written to standard output, which backup does unless it
    is given a file."""
    names = given.get("archive", [])
    return STREAM in (names if isinstance(names, list) else [names]) or given.get("to", STREAM) == STREAM and (
        "archive" not in given and given.get("action", "create") == "create")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@frozen
class OperationList:
    """All operations by their paths, and their description by OpenAPI, as it is sent."""

    by_path: Mapping[str, Operation]
    description: bytes

    def to_octets(self) -> bytes:
        """As it goes from one process to another."""
        return json.dumps([asdict(each, value_serializer=_plain) for each in self.by_path.values()]).encode() + (
            b"\n" + self.description)

    @classmethod
    def from_octets(cls, octets: bytes) -> "OperationList":
        """The opposite. Raises ValueError."""
        head, newline, described = octets.partition(b"\n")
        if not newline or not described:
            raise ValueError("the list of operations is not whole")
        found = (Operation(each["name"], each["help"], {
            name: Argument(**{**about, "choices": tuple(about["choices"])}) for name, about in each["arguments"].items()
        }, frozenset(each["flags"])) for each in json.loads(head))
        return cls({each.path: each for each in found}, described)


def _plain(_: object, __: object, value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value
