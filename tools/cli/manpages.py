"""Man pages, which argparse-manpage writes of parsers: those of the commands, and two that stand for the list of all
commands and for the configuration.

The library does not escape what roff or man would change or swallow; `escaped` does. What all pages have in common are
sections of our own.
"""

import argparse
import re
from collections.abc import Collection, Iterable, Mapping

from argparse_manpage.manpage import Manpage

from store import VERSION
from tools.cli import options
from tools.cli.commandtree import Node
from tools.cli.options import Option

INTRODUCTIONS = {
    "store": "The store and its messages.", "imap": "The IMAP server.", "pop3": "The POP3 server.",
    "lmtp": "The LMTP server, which takes mail from the relay.", "exchange": "Moves of users between back ends.",
    "managesieve": "The ManageSieve server.", "sieve": "Sieve scripts at delivery.",
    "front": "The end point that proxies ask about logins.", "http": "Metrics, health and the API over HTTP.",
    "directory": "An outside directory (LDAP).",
    "login": "Logins by all protocols.", "tls": "Certificates.", "workers": "Processes.", "log": "The log."}
_FILES = {f"./{options.FILE_NAME}": "The configuration, if it is there.",
          str(options.DEFAULT_FILE): "Or else this one."}
_COMMON: dict[str, Mapping[str, str]] = {
    "configuration": {
        "--root FOLDER": "The folder of the store.",
        "--config FILE": f"The file to read; default: ./{options.FILE_NAME}, or {options.DEFAULT_FILE}.",
        "--SECTION-KEY VALUE": "Any other option of the configuration, such as --imap-port; see onecopy.toml(5).",
        "--help": "Say what the command and its arguments are for."},
    "exit status": {
        "0": "It is done, and nothing is wrong.",
        "1": "Something wrong was found, or it could not be done.",
        "2": "It was called in a wrong way, or the configuration cannot be used."},
    "files": _FILES,
}
_MARKS = str.maketrans({"'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"})
_WIDTH = 1_000_000          # columns


class _Unbroken(argparse.HelpFormatter):
    """Leaves it to roff to break lines."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH)


def pages(top: Node, reloaded: Collection[str]) -> dict[str, str]:
    """Every page by its file name: onecopy.1, one for each command or group, onecopy.toml.5. `reloaded`: the options of
    which a running server takes over a new value."""
    found = {"onecopy.1": _page("onecopy", "a single-copy mail message store", _overview(top), _COMMON,
                                [f"onecopy-{node.name}(1)" for node in top.below] + ["onecopy.toml(5)"])}
    for node in top.below:
        found[f"onecopy-{node.name}.1"] = _page(f"onecopy-{node.name}", node.help, node.parser, _COMMON,
                                                ["onecopy(1)", "onecopy.toml(5)"])
    found[f"{options.FILE_NAME}.5"] = _page(options.FILE_NAME, "configuration of onecopy", _configuration(reloaded),
                                            {"files": _FILES}, ["onecopy(1)", "onecopy-config(1)"], section=5)
    return found


def _page(name: str, what: str, parser: argparse.ArgumentParser, sections: Mapping[str, Mapping[str, str]],
          others: Iterable[str], section: int = 1) -> str:
    for each in _parsers(parser):
        each.formatter_class = _Unbroken
        each.description = each.description if each is parser else None     # the list of commands has it
        if each._subparsers is not None:
            each._subparsers.title = "commands"
    page = Manpage(parser, format="single-commands-section", _data={
        "project_name": "onecopy", "version": VERSION, "description": what, "manual_title": "onecopy",
        "manual_section": section})
    page.prog = name
    for title, entries in sections.items():
        page.add_section(title, ">", "\n".join(f".TP\n\\fB{_dashes(entry)}\\fR\n{_dashes(words)}"
                                               for entry, words in entries.items()))
    page.add_section("see also", ">", ",\n".join(
        re.sub(r"(.+)(\(\d\))", r"\\fB\1\\fR\2", _dashes(other)) for other in others))
    return escaped(str(page))


def escaped(page: str) -> str:
    """A page of the library with what roff would take for its own in texts, or print as another letter."""
    head, rest = page.split("\n", 1)
    rest = re.sub(r"^(?=\.[^A-Z])", r"\\&", rest.translate(_MARKS), flags=re.MULTILINE)
    rest = re.sub(r"(?<!\\)\\(?=[A-Z])", r"\\(rs", rest)      # in what a command does the library leaves \Deleted
    return head.replace(r"\-", "-") + "\n" + rest


def _dashes(text: str) -> str:
    return text.replace("-", r"\-")


def _parsers(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    """That one and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for made in action.choices.values():
                yield from _parsers(made)


def _overview(top: Node) -> argparse.ArgumentParser:
    """A parser that has each command as an argument."""
    made = argparse.ArgumentParser("onecopy", usage="onecopy COMMAND [ARGUMENT ...]", add_help=False, description=(
        "A mail store with IMAP, POP3 and LMTP servers, in which a message is kept once for any number of recipients. "
        "Each command has a page of its own, or one with its group."))
    group = made.add_argument_group("commands")
    for node in top.walk():
        group.add_argument(node.name, metavar=f"onecopy {node.name}",
                           help=f"{node.help}. See onecopy-{node.words[0]}(1).".replace("%", "%%"))
    return made


def _configuration(reloaded: Collection[str]) -> argparse.ArgumentParser:
    """A parser that has each option of the configuration as an argument, in groups by section."""
    made = argparse.ArgumentParser("onecopy.toml", usage=options.FILE_NAME, add_help=False, description=(
        "A file in the format TOML. Every option can be given in the file, in the environment and on the command line; "
        "what comes later in this list wins. Sizes are written like 4096, 64M, 2G; times like 90, 30m, 12h, 7d; lists "
        "as TOML lists, or with commas between the words. Of an option that is marked so a running server takes over a "
        "new value at `onecopy config reload` or SIGHUP; the others need a restart."))
    groups = {"": made.add_argument_group("options")}
    for option in options.table().values():
        if option.section not in groups:
            groups[option.section] = made.add_argument_group(
                f"section [{option.section}]", INTRODUCTIONS.get(option.section, f"Section {option.section}."))
        text = _description(option, option.name in reloaded)
        groups[option.section].add_argument(option.name, metavar=option.key, help=text.replace("%", "%%"))
    return made


def _description(option: Option, reloaded: bool) -> str:
    default = option.show(option.default)
    return " ".join([f"{option.help}.", f"Default: {default}." if default else "No default.",
                     *(["Reloaded."] if reloaded else []), f"{option.variable}, {option.flag}"])
