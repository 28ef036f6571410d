"""Man pages, made from what the commands and options say of themselves in --help."""

import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata

from tools.cli import options
from tools.cli.commandtree import Node, placeholder, shown
from tools.cli.options import Option
from tools.server.reloadable import is_reloaded

_INTRODUCTIONS = {
    "store": "The store and its messages.", "imap": "The IMAP server.", "pop3": "The POP3 server.",
    "lmtp": "The LMTP server, which takes mail from the relay.", "exchange": "Moves of users between back ends.",
    "front": "The end point that proxies ask about logins.", "directory": "An outside directory (LDAP).",
    "login": "Logins by all protocols.", "tls": "Certificates.", "workers": "Processes.", "log": "The log."}
_STATUS = (("0", "it is done, and nothing is wrong"), ("1", "something wrong was found, or it could not be done"),
           ("2", "it was called in a wrong way, or the configuration cannot be used"))
_FILES = ((f"./{options.FILE_NAME}", "the configuration, if it is there"),
          (str(options.DEFAULT_FILE), "or else this one"))


def pages(top: Node) -> dict[str, str]:
    """Every page by its file name: onecopy.1, one for each command or group, onecopy.toml.5."""
    found = {"onecopy.1": "\n".join(_overview(top)) + "\n"}
    for node in top.below:
        found[f"onecopy-{node.name}.1"] = "\n".join(_page(node)) + "\n"
    found["onecopy.toml.5"] = "\n".join(_options()) + "\n"
    return found


