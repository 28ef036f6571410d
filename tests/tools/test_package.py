"""What `tools/package` makes: it takes the one name `onecopy`, and works beside packages with our folders' names."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest

from store import VERSION
from tests.support import ROOT
from tests.support.clients.imap import Imap
from tests.support.processes.ports import free_port
from tests.support.servers.classarchive import java_options
from tests.support.servers.server import Server
from tests.tools.spark.conftest import bare_python
from tools.packages.onename import OURS, below_one_name
from tools.spark.generate.factsgenerator import Fleet, generate

ANALYST = """
import sys, store, tools                  # of somebody else
from pyspark.sql import SparkSession
from onecopy.spark import register
from onecopy import spark as public
assert public.__file__.startswith(sys.argv[1]) and "/site-packages/tools/" in tools.__file__, tools
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config(
    "spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").config(
    "spark.sql.shuffle.partitions", "2").config("spark.sql.codegen.wholeStage", "false").getOrCreate()
assert register(spark) == ()
print(*register(spark, *sys.argv[2:]))
print(spark.sql("SELECT count(DISTINCT store, owner) AS n FROM mailboxes").first().n)
spark.stop()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the last line of `tools/package wheel` names."""
    folder = tmp_path_factory.mktemp("made")
    done = subprocess.run([ROOT / "tools/package", "wheel", folder], check=True, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE)
    made = Path(done.stdout.splitlines()[-1])
    assert made == folder / f"onecopy-{VERSION}-py3-none-any.whl"
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel in it, beside packages of somebody else with the names of our folders."""
    folder = tmp_path_factory.mktemp("installed")
    python = bare_python(folder)
    packages, = folder.glob("lib/python3*/site-packages")
    for name in OURS:
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text("")
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps",
                    "--disable-pip-version-check", wheel], check=True, stdin=subprocess.DEVNULL)
    return folder


def test_one_name_is_taken(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as made:
        names = made.namelist()
        top = made.read(f"onecopy-{VERSION}.dist-info/top_level.txt")
    assert {name.partition("/")[0] for name in names} == {
        "onecopy", f"onecopy-{VERSION}.dist-info", f"onecopy-{VERSION}.data"}
    assert top == b"onecopy\n"
    assert not [name for name in names if "benchmarks" in name or "/packages/" in name or "tools/onecopy" in name]
    assert {Path(name).suffix for name in names if name.startswith("onecopy/")} <= {
        ".py", ".html", ".css", ".js", ".svg"}
    assert {"onecopy/tools/spark/report/report.html", "onecopy/spark/__init__.py"} <= set(names)


def test_the_sdist_has_what_a_wheel_and_a_test_need(tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "tools/package", "sdist", tmp_path], check=True, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE)
    with tarfile.open(done.stdout.splitlines()[-1]) as made:
        names = {name.partition("/")[2] for name in made.getnames()}
    assert {"README.md", "LICENSE", "setup.cfg", "pyproject.toml", "tools/test", "tests/conftest.py", ".ci/run",
            "share/man/man1/onecopy.1"} <= names
    assert not [name for name in names if name.split("/")[0] in (".git", ".venv", "var", "dist", "build")
                or name.endswith(".pyc")]


def test_a_package_that_there_is_not() -> None:
    done = subprocess.run([ROOT / "tools/package", "rpm"], check=False, stdin=subprocess.DEVNULL, text=True,
                          capture_output=True)
    assert (done.returncode, done.stderr) == (2, "package: wheel, sdist, deb, image or notes: which one?\n")


def test_the_notes_are_of_this_version(tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "tools/package", "notes", tmp_path], check=True, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE)
    notes = Path(done.stdout.splitlines()[-1])
    assert notes == tmp_path / f"onecopy-{VERSION}-notes.md"
    lines = notes.read_text().splitlines()
    assert VERSION in lines[0] and [line for line in lines if line.startswith("## ")] == lines[:1] and len(lines) > 100


def test_the_manual_and_the_completions_come_along(installed: Path) -> None:
    assert (installed / "share/man/man1/onecopy.1").read_text().startswith(".")
    assert (installed / "share/man/man5/onecopy.toml.5").stat().st_mode & 0o777 == 0o644
    for path in ("bash-completion/completions/onecopy", "zsh/site-functions/_onecopy",
                 "fish/vendor_completions.d/onecopy.fish"):
        assert "onecopy" in (installed / "share" / path).read_text()


