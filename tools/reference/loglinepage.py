"""Every line that the log can have, found where the code writes it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from mboxlist import privatefiles
from tools.reference.markdown import cell, page, table

_PACKAGE = Path(__file__).parents[2]
OURS = ("mboxlist", "store", "imap", "pop3", "lmtp", "tools")
ELSEWHERE = ("tools/benchmarks", "tools/packages")          # what is not installed
LEVELS = ("debug", "info", "warning", "error", "critical", "exception", "log")
_WRITTEN = "Written by `onecopy man --markdown docs/reference` from the places in the code that write them."
_WHERE = ("[logging.md](../logging.md) says where the log goes, and has the fields of the lines named `delivery`, "
          "`refused`, `session` and `slow`, which programs read. The form of the others may change. … stands for what "
          "differs; a line about a connection begins with its id. `exception` is an error with its place in the code.")


def lines() -> Iterator[str]:
    """The page."""
    yield from page("Every line of the log", _WRITTEN, _WHERE)
    every: dict[str, dict[tuple[str, str], None]] = {}
    for path in _sources():
        source = privatefiles.read_text(path)
        for name, level, text in written(source, _module(path)) if "getLogger" in source else ():
            every.setdefault(name, {})[level, text] = None
    for name in sorted(every):
        yield from ("", f"## {name}", "")
        yield from table(("level", "line"), (("" if level == "log" else level, cell(text))
                                             for level, text in every[name]))


def written(source: str, module: str) -> Iterator[tuple[str, str, str]]:
    """The lines that a module writes: the name that they have in the log, the level, and the text."""
    tree = ast.parse(source)
    names = {target.id: _name(node.value, module) for node in tree.body if isinstance(node, ast.Assign)
             for target in node.targets if isinstance(target, ast.Name) and _name(node.value, module)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "FieldLine":
            level = ast.unparse(node.args[1]).removeprefix("logging.").lower()
            yield names[ast.unparse(node.args[0])], level if level in LEVELS else "log", _text(node.args[2])
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "befell":
            yield names[ast.unparse(node.args[0])], "info", f"…: {_text(node.args[2])}"
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS):
            continue
        owner = node.func.value
        found = names.get(owner.id, "") if isinstance(owner, ast.Name) else _name(owner, module)
        if found:
            yield found, node.func.attr, _text(node.args[node.func.attr == "log"])


def _sources() -> Iterator[Path]:
    for name in OURS:
        for path in sorted((_PACKAGE / name).rglob("*.py")):
            if not path.relative_to(_PACKAGE).as_posix().startswith(ELSEWHERE):
                yield path


def _module(path: Path) -> str:
    return ".".join(path.relative_to(_PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def _name(value: ast.AST, module: str) -> str:
    """What a logger is called; nothing if it is none."""
    call = ast.unparse(value)
    if call == "logging.getLogger(__name__)":
        return module
    match = re.fullmatch(r"logging\.getLogger\('([\w.]+)'\)", call)
    return match[1] if match else ""


def _text(node: ast.AST) -> str:
    """What stands there, with … for what is put in."""
    if isinstance(node, ast.Constant):
        return re.sub(r"%-?\d*(?:\.\d+)?[a-z]", "…", str(node.value))
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.IfExp):
        return f"{_text(node.body)} / {_text(node.orelse)}"
    return "…"
