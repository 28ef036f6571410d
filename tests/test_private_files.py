"""All files that the product opens or makes go through mboxlist/privatefiles.py. The checks here read the sources."""

import ast
from collections.abc import Iterator

import pytest

from tests.test_layers import ROOT, files

DOORS = "mboxlist/privatefiles.py"
NOT_INSTALLED = "tools/packages/"       # makes packages, in folders of its own

# Of these modules, what opens or makes a file, or changes who may read it.
FUNCTIONS = {
    "builtins": {"open"},
    "io": {"open", "open_code", "FileIO"},
    "os": {"open", "mkdir", "makedirs", "mknod", "mkfifo", "chmod", "fchmod", "lchmod", "chown", "fchown", "lchown",
           "umask", "creat", "openpty"},
    "pathlib": {"open"},
    "codecs": {"open"},
    "shutil": {"copy", "copy2", "copyfile", "copytree", "copymode", "copystat", "move", "make_archive",
               "unpack_archive", "chown"},
    "tempfile": {"*"},
    "tarfile": {"open"}, "gzip": {"open"}, "bz2": {"open"}, "lzma": {"open"}, "shelve": {"open"}, "dbm": {"open"},
    "sqlite3": {"connect"}, "mailbox": {"*"}, "fileinput": {"*"},
}
# What takes an open file, too, is called with one.
TAKE_FILES = {"ZipFile", "GzipFile", "ParquetWriter", "write_table"}
# Methods of any object, since a path can be in a variable of any name.
METHODS = {"mkdir", "touch", "write_text", "write_bytes", "read_text", "read_bytes", "chmod", "lchmod"}
OPEN_WORDS = {"mode", "buffering", "encoding", "errors", "newline"}     # of the arguments of Path.open


def faults(source: str, path: str) -> list[str]:
    """Where a file at `path` opens or makes files by itself."""
    if path == DOORS or path.startswith(NOT_INSTALLED):
        return []
    tree = ast.parse(source, path)
    shadows = _own_names(tree)
    return [f"{path}:{node.lineno}: {what}" for node in ast.walk(tree) for what in _of_node(node, shadows)]


def _own_names(tree: ast.AST) -> set[str]:
    """The modules by the names that the file gives them."""
    return {alias.asname: alias.name for node in ast.walk(tree) if isinstance(node, ast.Import)
            for alias in node.names if alias.asname}


def _of_node(node: ast.AST, shadows: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if "*" in FUNCTIONS.get(alias.name, ()))
    elif isinstance(node, ast.ImportFrom):
        banned = FUNCTIONS.get(node.module or "", set())
        yield from (f"{node.module}.{alias.name}" for alias in node.names if {alias.name, "*"} & banned)
    elif isinstance(node, ast.Name) and node.id == "open" and isinstance(node.ctx, ast.Load):
        yield "open"
    elif isinstance(node, ast.arg) and node.arg == "open":
        yield "an argument with the name of a built-in function"
    elif isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name):
            module = shadows.get(node.value.id, node.value.id)
            if node.attr in FUNCTIONS.get(module, ()):
                yield f"{module}.{node.attr}"
                return
            if module == "privatefiles":
                return
        if node.attr in METHODS:
            yield node.attr
    elif isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name == "open" and isinstance(node.func, ast.Attribute) and _opens_a_path(node):
            yield "open of a path"
        if name in TAKE_FILES and not _is_given_a_file(node):
            yield name


def _is_given_a_file(call: ast.Call) -> bool:
    return any(word.arg == "fileobj" for word in call.keywords) or any(
        isinstance(each, ast.Name) and each.id == "file" for each in call.args)


def _opens_a_path(call: ast.Call) -> bool:
    """Whether the arguments are those of Path.open: without any it is that, or ours has a better name."""
    words = {word.arg for word in call.keywords}
    if not call.args:
        return words <= OPEN_WORDS
    first = call.args[0]
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and set(first.value) <= set("rwxabt+")


def test_no_other_place_opens_or_makes_a_file():
    assert [fault for path in files() for fault in faults((ROOT / path).read_text(encoding="utf-8"), path)] == []


@pytest.mark.parametrize("line", [
    "open('x')", "def f(work=open): work('x')", "os.open(path, 0)", "start = os.open", "import os as o; o.mkdir('x')",
    "from os import makedirs as make", "from io import FileIO", "path.open()", "path.open('rb')", "path.open(mode='w')",
    "path.with_name('x').open(encoding='ascii')", "(folder / 'x').write_text('y')", "each.mkdir()", "make = path.mkdir",
    "path.touch()", "path.read_bytes()", "import tempfile", "from tempfile import mkdtemp", "shutil.copyfile(a, b)",
    "os.chmod(path, 0o644)", "path.chmod(0o644)", "os.umask(0)",
    "pq.ParquetWriter(path)", "gzip.GzipFile(name)", "tarfile.open(path)", "def f(open): open()",
])
def test_another_way_is_found(line):
    assert faults(line, "store/x.py") != []


@pytest.mark.parametrize("line", [
    "privatefiles.open_file(path, 'wb')", "privatefiles.touch(path)", "files.open(digest, serial, 0, size)",
    "env.open(folder, flags, 0o600)", "os.fdopen(handle, 'rb')", "os.path.exists(path)", "path.unlink()",
    "shutil.rmtree(folder)", "handle.open(name, dbtype=1, flags=2)",
])
def test_what_opens_no_file_is_left_alone(line):
    assert faults(line, "store/x.py") == []
