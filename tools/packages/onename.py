"""What is installed takes one name, `onecopy`: the folders `store`, `imap`, ... of the repository lie below it there,
and what they import from each other is written accordingly when a wheel is built. So nobody's own `tools` or `store`
can be taken for ours, nor ours for theirs, also in a process that imports both, as one of Spark's may.

setuptools calls these commands (pyproject.toml). An editable installation stays as the repository is.
"""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

NAME = "onecopy"
OURS = ("imap", "lmtp", "mboxlist", "pop3", "store", "tools")
_MODULE = rf"(?:{'|'.join(OURS)})(?:\.\w+)+"
_PLACE = re.compile(rf"{_MODULE}:\w+")          # what is loaded later: tools/cli/later.py

Change = tuple[int, int, int, str]              # line, from 1; first and last octet of it; what it becomes


class Build(build_py):      # type: ignore[misc]   # setuptools says nothing of its types
    """`build_py`, with all that is ours below `onecopy`."""

    def run(self) -> None:
        """Copy the modules, move them, and change what they import."""
        super().run()
        if self.editable_mode:
            return
        whole = Path(self.build_lib)
        for name in OURS:
            shutil.rmtree(whole / NAME / name, ignore_errors=True)
            shutil.move(whole / name, whole / NAME / name)
        for file in sorted((whole / NAME).rglob("*.py")):
            module = ".".join(file.relative_to(whole / NAME).with_suffix("").parts)
            file.write_text(below_one_name(file.read_text("utf-8"), module), "utf-8")


class Info(egg_info):       # type: ignore[misc]
    """`egg_info`, which names what can be imported."""

    def run(self) -> None:
        """As it is, but for that one file."""
        super().run()
        (Path(self.egg_info) / "top_level.txt").write_text(f"{NAME}\n", "utf-8")


def below_one_name(source: str, module: str) -> str:
    """The source of a module with the names of our modules as an installation has them. The log names it as ever."""
    lines = source.encode().split(b"\n")
    for line, begin, end, text in sorted(_changes(ast.parse(source), module), reverse=True):
        octets = lines[line - 1]
        lines[line - 1] = octets[:begin] + text.encode() + octets[end:]
    return b"\n".join(lines).decode()


def _changes(tree: ast.Module, name: str) -> Iterator[Change]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and _is_ours(node.module or ""):
            begin = node.col_offset + len("from ")
            yield node.lineno, begin, begin + len(node.module or ""), f"{NAME}.{node.module}"
        elif isinstance(node, ast.Import):
            yield from _of_import(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _PLACE.fullmatch(node.value):
            yield _of_string(node)
        elif isinstance(node, ast.Call) and _makes_the_log(node):
            where = node.args[0]
            yield where.lineno, where.col_offset, where.end_col_offset or 0, repr(name.removesuffix(".__init__"))
        elif isinstance(node, ast.List | ast.Tuple):        # a program: [sys.executable, "-m", "tools.cli.program"]
            for word, module in zip(node.elts, node.elts[1:], strict=False):
                if (isinstance(word, ast.Constant) and word.value == "-m" and isinstance(module, ast.Constant)
                        and re.fullmatch(_MODULE, str(module.value))):
                    yield _of_string(module)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in OURS


def _makes_the_log(call: ast.Call) -> bool:
    # To unparse every call would take most of the time of a build.
    return (isinstance(call.func, ast.Attribute) and call.func.attr == "getLogger"
            and ast.unparse(call) == "logging.getLogger(__name__)")


def _of_import(node: ast.Import) -> Iterator[Change]:
    """`import store.settings` makes the name `store`, which is still to mean our package."""
    for alias in node.names:
        if not _is_ours(alias.name):
            continue
        begin, end = alias.col_offset, alias.end_col_offset or 0
        if alias.asname:
            yield alias.lineno, begin, end, f"{NAME}.{alias.name} as {alias.asname}"
        else:
            top = alias.name.partition(".")[0]
            yield alias.lineno, begin, end, f"{NAME}.{alias.name}, {NAME}.{top} as {top}"


def _of_string(node: ast.Constant) -> Change:
    return node.lineno, node.col_offset + 1, node.col_offset + 1, f"{NAME}."
