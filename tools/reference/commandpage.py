"""Every command, with its arguments."""

import argparse
from collections.abc import Iterator

from tools.cli.commandtree import Node
from tools.reference.markdown import anchored, cell, code, page, table

_WRITTEN = ("Written by `onecopy man --markdown docs/reference` from the texts that `--help` shows: change those, not "
            "this page.")
_ALL = ("All of them have `--root FOLDER`, `--config FILE`, any option of the configuration as "
        "`--SECTION-KEY VALUE`, and `--help`. Options of the configuration may stand before the command, too.")


def lines(top: Node) -> Iterator[str]:
    """The page. Each option is an anchor: commands.md#user-add--alias."""
    yield from page("Every command", _WRITTEN, _ALL)
    for node in top.walk():
        text = cell(node.help)
        yield from ("", f"## onecopy {node.name}", "", f"{text[:1].upper()}{text[1:]}.")
        if node.actions:
            yield ""
            yield from table(("", ""), ((_anchored(node, action), cell(_filled(action))) for action in node.actions))


def _anchored(node: Node, action: argparse.Action) -> str:
    """An argument as one types it."""
    value = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ()) or (
        ", ".join(map(str, action.choices)) if action.choices is not None else action.dest.upper())
    names = ", ".join(code(name) for name in action.option_strings)
    typed = names if action.nargs == 0 else f"{names} {code(value)}" if names else code(value)
    return anchored(node.name.replace(" ", "-") + action.option_strings[-1], typed) if names else typed


def _filled(action: argparse.Action) -> str:
    return argparse.HelpFormatter("onecopy")._expand_help(action) if action.help else ""
