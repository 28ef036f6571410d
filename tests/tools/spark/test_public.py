"""`from onecopy.spark import register`: one import, of an installed wheel, beside which nothing else of ours needs to
be known (issue 25, item 5)."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.tools.spark.conftest import bare_python
from tools.spark.generate.factsgenerator import Fleet, generate

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from onecopy.spark import register
from onecopy import spark as public
assert not any("/tools/onecopy" in path for path in sys.path) and public.__file__.startswith(sys.argv[1])
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config(
    "spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
assert register(spark) == ()
print(*register(spark, *sys.argv[2:]))
print(spark.sql("SELECT count(DISTINCT store, owner) AS n FROM mailboxes").first().n)
spark.stop()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel of this repository installs."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("imap", "lmtp", "mboxlist", "pop3", "store", "tools"):
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source" / name)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
                    "--disable-pip-version-check", "--wheel-dir", folder, folder / "source"], check=True,
                   stdin=subprocess.DEVNULL)
    wheel, = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as made:
        made.extractall(folder / "installed")
    return folder / "installed"


def test_it_is_in_the_wheel(installed: Path) -> None:
    assert {str(path.relative_to(installed)) for path in (installed / "onecopy").rglob("*.py")} == {
        "onecopy/__init__.py", "onecopy/spark/__init__.py"}
    assert not (installed / "tools/onecopy").exists() and not (installed / "tools/benchmarks").exists()
    assert {path.suffix for path in (installed / "tools/spark/report").iterdir()} == {".py", ".html", ".css"}


def test_one_import(installed: Path, tmp_path: Path) -> None:
    """In a session of the analyst's own, in a Python that has no onecopy but that wheel."""
    facts = generate(tmp_path / "facts", Fleet(1000, 20))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))} | {
        "PYTHONPATH": str(installed), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run([bare_python(tmp_path / "bare"), "-P", "-c", PROGRAM, installed, *facts], env=environment,
                          capture_output=True, text=True, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    names, owners = done.stdout.splitlines()
    assert names.split() == ["messages", "mailboxes", "references", "quotas", "rights", "users", "expunged", "volumes"]
    assert owners == str(2 * 20)        # two back ends, 20 users each
