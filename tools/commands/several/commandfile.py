"""onecopy batch: a file of commands"""

from collections.abc import Sequence

from tools import commandaudit
from tools.cli import program
from tools.cli.elsewhere import batchlines
from tools.cli.invocation import Invocation, Parsers
from tools.cli.options import given, option


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("batch", batch, "carry out the commands in a file, one a line, quoted as a shell does; nothing is "
                  "done if one of them is none; exit status 1 if one failed")
    made.set_defaults(run_by=commandaudit.running())        # before root acts as the owner of the store
    made.add_argument("file", metavar="FILE", help="its lines are commands, with or without onecopy before them; what "
                      f"stands behind a # is a remark; {batchlines.STREAM}: standard input")
    made.add_argument("--keep-going", action="store_true", help="go on when one fails; default: stop there")
    made.add_argument("--check", action="store_true", help="only see whether all of them are commands")
    made.add_argument("--json", action="store_true")


def batch(invocation: Invocation) -> int:
    """onecopy batch"""
    arguments = invocation.arguments
    lines = batchlines.read(arguments.file)
    before = [word for name, value in given(arguments).items() for word in (_flag(name), value)]
    if arguments.config is not None:
        before += ["--config", str(arguments.config)]

    def name_of(words: Sequence[str]) -> str:
        return program.name_of(program.parse([*before, *words]))

    def run(words: Sequence[str]) -> int:
        return program.guarded(lambda: program.run(program.parse([*before, *words])))

    batchlines.must_be_right(lines, name_of)
    if arguments.check:
        return 0
    with commandaudit.running_as(arguments.run_by):
        return batchlines.carry_out(lines, run, goes_on=arguments.keep_going, as_json=arguments.json)


def _flag(name: str) -> str:
    found = option(name)
    assert found is not None, name
    return found.flag
