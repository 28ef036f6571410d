"""What a program can hold of the project's words: one idea has one name, and the field's name at that."""

import ast
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("imap", "lmtp", "mboxlist", "pop3", "store", "tools")
# Packages that are built alike: modules of one name play the same part in each.
# The store's settings are in a `settings.py` like those of each server.
PARALLEL = frozenset({
    "imap", "imap/managesieve", "imap/verbs", "imap/wire", "lmtp", "pop3", "tools/front", "tools/http"})
# Words that have been replaced (docs/glossary.md has the field's), as parts of a module's, class's or function's name.
REPLACED = frozenset((
    "agreeing anew arrivals bringing carrying claims departure entrance evidence halfmade landing "
    "orders picture pictures refill reinstate relist remake settling standing told "
    "traces travel unfinished").split())
GENERAL = frozenset(("helper", "helpers", "manager", "util", "utils"))


def paths() -> list[str]:
    """Every module of the product."""
    return sorted(str(file.relative_to(ROOT)) for package in PACKAGES for file in (ROOT / package).rglob("*.py"))


def named(tree: ast.Module) -> list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """The classes and functions of a module, nested ones too."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]


def words(name: str) -> list[str]:
    """The parts of a name, in lower case: of `BatchStore` and `batch_store` they are batch and store."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").split("_")


def twice(paths: list[str]) -> list[str]:
    """Base names that modules share which play no parallel part."""
    places = defaultdict(set)
    for path in paths:
        folder, _, name = path.rpartition("/")
        if name != "__init__.py":
            places[name].add(folder)
    return [f"{name}: {', '.join(sorted(folders))}" for name, folders in sorted(places.items())
            if len(folders) > 1 and not folders <= PARALLEL | ({"store"} if name == "settings.py" else set())]


def unclear_docstrings(path: str, tree: ast.Module) -> list[str]:
    """Docstrings that cannot be understood without the one before them."""
    return [f"{path}:{getattr(node, 'lineno', 1)}" for node in (tree, *named(tree))
            if re.match(r"The same\b", ast.get_docstring(node) or "")]


def pieces(path: str, tree: ast.Module) -> list[str]:
    """Constants that say neither their unit nor their use."""
    return [f"{path}:{node.lineno}" for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.strip("_") == "PIECE"]


def replaced(path: str, tree: ast.Module, words_of: frozenset[str] = REPLACED | GENERAL) -> list[str]:
    """Names with words in them that the project no longer uses."""
    names = [(1, path.rpartition("/")[2].removesuffix(".py")), *((node.lineno, node.name) for node in named(tree))]
    return [f"{path}:{line}: {name}" for line, name in names if words_of.intersection(words(name))]


def test_base_names_are_unique_but_in_parallel_packages():
    assert twice(paths()) == []


def test_the_words_of_the_product():
    """Each module is read once: that is what takes long."""
    wrong = []
    for path in paths():
        tree = ast.parse((ROOT / path).read_text())
        wrong += [f"{rule.__name__}: {found}" for rule in (unclear_docstrings, pieces, replaced)
                  for found in rule(path, tree)]
    assert wrong == []


def test_the_rules_can_fail():
    assert twice(["imap/session.py", "pop3/session.py", "imap/__init__.py", "store/__init__.py"]) == []
    assert twice(["imap/session.py", "store/session.py"]) == ["session.py: imap, store"]
    tree = ast.parse('PIECE = 1\ndef told_news():\n    """The same."""\nclass BatchLanding:\n    "Sameness"\n')
    assert pieces("a/b.py", tree) == ["a/b.py:1"]
    assert unclear_docstrings("a/b.py", tree) == ["a/b.py:2"]
    assert replaced("store/remake.py", tree) == ["store/remake.py:1: remake", "store/remake.py:2: told_news",
                                                 "store/remake.py:4: BatchLanding"]


def doors(rooms: Sequence[str], text: str) -> list[str]:
    """Of the front doors that a text names (`module`, `module.name`, `name`) those that are not in these rooms."""
    files = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    packages = {path.parent.name: path for path in files if path.stem == "__init__"}
    modules = packages | {path.stem: path for path in files}

    def has(path: Path, names: Sequence[str]) -> bool:
        return set(names) <= {node.name for node in named(ast.parse(path.read_text()))}

    lacking = []
    for door in re.findall(r"`([\w.]+)`", text):
        first, *others = door.split(".")
        if not (has(modules[first], others) if first in modules else any(
                has(path, [first, *others]) for path in files)):
            lacking.append(door)
    return lacking


def test_front_doors_are_where_their_rooms_and_the_architecture_say() -> None:
    lacking = {}
    for path in paths():
        if path.endswith("/__init__.py"):
            text = ast.get_docstring(ast.parse((ROOT / path).read_text())) or ""
            for sentence in re.findall(r"[Ff]ront doors?: (.*?)(?:[.:;] |\.?$|\.\n)", text, re.DOTALL):
                lacking[path] = doors([str(Path(path).parent)], sentence)
    page = (ROOT / "docs/architecture.md").read_text()
    for rooms, door in re.findall(r"^\| ((?:`[\w/]+/` ?)+) \|[^|]*\| (.*) \|$", page, re.MULTILINE):
        lacking[rooms] = doors(re.findall(r"`([^`]+)`", rooms), door)
    assert len(lacking) > 60 and {room: door for room, door in lacking.items() if door} == {}


def test_a_front_door_that_is_not_there_is_found() -> None:
    assert doors(["store/message"], "`mime.parse`, `mime.scan`, `text`, `nothing`") == ["mime.scan", "nothing"]
