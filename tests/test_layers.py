"""Imports run downward only, and each outside library has its place."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# A package may import itself and those named here.
BELOW = {
    "mboxlist": set(),
    "store": {"mboxlist"},
    "imap": {"store", "mboxlist"},
    "pop3": {"store", "mboxlist"},
    "lmtp": {"store", "mboxlist"},
    "tools": {"imap", "pop3", "lmtp", "store", "mboxlist"},
}

# The rooms of mboxlist, store and tools, from the ground up: a room may import rooms of the lines above its own, and
# none of its own line but itself. A module of store/ itself or tools/ itself, and one that is named here, is a room of
# its own.
ROOMS = """
mboxlist/privatefiles
mboxlist/engine
mboxlist
store/metrics
store/errors store/values store/progress store/changes store/deliverylog store/addresses
store/news
store/filelock store/problems
store/operations
store/settings
store/message
store/sieve
store/tables
store/events
store/partition
store/readonly
store/accounts/sasl
store/accounts
store/accounts/ldap store/accounts/apppasswords
store/observing
store/store
store/readable
store/offload
store/hosting store/audit
store/userarea
store/delivery
store/quota
store/search
store/mailboxes
store/filtering
store/partitions
store/users
store/snapshots
store/rebuild
store/migration
store/mend
store/check
store/recovery
store/opening
store/snapshots/comparison store/reconstruct
store/expiry
store/backup
store/usermove
store/standby
store/rejoin
store/housekeeping
store/finishing
store/net
store/net/proxies
tools/exits tools/serversettings tools/outbox/outboxsettings tools/spark/report/charts
tools/storeowner tools/commandaudit
tools/http
tools/server/tls tools/front
tools/cli
tools/transfer tools/outbox
tools/transfer/servers
tools/server/process tools/server/metrics
tools/server/transcripts tools/reference
tools/server/control tools/http/api
tools/http/console
tools/http/console/pages
tools/server
tools/spark/tablenames tools/spark/java
tools/spark/source
tools/spark
tools/spark/facts
tools/spark/rebuild tools/spark/report tools/spark/generate
tools/spark/verify
tools/onecopy
tools/commands
tools/demo tools/benchmarks
tools/benchmarks/powercut tools/benchmarks/load
tools/benchmarks/compare tools/benchmarks/standby tools/benchmarks/watching
""".split("\n")[1:-1]
FLOOR = {room: floor for floor, line in enumerate(ROOMS) for room in line.split()}


def room_of(path: str) -> str:
    """The room of a module: the longest name in the table that its path begins with."""
    name = path.removesuffix(".py")
    while name not in FLOOR:
        name = name.rpartition("/")[0]
    return name


LATE = re.compile(r"[a-z]\w*(?:\.\w+)+:\w+")       # the place of a function, for tools.cli.later.Later


def parsed(source: str | ast.Module, path: str) -> ast.Module:
    """The tree of a source, unless it is one already."""
    return source if isinstance(source, ast.Module) else ast.parse(source, path)


def loaded_later(tree: ast.Module) -> set[str]:
    """The places of functions of ours that are named in it, to be loaded later."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
            and LATE.fullmatch(node.value) and node.value.split(".")[0] in BELOW}


