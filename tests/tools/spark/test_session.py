"""`onecopy spark`: what it needs, what it says when that is missing, and its commands."""

import io
import json
import os
import py_compile
import shutil
import subprocess
import sys
import zipfile
import zipimport

import pytest

from tests.support.servers.classarchive import java_options
from tests.tools.spark.conftest import LOCAL
from tools.cli import program
from tools.exits import Failure
from tools.spark import java, sparksession
from tools.spark.facts.factfolders import register
from tools.spark.java import java_home, version_of
from tools.spark.sparksession import Seen


def make_java(home, version):
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


# Java

def test_java_home_is_believed(tmp_path):
    home = make_java(tmp_path / "mine", "21.0.1")
    assert java_home({"JAVA_HOME": str(home), "PATH": ""}, tmp_path) == home
    with pytest.raises(Failure, match="and there is no Java"):
        java_home({"JAVA_HOME": str(tmp_path / "none")}, tmp_path)
    old = make_java(tmp_path / "old", "11.0.2")
    with pytest.raises(Failure, match="Java 11: Spark needs Java 17 or later"):
        java_home({"JAVA_HOME": str(old)}, tmp_path)


def test_java_is_found(tmp_path):
    places = tmp_path / "jvm"
    make_java(places / "j8", "1.8.0_312")
    newest, right = make_java(places / "a25", "25.0.1"), make_java(places / "z17", "17.0.15")
    (places / "default").symlink_to(newest)
    assert java_home({"PATH": ""}, places) == right
    assert version_of(places / "j8") == 8
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "java").symlink_to(newest / "bin" / "java")
    assert java_home({"PATH": str(bin)}, places) == newest
    (bin / "java").unlink()
    (bin / "java").symlink_to(places / "j8" / "bin" / "java")
    assert java_home({"PATH": str(bin)}, places) == right           # the first in PATH is too old


@pytest.mark.parametrize("version", [None, "11.0.1"])
def test_no_java(tmp_path, version):
    if version:
        make_java(tmp_path / "j", version)
    with pytest.raises(Failure) as raised:
        java_home({"PATH": ""}, tmp_path)
    found = " (found: Java 11)" if version else ""
    assert str(raised.value) == (f"Spark needs Java 17 or later{found}: apt-get install openjdk-17-jre-headless, "
                                 "or set JAVA_HOME")


# What the program says

def run(capsys, *words):
    status = program.main(["spark", *words])
    out, error = capsys.readouterr()
    return status, out, error


@pytest.mark.parametrize("command", [["sql", "SELECT 1"], ["shell"], ["sharing"]])
def test_what_is_missing_is_said_in_one_line(capsys, monkeypatch, place, command, faults):
    where = ["--root", place.stores[1]]
    faults.around(sparksession, "find_spec", lambda _, name: None if name == "pyspark" else 1)
    status, out, error = run(capsys, *command, *where)
    assert (status, out) == (2, "")
    start = f"onecopy: Spark is not installed: {sys.executable} -m pip install 'pyspark"
    assert error.startswith(start) and "'pyarrow" in error and error.count("\n") == 1
    faults.mend()
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    faults.around(sparksession, "java_home", lambda _: java.java_home(os.environ, java.Path("/nowhere")))
    monkeypatch.chdir(place.stores[1])
    status, out, error = run(capsys, *command, *where)
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("onecopy: Spark needs Java 17 or later: apt-get install openjdk-17-jre-headless")


@pytest.mark.parametrize(("words", "said"), [
    (["sql", "SELECT 1", "--stores", "/nowhere"], "there is no store in /nowhere"),
    (["sql", "SELECT 1", "--spark", "m=1"], "m=1 is not a setting of Spark, such as spark.executor.memory=4g"),
    (["sql", "SELECT 1", "--master", "spark://127.0.0.1:1"], "there is no Spark master at 127.0.0.1:1"),
    (["sql", "SELECT 1", "--master", "bogus"],
     "bogus is no master of Spark: local[*], spark://HOST:PORT, yarn or k8s://URL"),
    (["sql", "SELECT 1", "--master", "local[x]"],
     "local[x] is no master of Spark: local[*], spark://HOST:PORT, yarn or k8s://URL"),
    (["sql", "SELECT 1", "--master", "yarn"],
     "--master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR, the folder of YARN's settings"),
    (["sql", "SELECT 1", "--limit", "x"],
     "argument --limit: 'x' is not a number (see onecopy spark sql --help)"),
])
def test_wrong_use_is_said_before_spark_begins(capsys, monkeypatch, place, words, said):
    """In a line, without the traceback of a virtual machine."""
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert run(capsys, *words, "--root", place.stores[1]) == (2, "", f"onecopy: {said}\n")


# The commands, in the session of these tests

@pytest.fixture
def command(in_session, capsys, place):
    """Runs `onecopy spark` on both stores."""
    return lambda *words: run(capsys, *words, "--stores", ",".join(place.stores))


