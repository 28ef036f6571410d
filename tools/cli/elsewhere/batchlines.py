"""A file with a command in each line, quoted as a shell does: all are read before anything is done, then carried out in
order."""

import io
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from attrs import frozen

from mboxlist import privatefiles
from tools.cli.output import print_long_json, printable
from tools.cli.progressbar import PROGRESS, counted
from tools.exits import Failure

STREAM = "-"                # stands for standard input
LONGEST = 8 << 20           # octets of such a file
KEPT = 1 << 20              # octets of what a command has printed, for --json
SHOWN = 20                  # lines that a summary names
_NAME = "onecopy"           # may begin a line
#: Commands that are none of many: they serve, talk to a person, make the store, or need to be root.
ALONE = frozenset({"batch", "init", "serve", "spark shell", "man", "completion"})


@frozen
class Line:
    """A command of the file."""

    number: int
    words: tuple[str, ...]


def read(name: str) -> list[Line]:
    """The commands in that file; empty lines, and what stands behind a #, are none. Raises Failure."""
    try:
        if name == STREAM:
            octets = sys.stdin.buffer.read(LONGEST + 1) if sys.stdin else b""
        else:
            with privatefiles.open_named(Path(name)) as file:
                octets = file.read(LONGEST + 1)
        text = octets.decode()
    except OSError as error:
        raise Failure(f"{name}: {error.strerror or error}", 1) from None
    except UnicodeDecodeError:
        raise Failure(f"{name} is no text in UTF-8") from None
    if len(octets) > LONGEST:
        raise Failure(f"{name} is longer than {LONGEST >> 20} MiB: divide it")
    return list(_lines(text))


def _lines(text: str) -> Iterator[Line]:
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise Failure(f"line {number}: {str(error).lower()}; nothing was done") from None
        if words[:1] == [_NAME]:
            words = words[1:]
        if words:
            yield Line(number, tuple(words))


def must_be_right(lines: Sequence[Line], parse: Callable[[Sequence[str]], str]) -> None:
    """Raises Failure, before anything is done, for the first line that is no command. `parse` gives its name; it may
    raise Failure, or SystemExit when it has said on standard error what is wrong."""
    for line in lines:
        said = io.StringIO()
        try:
            with redirect_stderr(said):
                name = parse(line.words)
        except SystemExit:
            raise Failure(f"line {line.number}: {_bare(said.getvalue()) or 'this is no command'}; nothing was done"
                          ) from None
        except Failure as failure:
            raise Failure(f"line {line.number}: {failure}; nothing was done") from None
        if name in ALONE:
            raise Failure(f"line {line.number}: {name} cannot be one of several; nothing was done")


def _bare(said: str) -> str:
    return said.strip().removeprefix(f"{_NAME}: ").replace("\n", " ")


def carry_out(lines: Sequence[Line], run: Callable[[Sequence[str]], int], *, goes_on: bool, as_json: bool) -> int:
    """Run one after the other, to the first whose status is not 0 unless it `goes_on`; a summary on standard error; 1
    if one failed."""
    done, failed = list[int](), list[int]()

    def each() -> Iterator[dict[str, object]]:
        for at, line in enumerate(lines, 1):
            if not as_json and sys.stderr.isatty():     # a bar would stand among what they print
                print(f"{at} of {len(lines)}, line {line.number}: {printable(shlex.join(line.words))}", file=sys.stderr)
            row: dict[str, object] = _caught(line, run) if as_json else {"status": _run(line, run)}
            done.append(line.number)
            if row["status"]:
                failed.append(line.number)
            yield row
            if row["status"] and not goes_on:
                return

    if as_json:
        print_long_json(counted(each(), "commands", len(lines), printing=True))
    else:
        for _ in each():
            pass
    which = f" (line {', '.join(map(str, failed[:SHOWN]))}{' ...' * (len(failed) > SHOWN)})" if failed else ""
    print(f"onecopy: {len(done) - len(failed)} of {len(lines)} commands done, {len(failed)} failed{which}, "
          f"{len(lines) - len(done)} left", file=sys.stderr)
    return int(bool(failed))


def _run(line: Line, run: Callable[[Sequence[str]], int]) -> int:
    """Its status; one that is not 0 is said."""
    status = run(line.words)
    if status:
        print(f"onecopy: line {line.number} failed with status {status}", file=sys.stderr)
    return status


def _caught(line: Line, run: Callable[[Sequence[str]], int]) -> dict[str, object]:
    """Run it; what it prints is part of the row."""
    kept, caught = (sys.stdout, sys.stderr), [_Kept(), _Kept()]
    streams = [io.TextIOWrapper(each, "utf-8", "replace", write_through=True) for each in caught]
    sys.stdout, sys.stderr = streams
    shown = os.environ.pop(PROGRESS, "")        # how far all are is shown, not how far one is
    try:
        status = run(line.words)
    finally:
        sys.stdout, sys.stderr = kept
        if shown:
            os.environ[PROGRESS] = shown
    output, errors = (each.text for each in caught)
    return {"line": line.number, "words": list(line.words), "status": status, "output": output, "errors": errors}


class _Kept(io.BytesIO):
    """The beginning of what is written, KEPT octets of it; the rest is let go."""

    def write(self, octets: Any, /) -> int:
        """All of it is taken."""
        super().write(bytes(octets)[:KEPT - self.tell()])
        return len(octets)

    @property
    def text(self) -> str:
        """What is kept."""
        return self.getvalue().decode("utf-8", "replace")
