"""The grammar of Sieve (RFC 5228 §8): characters to commands, tests and arguments, each with its place.

Linear in the script. What names mean, and which arguments belong to them, `compiling` decides.
"""

import re
from bisect import bisect_right

from attrs import frozen

from store.sieve.scriptlimits import DEFAULT, Limits
from store.sieve.scriptproblems import Place, ScriptProblem

_TOKEN = re.compile(r"""
    (?P<blank>(?:[ \t\r\n]++|\#[^\n]*+|/\*.*?\*/)+)
  | (?P<multiline>[Tt][Ee][Xx][Tt]:[ \t]*+(?:\#[^\n]*+)?\r?\n)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*+)
  | (?P<tag>:[A-Za-z_][A-Za-z0-9_]*+)
  | (?P<number>[0-9]++[KkMmGg]?)(?![A-Za-z0-9_])
  | "(?P<quoted>(?:[^"\\]++|\\.)*)"
  | (?P<sign>[\[\](){};,])
""", re.VERBOSE | re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MULTILINE_END = re.compile(r"^\.\r?$\n?", re.MULTILINE)
_SCALE = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MOST = (1 << 63) - 1                    # a number; RFC 5228 §2.4.1 asks for 2^31 - 1


@frozen
class Argument:
    """A tag with its name in lower case (`tag`), or a number, a string or a list of strings."""

    place: Place
    value: int | str | tuple[str, ...]
    tag: bool = False


@frozen
class Parsed:
    """A command or a test as it is written; `block` is None where none follows."""

    name: str
    place: Place
    arguments: tuple[Argument, ...] = ()
    tests: tuple["Parsed", ...] = ()
    block: tuple["Parsed", ...] | None = None


def parse(script: str, limits: Limits = DEFAULT) -> tuple[Parsed, ...]:
    """The commands of a script. Raises ScriptProblem."""
    if len(script) > limits.script or len(script.encode("utf-8", "replace")) > limits.script:
        raise ScriptProblem(Place(1, 1), f"the script has more than {limits.script} octets")
    reader = _Reader(script, limits)
    commands = reader.commands(0)
    if reader.kind:
        raise reader.problem(f"{reader.shown()} stands where a command is expected")
    return commands


@frozen
class _Token:
    kind: str                           # name, tag, number, string, sign; "" at the end
    text: str
    at: int


class _Reader:
    """Reads one script, a token ahead."""

    def __init__(self, script: str, limits: Limits) -> None:
        self.script = script
        self.limits = limits
        self._lines = [0, *(match.end() for match in re.finditer("\n", script))]
        self._at = 0
        self._count = 0
        self._token = self._next()

    @property
    def kind(self) -> str:
        return self._token.kind

    def place(self, at: int | None = None) -> Place:
        at = self._token.at if at is None else at
        line = bisect_right(self._lines, at)
        return Place(line, at - self._lines[line - 1] + 1)

    def problem(self, text: str, at: int | None = None) -> ScriptProblem:
        return ScriptProblem(self.place(at), text)

    def shown(self) -> str:
        """The token, for a person."""
        return f'"{self._token.text[:40]}"' if self._token.kind else "the end of the script"

    def _next(self) -> _Token:
        while True:
            start = self._at
            if start == len(self.script):
                return _Token("", "", start)
            match = _TOKEN.match(self.script, start)
            if match is None:
                raise self._stray(start)
            self._at = match.end()
            kind = match.lastgroup or ""
            if kind == "blank":
                continue
            if kind == "multiline":
                return _Token("string", self._multiline(start), start)
            if kind == "quoted":
                text = match["quoted"]
                return _Token("string", _ESCAPE.sub(r"\1", text) if "\\" in text else text, start)
            return _Token(kind, match[kind], start)

    def _stray(self, at: int) -> ScriptProblem:
        if self.script[at] == '"':
            return self.problem("the string has no end", at)
        if self.script.startswith("/*", at):
            return self.problem("the comment has no end", at)
        if self.script[at].isdigit():
            return self.problem("a number ends in a digit, or in K, M or G", at)
        return self.problem(f"{self.script[at]!r} has no meaning here", at)

    def _multiline(self, start: int) -> str:
        """The lines up to one that is a dot alone, with one dot less where a line begins with two (RFC 5228 §2.4.2)."""
        end = _MULTILINE_END.search(self.script, self._at)
        if end is None:
            raise self.problem("the text has no end: a line that is a dot alone", start)
        text = self.script[self._at:end.start()]
        self._at = end.end()
        return text[1:].replace("\n.", "\n") if text.startswith(".") else text.replace("\n.", "\n")

    def take(self) -> _Token:
        token, self._token = self._token, self._next()
        return token

    def sign(self, text: str) -> bool:
        """Whether that sign is next; then it is taken."""
        if self._token.kind != "sign" or self._token.text != text:
            return False
        self.take()
        return True

    def commands(self, depth: int) -> tuple[Parsed, ...]:
        """Commands up to the end of the block, or of the script."""
        found = []
        while self._token.kind == "name":
            found.append(self._command(depth))
        return tuple(found)

    def _counted(self, depth: int) -> None:
        self._count += 1
        if self._count > self.limits.nodes:
            raise self.problem(f"the script has more than {self.limits.nodes} commands and tests")
        if depth > self.limits.nesting:
            raise self.problem(f"blocks or tests are nested more than {self.limits.nesting} deep")

    def _command(self, depth: int) -> Parsed:
        self._counted(depth)
        place, name = self.place(), self.take().text.lower()
        arguments, tests = self._arguments(depth)
        if self.sign(";"):
            return Parsed(name, place, arguments, tests)
        if self.sign("{"):
            block = self.commands(depth + 1)
            if not self.sign("}"):
                raise self.problem(f"{self.shown()} stands where a command or }} is expected")
            return Parsed(name, place, arguments, tests, block)
        raise self.problem(f"{self.shown()} stands where ; or {{ is expected, after {name}")

    def _arguments(self, depth: int) -> tuple[tuple[Argument, ...], tuple[Parsed, ...]]:
        found: list[Argument] = []
        while (argument := self._argument()) is not None:
            found.append(argument)
        if self._token.kind == "name":
            return tuple(found), (self._test(depth + 1),)
        if self.sign("("):
            tests = [self._test(depth + 1)]
            while self.sign(","):
                tests.append(self._test(depth + 1))
            if not self.sign(")"):
                raise self.problem(f"{self.shown()} stands where , or ) is expected")
            return tuple(found), tuple(tests)
        return tuple(found), ()

    def _argument(self) -> Argument | None:
        place = self.place()
        match self._token.kind:
            case "tag":
                return Argument(place, self.take().text[1:].lower(), tag=True)
            case "number":
                return Argument(place, self._number())
            case "string":
                return Argument(place, self.take().text)
            case "sign" if self._token.text == "[":
                self.take()
                return Argument(place, self._strings())
        return None

    def _number(self) -> int:
        at, text = self._token.at, self._token.text
        digits = text.rstrip("KkMmGg")
        value = int(digits) * _SCALE.get(text[-1].upper(), 1) if len(digits) < 20 else MOST + 1
        if value > MOST:
            raise self.problem("the number is too large", at)
        self.take()
        return value

    def _strings(self) -> tuple[str, ...]:
        found = []
        while True:
            if self._token.kind != "string":
                raise self.problem(f"{self.shown()} stands where a string is expected")
            found.append(self.take().text)
            if self.sign("]"):
                return tuple(found)
            if not self.sign(","):
                raise self.problem(f"{self.shown()} stands where , or ] is expected")

    def _test(self, depth: int) -> Parsed:
        self._counted(depth)
        if self._token.kind != "name":
            raise self.problem(f"{self.shown()} stands where a test is expected")
        place, name = self.place(), self.take().text.lower()
        arguments, tests = self._arguments(depth)
        return Parsed(name, place, arguments, tests)