def text(words: str) -> str:
    """Words as running text of a page."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace(
        "^", "\\(ha").replace("~", "\\(ti")
    return "\\&" + escaped if escaped.startswith(".") else escaped


def _bold(words: str) -> str:
    return f"\\fB{text(words)}\\fR"


def _italic(words: str) -> str:
    return f"\\fI{text(words)}\\fR" if words else ""


def _sentence(words: str) -> str:
    """Helps begin small and end without a full stop; in a page they are sentences."""
    words = words.strip()
    return text(words[:1].upper() + words[1:] + ("" if words.endswith((".", ":", ")")) else "."))


def _head(name: str, section: int, what: str) -> Iterator[str]:
    yield f'.TH "{name.upper()}" "{section}" "{_date()}" "onecopy {_version()}" "onecopy"'
    yield ".SH NAME"
    yield f"{text(name)} \\- {text(what)}"


def _version() -> str:
    try:
        return metadata.version("onecopy")
    except metadata.PackageNotFoundError:       # run from a source tree that has not been installed
        return ""


def _date() -> str:
    """Of today; who builds a package says which one."""
    return datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())), UTC).strftime("%Y-%m-%d")


def _overview(top: Node) -> Iterator[str]:
    yield from _head("onecopy", 1, "a single-copy mail message store")
    yield ".SH SYNOPSIS"
    yield f"{_bold('onecopy')} {_italic('COMMAND')} [{_italic('ARGUMENT')} ...]"
    yield ".SH DESCRIPTION"
    yield text("A mail store with IMAP, POP3 and LMTP servers, in which a message is kept once for any number of "
               "recipients. Each command has a page of its own, or one with its group.")
    yield ".SH COMMANDS"
    for node in top.walk():
        yield ".TP"
        yield f"{_bold(f'onecopy {node.name}')}"
        yield f"{_sentence(node.help)} See {_bold(f'onecopy-{node.words[0]}')}(1)."
    yield from _common()
    yield from _ending([f"onecopy-{node.name}(1)" for node in top.below] + ["onecopy.toml(5)"])


def _page(node: Node) -> Iterator[str]:
    commands = list(node.walk())
    if node.below:
        what = ", ".join(command.words[-1] for command in commands)
        yield from _head(f"onecopy-{node.name}", 1, f"{node.name}: {what}")
    else:
        yield from _head(f"onecopy-{node.name}", 1, node.help)
    yield ".SH SYNOPSIS"
    for number, command in enumerate(commands):
        if number:
            yield ".br"
        yield _usage(command)
    yield ".SH DESCRIPTION" if len(commands) == 1 else ".SH COMMANDS"
    for command in commands:
        if len(commands) > 1:
            yield f".SS {_bold(f'onecopy {command.name}')}"
        yield _sentence(command.help)
        yield from _arguments(command)
    yield from _common()
    yield from _ending(["onecopy(1)", "onecopy.toml(5)"])


def _usage(command: Node) -> str:
    """One line; what can be left out stands in brackets."""
    parts = [_bold(f"onecopy {command.name}")]
    for action in command.actions:
        value = _italic(placeholder(action))
        if not action.option_strings:
            part = {"?": f"[{value}]", "*": f"[{value} ...]", "+": f"{value} ..."}.get(str(action.nargs), value)
        else:
            part = f"{_bold(action.option_strings[-1])} {value}".strip()
            part = part if action.required else f"[{part}]"
        parts.append(part)
    return " ".join(parts)


def _arguments(command: Node) -> Iterator[str]:
    for action in command.actions:
        value = _italic(placeholder(action))
        yield ".TP"
        yield ", ".join(f"{_bold(name)} {value}".strip() for name in action.option_strings) or value
        yield _sentence(shown(action)) or text("(no help)")
        if action.choices is not None and action.metavar is not None:
            yield text(f"One of: {', '.join(map(str, action.choices))}.")


def _common() -> Iterator[str]:
    yield ".SH CONFIGURATION"
    yield text("Every command takes these, and each option of the configuration as --SECTION-KEY, such as "
               "--imap-port; see") + " " + _bold("onecopy.toml") + "(5)."
    for name, value, words in (
            ("--root", "FOLDER", "the folder of the store"),
            ("--config", "FILE", f"the file to read; default: ./{options.FILE_NAME}, or {options.DEFAULT_FILE}"),
            ("--help", "", "say what the command and its arguments are for")):
        yield ".TP"
        yield f"{_bold(name)} {_italic(value)}".strip()
        yield _sentence(words)
    yield ".SH EXIT STATUS"
    for status, words in _STATUS:
        yield ".TP"
        yield _bold(status)
        yield _sentence(words)
    yield ".SH FILES"
    for path, words in _FILES:
        yield ".TP"
        yield _bold(path)
        yield _sentence(words)


def _ending(others: list[str]) -> Iterator[str]:
    yield ".SH SEE ALSO"
    marked = [re.sub(r"(.+)(\(\d\))", lambda found: _bold(found[1]) + found[2], other) for other in others]
    yield ",\n".join(marked)


def _options() -> Iterator[str]:
    yield from _head(options.FILE_NAME, 5, "configuration of onecopy")
    yield ".SH DESCRIPTION"
    yield text("A file in the format TOML. Every option can be given in the file, in the environment and on the "
               "command line; what comes later in this list wins. Sizes are written like 4096, 64M, 2G; times like 90, "
               "30m, 12h, 7d; lists as TOML lists, or with commas between the words.")
    yield ".PP"
    yield text("Of an option that is marked so a running server takes over a new value at") + " " + _bold(
        "onecopy config reload") + text(" or SIGHUP; the others need a restart.")
    yield ".SH OPTIONS"
    section = ""
    for option in options.table().values():
        if option.section != section:
            section = option.section
            yield f".SS [{section}]"
            yield text(_INTRODUCTIONS.get(section, f"Section {section}."))
        yield from _option(option)
    yield ".SH FILES"
    for path, words in _FILES:
        yield ".TP"
        yield _bold(path)
        yield _sentence(words)
    yield from _ending(["onecopy(1)", "onecopy-config(1)"])


def _option(option: Option) -> Iterator[str]:
    yield ".TP"
    yield _bold(option.key)
    yield _sentence(option.help)
    default = option.show(option.default)
    yield text(f"Default: {default}." if default else "No default.")
    if is_reloaded(option.name):
        yield text("Reloaded.")
    yield ".br"
    yield text(f"{option.variable}, {option.flag}")