@pytest.mark.parametrize("spark", [LOCAL], indirect=True)
def test_sql(command, place):
    query = "SELECT owner, count(*) AS records FROM references GROUP BY owner ORDER BY owner"
    counted: dict[str, int] = {}
    for row in place.expected["references"]:
        counted[row["owner"]] = counted.get(row["owner"], 0) + 1
    status, out, _ = command("sql", query, "--json")
    assert status == 0
    assert json.loads(out) == [{"owner": owner, "records": counted[owner]} for owner in sorted(counted)]
    status, out, _ = command("sql", query, "--csv")
    assert out.splitlines() == ["owner,records", *(f"{owner},{counted[owner]}" for owner in sorted(counted))]
    status, out, error = command("sql", query, "--limit", "2")
    assert status == 0 and len(out.splitlines()) == 3
    assert error == "onecopy: there are more than these 2 rows: see --limit\n"
    status, out, _ = command("sql", "SELECT store, partition, root FROM quotas", "--json", "--limit", "0")
    assert len(json.loads(out)) == len(place.expected["quotas"])        # the newest of each root
    status, out, error = command("sql", "SELECT nothing FROM references")
    assert (status, out, error.count("\n")) == (1, "", 1) and "nothing" in error


@pytest.mark.parametrize("spark", [LOCAL], indirect=True)
def test_facts(spark, in_session, monkeypatch, capsys, place, tmp_path):
    """To a URI they go through Hadoop, the second time what has changed; `sql`, the prompt and `register` read them."""
    for name, value in {"CACHE": "1M", "DISK_RESERVE": "0", "SPECIAL_MAILBOXES": ""}.items():
        monkeypatch.setenv(f"ONECOPY_STORE_{name}", value)
    shutil.copytree(place.stores[1], tmp_path / "copy", symlinks=True)
    there = f"file://{tmp_path}/out"
    words = ("facts", "export", there, "--root", str(tmp_path / "copy"), "--name", "mail2", "--json")
    assert program.main([*words]) == 0
    first = json.loads(capsys.readouterr().out)
    assert program.main([*words]) == 0
    assert json.loads(capsys.readouterr().out)["rows_written"] < first["rows_written"] == first["rows"]
    for path in (tmp_path / "out").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    expected = [row for row in place.expected["references"] if row["store"] == place.stores[1]]
    query = "SELECT count(*) AS n, max(store) AS store FROM references"
    for where in (there, str(tmp_path / "out")):
        status, out, _ = run(capsys, "sql", query, "--json", "--facts", where)
        assert (status, json.loads(out)) == (0, [{"n": len(expected), "store": "mail2"}])
    assert register(spark, there) and spark.table("users").count() == 3
    monkeypatch.setattr("sys.stdin", io.StringIO("sql('SELECT nothing FROM users')\nprint(users.count())\n1 / 0\n"))
    status, out, error = run(capsys, "shell", "--facts", there)
    assert (status, out.replace(">>> ", "").split()) == (0, ["3"])
    assert "nothing" in error.splitlines()[0] and "ZeroDivisionError: division by zero" in error and "java" not in error
    os.unlink(tmp_path / "out/facts.json")
    assert run(capsys, "sql", query, "--facts", there)[0] == 2


@pytest.mark.parametrize("spark", [LOCAL], indirect=True)
def test_shell(command, place, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("print(rights.count(), sql('SELECT 7 AS n').first().n)\n"))
    status, out, _ = command("shell")
    assert (status, out.replace(">>> ", "").split()) == (0, [str(len(place.expected["rights"])), "7"])


def test_the_program_itself(place):
    """A process of its own: it finds Java and the interpreter, says nothing but the answer, and ends."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    done = subprocess.run(
        [sys.executable, "-m", "tools.cli.program", "spark", "sql", "SELECT count(*) AS n FROM mailboxes", "--csv",
         "--root",
         place.stores[1], "--master", "local[1]"],
        text=True, capture_output=True, timeout=300, env=environment | {"SPARK_SUBMIT_OPTS": java_options()})
    assert (done.returncode, done.stdout, done.stderr) == (0, "n\n3\n", "")


# Parts

def test_what_is_shipped(tmp_path):
    py_compile.compile(java.__file__)
    names = zipfile.ZipFile(path := sparksession.packed(tmp_path / "x.zip")).namelist()
    assert {"tools/spark/source/reading.py", "store/userarea/idxfile.py", "mboxlist/engine/kv.py",
            "store/net/stream.py"} <= set(names)
    assert all(name.endswith(".py") or name.endswith(".pyc") and name[:-1] in names for name in names)
    found = zipimport.zipimporter(f"{path}/tools/spark").find_spec("java")
    assert found is not None and str(found.origin).endswith("java.pyc"), "a worker compiles it again"


def test_tasks_that_are_done():
    seen = Seen()
    seen.stages |= {1: (3, 10), 2: (1, 4)}
    assert seen.tasks({1, 2}) == (4, 14)
    assert seen.tasks({2}) == (11, 14)          # the first stage has ended
