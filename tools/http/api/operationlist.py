"""The operations of the API: made from the parsers of the commands, which say what arguments there are."""

import argparse
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from attrs import frozen

from tools.cli import program, registry
from tools.cli.elsewhere.argumentnames import named
from tools.http.webpages import Refused

#: What a program elsewhere cannot use: they talk to a terminal, serve, or are about this host alone. A query of Spark
#: can run any program (SELECT TRANSFORM ... USING) and write any file.
NOT_OFFERED = frozenset({"init", "serve", "man", "completion", "spark shell", "spark sql", "spark generate",
                         "standby create", "standby follow", "standby status", "standby promote"})    # no server there
#: What is said once: nothing keeps what they print.
SECRET = frozenset({"token create", "access create"})
_HERE = frozenset({"watch", "prometheus", "csv", "help", "bytes", "yes", "json"})       # set here, or of no use here
# What names programs, or files that do: a token is no shell.
_PROGRAMS = frozenset({"freeze", "freeze_time", "tunnel", "doveadm", "dovecot_config", "imapd_conf", "bin", "spark",
                       "master", "engine", "postfix"})
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
            raise Refused(400, f"{self.name} has more than {MOST_VALUES} values")
        typed = [self._text(each) for each in values]
        if self.spread:
            if any(each.startswith("-") for each in typed):
                raise Refused(400, f"no value of {self.name} may begin with -")
            return [self.flag, *typed]
        return [f"{self.flag}={each}" for each in typed] if self.flag else typed

    def _text(self, value: Any) -> str:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(text, str) or len(text) > LONGEST or "\0" in text or not _is_unicode(text):
            raise Refused(400, f"{self.name} must be a string")
        if not self.flag and text == "--":
            raise Refused(400, f"{self.name} must not be --")
        return text


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
        return any(name.endswith(f"_{STDIN}") for name in self.arguments) or self.name == "deliver"

    def words(self, given: Mapping[str, Any], *, as_json: bool = True) -> list[str]:
        """What is typed for these arguments. Raises Refused."""
        if unknown := sorted(given.keys() - self.arguments.keys()):
            raise Refused(400, f"{self.name} has no argument {unknown[0][:100]}")
        options, placed = list[str](), list[str]()
        for name, argument in self.arguments.items():
            if name in given:
                (options if argument.flag else placed).extend(argument.words(given[name]))
        forms = [flag for flag in (*(("--json",) if as_json else ()), "--yes") if flag in self.flags]
        return [*self.name.split(), *forms, *options, *(["--", *placed] if placed else [])]


@cache
def operations() -> Mapping[str, Operation]:
    """All of them by path. It loads every command: for a thread."""
    return {each.path: each for each in _found(program.every_parser(), "") if each.name not in NOT_OFFERED}


def _found(parser: argparse.ArgumentParser, name: str) -> Iterator[Operation]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield from _found(below, f"{name} {word}".strip())
            return
    arguments = {each.name: each for each in (_argument(*each) for each in named(parser)) if each is not None}
    flags = frozenset(flag for action in parser._actions for flag in action.option_strings)
    yield Operation(name, registry.BY_NAME[name].help or parser.description or name, arguments, flags)


def _argument(name: str, flag: str, action: argparse.Action) -> Argument | None:
    if name in _HERE | _PROGRAMS or isinstance(action, argparse._HelpAction):
        return None
    switch = action.nargs == 0
    many = action.nargs in ("*", "+") or isinstance(action, argparse._AppendAction)
    return Argument(name, flag, "boolean" if switch else "string", many, action.help or "",
                    tuple(map(str, action.choices or ())), bool(flag) and action.nargs in ("*", "+"))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@cache
def description(version: str) -> bytes:
    """`openapi` of all operations, as it is sent."""
    return json.dumps(openapi(operations(), version)).encode() + b"\n"


def openapi(known: Mapping[str, Operation], version: str) -> dict[str, Any]:
    """The description by OpenAPI 3.0.3."""
    def schema(argument: Argument) -> dict[str, Any]:
        one: dict[str, Any] = {"type": argument.kind}
        if argument.kind == "string":
            one["maxLength"] = LONGEST
        if argument.choices and not argument.many:
            one["enum"] = list(argument.choices)
        found = {"type": "array", "items": one, "maxItems": MOST_VALUES} if argument.many else one
        return {**found, "description": argument.help}

    def body(operation: Operation) -> dict[str, Any]:
        properties = {each.name: schema(each) for each in operation.arguments.values()}
        if operation.reads_stdin:
            properties[STDIN] = {"type": "string", "description": "what the command reads from its standard input"}
            properties[STDIN_BASE64] = {"type": "string", "format": "byte",
                                        "description": f"any octets in the place of {STDIN}, in base64 (RFC 4648 §4)"}
        return {"type": "object", "properties": properties, "additionalProperties": False}

    outcome = {"$ref": "#/components/schemas/Outcome"}
    answers = {status: {"description": text, "content": {kind: {"schema": shape}}} for status, text, kind, shape in (
        ("200", "it was carried out", "application/json", outcome),
        ("202", "it is under way; Location says where to ask", "application/json", outcome),
        *((status, text, "application/problem+json", {"$ref": "#/components/schemas/Problem"}) for status, text in (
            ("400", "the request makes no sense"), ("401", "no token, or one that does not hold"),
            ("403", "the role may not do that"), ("404", "there is no such operation"), ("405", "another method"),
            ("409", "the command was refused, or has failed"), ("413", "the body is too long"),
            ("415", "the body is no JSON"), ("429", "too many failed tokens, or operations at a time"),
            ("503", "the server is stopping or full"))))}
    return {
        "openapi": "3.0.3", "info": {"title": "onecopy", "version": version,
                                     "description": "Every operation is a command of onecopy."},
        "servers": [{"url": "/api/v1"}], "security": [{"token": []}],
        "paths": {**{f"/{each.path}": {"post": {
            "operationId": each.path.replace("/", "-"), "summary": each.help,
            "requestBody": {"required": True, "content": {"application/json": {"schema": body(each)}}},
            "responses": answers}} for each in known.values()},
            "/operations/{id}": {"get": {
                "operationId": "progress", "summary": "what has become of an operation that was answered 202",
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": {status: answers[status] for status in ("200", "202", "400", "401", "404", "409", "429",
                                                                     "503")}}}},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Outcome": {"type": "object", "required": ["operation", "state"], "properties": {
                    "operation": {"type": "string"}, "state": {"type": "string", "enum": ["running", "ended"]},
                    "exit": {"type": "integer"}, "result": {}, "output": {"type": "string"},
                    "errors": {"type": "string"}}},
                "Problem": {"type": "object", "required": ["title", "status"], "properties": {
                    "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
                    "detail": {"type": "string"}}}}}}