def test_the_program_beside_others_with_our_names(installed: Path, tmp_path: Path) -> None:
    """A server of several processes, and commands beside it."""
    program, options = installed / "bin/onecopy", {"workers.imap": "1", "http.port": str(free_port())}
    server = Server(tmp_path, ["alice"], options, program=program)

    def onecopy(*words: str, octets: bytes = b"") -> str:
        return subprocess.run([program, *words], input=octets, check=True, env=server.environment(), cwd=tmp_path,
                              stdout=subprocess.PIPE).stdout.decode()

    assert onecopy("--version") == f"onecopy {VERSION}\n"
    with server:
        assert onecopy("deliver", "alice", octets=b"Subject: hello\n\nhello\n") == "alice INBOX 1\n"
        with urlopen(f"http://127.0.0.1:{options['http.port']}/health") as answer:
            assert json.load(answer)["state"] == "ok"
        with Imap(server.imap, "alice") as client:
            client.select()
            assert b"hello" in client.messages()[1]
        assert onecopy("status").startswith("the server runs")
        server.stop()
    assert "nothing wrong" in onecopy("check")
    assert "INFO tools.server.supervisor: serving" in server.said() and "onecopy.tools" not in server.said()


def test_an_analyst_who_has_a_package_tools(installed: Path, tmp_path: Path) -> None:
    """In a session of the analyst's own: one import, beside which nothing else of ours needs to be known."""
    facts = generate(tmp_path / "facts", Fleet(1000, 20))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))} | {
        "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": java_options()}
    done = subprocess.run([installed / "bin/python", "-P", "-c", ANALYST, installed, *facts], env=environment,
                          capture_output=True, text=True, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    names, owners = done.stdout.splitlines()
    assert names.split() == ["messages", "mailboxes", "references", "quotas", "rights", "users", "expunged", "volumes"]
    assert owners == str(2 * 20)        # two back ends, 20 users each


@pytest.mark.parametrize(("before", "after"), [
    ("from store.net import stream\n", "from onecopy.store.net import stream\n"),
    ("from imap import wire as w  # é\n", "from onecopy.imap import wire as w  # é\n"),
    ("x = 'é'; from store import (\n    offload)\n", "x = 'é'; from onecopy.store import (\n    offload)\n"),
    ("import store.settings\n", "import onecopy.store.settings, onecopy.store as store\n"),
    ("import os, pop3.dots as d, sys\n", "import os, onecopy.pop3.dots as d, sys\n"),
    ("from . import store\nfrom .tools import x\nimport storeroom, toolset.store\n",) * 2,
    ("from storeroom import store\n",) * 2,
    ('show = Later("tools.cli.richtable:show")\n', 'show = Later("onecopy.tools.cli.richtable:show")\n'),
    ('words = [a, "-P", "-m", "tools.cli.program"]\n', 'words = [a, "-P", "-m", "onecopy.tools.cli.program"]\n'),
    ('option = "store.sync"; ["store.sync", "imap.port"]; f"tools.{option}"\n',) * 2,
    ("log = logging.getLogger(__name__)\n", "log = logging.getLogger('store.net.stream')\n"),
    ('slow = logging.getLogger("slow")\n',) * 2])
def test_names_are_changed_where_they_are_names_of_modules(before: str, after: str) -> None:
    assert below_one_name(before, "store.net.stream") == after


def test_no_module_is_named_in_another_way(wheel: Path) -> None:
    """Each import of ours in each module of the wheel names `onecopy`; and what was changed still is Python."""
    seen = 0
    with zipfile.ZipFile(wheel) as made:
        for name in made.namelist():
            if not name.endswith(".py"):
                continue
            source = made.read(name).decode()
            compile(source, name, "exec", dont_inherit=True)
            for line in source.splitlines():
                words = line.split()
                if words[:1] in (["from"], ["import"]) and len(words) > 1 and words[1].split(".")[0] in OURS:
                    assert words[0] == "from" and words[2:3] != ["import"], f"{name}: {line}"
            seen += 1
    assert seen > 700