def named_modules(source: str | ast.Module, path: str) -> Iterator[tuple[int, str]]:
    """The modules of mboxlist, store and tools that are imported, or named to be loaded later, with the line."""
    for node in ast.walk(parsed(source, path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and LATE.fullmatch(node.value):
            names = [node.value.replace(":", ".")]
        else:
            continue
        for name in names:
            if name.split(".")[0] in ("mboxlist", "store", "tools"):
                yield node.lineno, name


def upward(source: str | ast.Module, path: str) -> list[str]:
    """Imports of a room that is not below that of the module at `path`."""
    found = []
    for line, name in named_modules(source, path):
        other = name.replace(".", "/")
        if not (ROOT / f"{other}.py").exists():
            other = other.rpartition("/")[0]
        if not (ROOT / f"{other}.py").exists():
            continue                    # a package: its docstring
        mine, there = room_of(path), room_of(f"{other}.py")
        if mine != there and FLOOR[there] >= FLOOR[mine]:
            found.append(f"{path}:{line}: {mine} must not import {there}")
    return found


# Outside libraries, and where they may be imported: folders (with a slash at the end) and files.
PLACES = {
    "argparse_manpage": ("tools/cli/manpages.py",),
    "attrs": ("",),
    "caio": ("store/net/", "store/standby/source/begunsyncs.py"),
    "berkeleydb": ("mboxlist/engine/",),
    "cryptography": ("store/accounts/tokens.py", "tools/server/tls/"),
    "idna": ("store/addresses.py",),
    "jinja2": ("tools/spark/report/page.py", "tools/http/console/"),
    "jwt": ("store/accounts/tokens.py",),
    "ldap3": ("store/accounts/ldap/ldapwire.py",),
    "markupsafe": ("tools/spark/", "tools/http/console/"),
    "numpy": ("mboxlist/engine/pages.py", "store/", "imap/", "pop3/dots.py", "tools/spark/"),
    "OpenSSL": ("tools/server/tls/channelbinding.py", "tools/server/tls/tickets.py", "tools/server/tls/contexts.py"),
    "prometheus_client": ("tools/server/metrics/exposition.py",),
    "opentelemetry": ("tools/server/metrics/spans.py",),
    "pika": ("tools/outbox/broker.py",),
    "py4j": ("tools/spark/",),
    "pyarrow": ("tools/spark/",),
    "pyotp": ("store/accounts/apppasswords/",),
    "pyspark": ("tools/spark/",),
    "re2": ("store/sieve/keymatching.py",),
    "rich": ("tools/",),
    "segno": ("tools/http/console/qrcodes.py",),
    "setuptools": ("tools/packages/",),
    "sphinx": ("tools/packages/site.py",),
    "shtab": ("tools/cli/shellscripts.py",),
    "twisted": ("imap/protocol.py", "pop3/protocol.py", "lmtp/protocol.py", "store/net/", "tools/"),
    "webauthn": ("store/accounts/apppasswords/",),
    "zstandard": ("store/backup/compression.py",),
    "zope": ("store/net/", "tools/"),
}


def imported(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """The top-level package of each import, wherever in the file it stands, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, package[0] if node.level <= len(package) else "(outside the repository)"
            else:
                yield node.lineno, (node.module or "").partition(".")[0]


def faults(source: str | ast.Module, path: str) -> list[str]:
    """What is wrong with the imports of a file at `path`, which is relative to the repository."""
    package = tuple(path.split("/")[:-1])
    found = []
    for line, name in imported(parsed(source, path), package):
        if name in BELOW:
            if name != package[0] and name not in BELOW[package[0]]:
                found.append(f"{path}:{line}: {package[0]} must not import {name}")
        elif name in PLACES:
            if not any(path.startswith(place) if place.endswith("/") or not place else path == place
                       for place in PLACES[name]):
                found.append(f"{path}:{line}: {name} belongs in {', '.join(PLACES[name])}")
        elif name not in sys.stdlib_module_names:
            found.append(f"{path}:{line}: {name} is not a library that onecopy uses")
    return found


def files() -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for package in BELOW for path in (ROOT / package).rglob("*.py"))


def test_imports() -> None:
    """Between packages, and between rooms, imports run one way, also those for types and those inside functions."""
    found, late = list[str](), set[str]()
    for path in files():
        tree = parsed((ROOT / path).read_text(encoding="utf-8"), path)
        found += faults(tree, path)
        if path.startswith(("mboxlist/", "store/", "tools/")) and not path.endswith("__init__.py"):
            found += upward(tree, path)
        late |= loaded_later(tree)
    assert found == []
    assert len(late) > 12
    for place in late:
        module, _, name = place.partition(":")
        source = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())
        assert name in {getattr(node, "name", "") for node in source.body}, place


def test_an_upward_import_is_found() -> None:
    source = "def f():\n    from store.mailboxes import expunge\n"
    assert upward(source, "store/tables/index.py") == [
        "store/tables/index.py:2: store/tables must not import store/mailboxes"]
    assert upward(source, "store/users/lifecycle.py") == []


def test_what_is_loaded_later_counts_as_an_import() -> None:
    source = 'inbox = Later("tools.commands.quota:quota")\n'
    assert upward(source, "tools/cli/lookup.py") == ["tools/cli/lookup.py:1: tools/cli must not import tools/commands"]
    assert upward(source, "tools/benchmarks/sizing.py") == []


def test_every_package_is_there() -> None:
    assert {path.split("/")[0] for path in files()} == set(BELOW)


@pytest.mark.parametrize(("path", "source", "fault"), [
    ("mboxlist/table.py", "import store.errors", "mboxlist/table.py:1: mboxlist must not import store"),
    ("store/net/linestates.py", "from imap.wire import numbers",
     "store/net/linestates.py:1: store must not import imap"),
    ("imap/verbs/copying.py", "x = 1\nimport pop3", "imap/verbs/copying.py:2: imap must not import pop3"),
    ("lmtp/session.py", "def f():\n    from tools import cli", "lmtp/session.py:2: lmtp must not import tools"),
    ("imap/session.py", "import twisted.internet",
     "imap/session.py:1: twisted belongs in imap/protocol.py, pop3/protocol.py, lmtp/protocol.py, store/net/, tools/"),
    ("store/store.py", "from berkeleydb import db",
     "store/store.py:1: berkeleydb belongs in mboxlist/engine/"),
    ("pop3/maildrop.py", "import numpy as np",
     "pop3/maildrop.py:1: numpy belongs in mboxlist/engine/pages.py, store/, imap/, pop3/dots.py, tools/spark/"),
    ("tools/cli/program.py", "import requests", "tools/cli/program.py:1: requests is not a library that onecopy uses"),
    ("store/settings.py", "from ..imap import wire",
     "store/settings.py:1: (outside the repository) is not a library that onecopy uses"),
])
def test_a_fault_is_found(path: str, source: str, fault: str) -> None:
    assert faults(source, path) == [fault]


@pytest.mark.parametrize(("path", "source"), [
    ("store/store.py", "import struct, mboxlist.table\nfrom . import errors"),
    ("store/accounts/ldap/ldapwire.py", "import ldap3\nfrom ..errors import StoreError"),
    ("store/net/threads.py", "from twisted.internet import threads"),
    ("imap/protocol.py", "from twisted.internet.protocol import Factory\nimport numpy"),
    ("tools/server/start.py", "import imap.protocol, pop3.protocol, lmtp.protocol, store, mboxlist"),
])
def test_what_is_allowed(path: str, source: str) -> None:
    assert faults(source, path) == []


def test_no_group_is_possessive():
    """Python before 3.11.5 matches `(...)*+` and `(...)?+` wrongly (gh-106052); `[...]*+` is right everywhere."""
    sources = [path for package in BELOW for path in (ROOT / package).rglob("*.py")]
    found = [f"{path}:{number}" for path in sources for number, line in enumerate(path.read_text().splitlines(), 1)
             if re.search(r"\)[*?+]\+", line)]
    assert not found
