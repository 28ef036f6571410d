"""Scripts by which shells complete commands, options and names, made from the parsers.

bash and zsh have the same script: for each command a line with its options, those that take a value, and what stands at
which place. fish has a line for each option.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from tools.cli.commandtree import Node, placeholder, shown, takes_file

SHELLS = ("bash", "zsh", "fish")
_COMMON = ("--root", "--config", "--help")
_FILES = ("--root", "--config")
_KINDS = {"USER": "users", "OWNER": "users", "MAILBOX": "mailboxes", "PARTITION": "partitions"}


def script(shell: str, top: Node) -> str:
    """The script for that shell."""
    if shell == "fish":
        return "\n".join(_fish(top)) + "\n"
    common = (Path(__file__).parent / "completion.bash").read_text(encoding="utf-8")
    made = common.replace("        # the commands\n", "".join(f"        {line}\n" for line in _bash(top)))
    return "autoload -U +X compinit bashcompinit && compinit -u && bashcompinit\n" + made if shell == "zsh" else made


def _bash(top: Node) -> Iterator[str]:
    """A case for each group and command."""
    yield f'"") words="{" ".join(node.name for node in top.below)}" ;;'
    for group in top.below:
        if group.below:
            yield f'"{group.name}") words="{" ".join(node.words[-1] for node in group.below)}" ;;'
        for node in group.walk():
            yield f'"{node.name}") {_line(node)} ;;'


def _line(node: Node) -> str:
    named = [action for action in node.actions if action.option_strings]
    valued = [name for action in named if placeholder(action) for name in action.option_strings]
    options = [name for action in named for name in action.option_strings]
    places = [action for action in node.actions if not action.option_strings]
    repeated = bool(places) and str(places[-1].nargs) in ("*", "+")
    kinds = [f"{name}={kind}" for action in named for name in action.option_strings if (kind := _kind(action))]
    return (f'options="{" ".join([*options, *_COMMON])}" valued=" {" ".join([*valued, *_FILES])} " '
            f'kinds=" {" ".join([*kinds, *(f"{name}=file" for name in _FILES)])} " '
            f'places="{" ".join(_kind(action) or "-" for action in places)}" repeated={int(repeated)}')


def _kind(action: argparse.Action) -> str:
    """What its value is, for the script: users, mailboxes, partitions, file, words separated by commas; or ""."""
    if not placeholder(action):
        return ""
    if action.choices is not None:
        return ",".join(map(str, action.choices))
    if takes_file(action):
        return "file"
    if action.option_strings and action.option_strings[-1] == "--partition":
        return "partitions"
    return _KINDS.get(placeholder(action), "")


def _fish(top: Node) -> Iterator[str]:
    yield "function __onecopy_at"
    yield "    set -l words (commandline -opc)"
    yield "    string match -q -- \"$argv *\" \"$words[2..] \""
    yield "end"
    yield "complete -c onecopy -f"
    yield from (f"complete -c onecopy -n __fish_use_subcommand -a {node.name} -d {_quoted(_short(node))}"
                for node in top.below)
    for group in top.below:
        names = " ".join(node.words[-1] for node in group.below)
        yield from (f"complete -c onecopy -n '__onecopy_at {group.name}; and not __fish_seen_subcommand_from {names}' "
                    f"-a {node.words[-1]} -d {_quoted(_short(node))}" for node in group.below)
        for node in group.walk():
            yield from _fish_command(node)


def _fish_command(node: Node) -> Iterator[str]:
    begin = f"complete -c onecopy -n '__onecopy_at {node.name}'"
    for name in _FILES:
        yield f"{begin} -l {name[2:]} -r -F"
    for action in node.actions:
        kind = _kind(action)
        words = "" if not kind else " -F" if kind == "file" else (
            f" -a '(onecopy completion {kind} 2>/dev/null)'" if kind in ("users", "partitions") else
            "" if kind == "mailboxes" else f" -a {_quoted(kind.replace(',', ' '))}")
        if action.option_strings:
            name = action.option_strings[-1].lstrip("-")
            needs = (" -r" if kind == "file" else " -x") if placeholder(action) else ""
            yield f"{begin} -l {name}{needs}{words} -d {_quoted(shown(action).partition(';')[0])}"
        elif words:
            yield begin + words


def _short(node: Node) -> str:
    return node.help.partition(";")[0] if not node.below else ", ".join(below.words[-1] for below in node.below)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
