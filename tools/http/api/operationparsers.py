"""The operations of the API, made from the parsers of the commands, which say what arguments there are. Importing this
loads the program: `forkserver` does it."""

import argparse
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tools.cli import program, registry
from tools.cli.elsewhere.argumentnames import named
from tools.http.api.operationlist import (
    LONGEST,
    MOST_VALUES,
    NOT_OFFERED,
    STDIN,
    STDIN_BASE64,
    Argument,
    Operation,
    OperationList,
)

_HERE = frozenset({"watch", "prometheus", "csv", "help", "bytes", "yes", "json"})       # set here, or of no use here
# What names programs, or files that do: a token is no shell.
_PROGRAMS = frozenset({"freeze", "freeze_time", "tunnel", "doveadm", "dovecot_config", "imapd_conf", "bin", "spark",
                       "master", "engine", "postfix"})


@cache
def operations() -> Mapping[str, Operation]:
    """All of them by path. It loads every command."""
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


def listed(version: str) -> OperationList:
    """All there is to know of them."""
    return OperationList(operations(), json.dumps(openapi(operations(), version)).encode() + b"\n")


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
            ("409", "the command was refused, or has failed"),
            ("413", "the body, a list or a text in it is too long"),
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
                "responses": {status: answer for status, answer in answers.items() if status != "415"}}}},
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
