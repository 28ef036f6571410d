"""tools/bench compare: a short run with real servers, and how onecopy stands to the better peer."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.faults.planted import Faults
from tests.support.processes import wait
from tools.benchmarks.compare import bars, cyruspeer, dovecotpeer, sidebyside, speedpage, starting
from tools.benchmarks.compare.ratios import Line, lines, table
from tools.benchmarks.compare.variants import Comparison
from tools.benchmarks.load import procfs
from tools.benchmarks.load.measuring import Sample
from tools.exits import Failure

pytestmark = pytest.mark.long

LIKE = Comparison("title", "promise", "onecopy-everything", ("dovecot-fsync", "cyrus"))


def line(more_is_better: bool, **values: float) -> Line:
    """One figure; a server's name has an underscore for its hyphen."""
    return Line("w", "m", "u", more_is_better, {name.replace("_", "-"): value for name, value in values.items()}, {})


@pytest.mark.parametrize(("figure", "ratio"), [
    (line(True, onecopy_everything=30, dovecot_fsync=10, cyrus=20), 1.5),
    (line(False, onecopy_everything=30, dovecot_fsync=10, cyrus=15), 1 / 3),
    (line(False, onecopy_everything=5, cyrus=10), 2.0),
    (line(True, onecopy_everything=30, dovecot=1), None),          # a peer that promises less is not compared
    (line(True, cyrus=30), None),
    (line(True, onecopy_everything=1, cyrus=0), None),
    (line(False, onecopy_everything=0.0, cyrus=1), None),
    (line(False, onecopy_everything=-1.0, cyrus=1), None),         # memory that went down meanwhile
])
def test_the_ratio_is_to_the_better_peer(figure: Line, ratio: float | None) -> None:
    assert figure.ratio(LIKE) == pytest.approx(ratio)


def test_the_table_has_medians_and_cpu() -> None:
    samples = [Sample(name, "w", "m", value, "ms", False, 0)
               for name, value in (("cyrus", 1.0), ("cyrus", 3.0), ("onecopy-everything", 4.0), ("cyrus", 2.0))]
    found = lines(samples)
    found[0].cpu["cyrus"] = 12.5
    assert table(found, LIKE)[2:] == ["| m | ms | less | - | 2.00 (12.5) | 4.00 | 0.50 |"]
    assert 'width="440.0"' in bars.bars(found)                     # the longest bar, and half of it
    assert 'width="220.0"' in bars.bars(found)


def test_only_its_own_part_of_the_page_is_written(tmp_path: Path) -> None:
    page = tmp_path / "speed.md"
    page.write_text("by hand\n<!-- begin compare -->\nold\n<!-- end compare -->\n<!-- begin scaling -->"
                    "kept<!-- end scaling -->\n")
    speedpage.write_part(page, "compare", r"new \1", {"login": "<svg/>"})
    assert page.read_text() == ("by hand\n<!-- begin compare -->\n\nnew \\1\n\n<!-- end compare -->\n"
                                "<!-- begin scaling -->kept<!-- end scaling -->\n")
    assert (tmp_path / "speed/login.svg").read_text() == "<svg/>"
    page.write_text("by hand\n")
    with pytest.raises(Failure, match="begin compare.*are missing"):
        speedpage.write_part(page, "compare", "new", {})
    assert page.read_text() == "by hand\n"


def test_names_are_chosen_or_left_out() -> None:
    assert sidebyside.parse(["--only", "cyrus,dovecot"]).only == ["dovecot", "cyrus"]
    assert "mixed" not in sidebyside.parse(["--workloads=-mixed,-idle"]).workloads
    with pytest.raises(SystemExit) as end:
        sidebyside.parse(["--only", "exchange"])
    assert end.value.code == 2


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    faults.around(os, "geteuid", lambda _: 0)
    monkeypatch.setattr(cyruspeer, "PACKAGES", {tmp_path / "imapd": "cyrus-imapd", Path("/bin/sh"): "dash"})
    monkeypatch.setattr(dovecotpeer, "PACKAGES", {tmp_path / "lmtp": "dovecot-lmtpd"})
    with pytest.raises(Failure, match=r"^missing: cyrus-imapd, dovecot-lmtpd \(Debian packages"):
        sidebyside.main([])
    sidebyside.refuse_what_lacks(["onecopy-everything"])
    faults.around(os, "geteuid", lambda _: 1000)
    with pytest.raises(Failure, match="it must be root"):
        sidebyside.main(["--only", "onecopy-everything"])


def test_all_processes_of_a_server_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One below it that ignores SIGTERM as well."""
    monkeypatch.setattr(starting, "STOP_TIME", 0.2)
    server = subprocess.Popen(["/bin/sh", "-c", "(trap '' TERM; echo; exec sleep 600) & wait"], stdout=subprocess.PIPE)
    assert server.stdout is not None and server.stdout.read(1) == b"\n"
    below = [pid for pid in procfs.process_tree(server.pid) if pid != server.pid]
    assert len(below) == 1
    starting.end(server)
    server.stdout.close()
    wait.gone(below[0], "what was below it", limit=180)
    assert server.returncode is not None


def test_one_workload_on_real_servers(tmp_path: Path) -> None:
    """The table has the line, with the ratio to the better peer; of the servers nothing is left."""
    place, page = tmp_path / "place", tmp_path / "speed.md"
    place.mkdir()
    for folder in place, tmp_path:  # whatever the umask: the peers have users of their own
        folder.chmod(0o711)
    done = subprocess.run([sys.executable, "-P", "-m", "tools.benchmarks.compare.sidebyside", "--workloads",
                           "sieve-1,login", "--users", "2", "--scale", "0.02", "--mailbox", "10", "--only",
                           "onecopy-everything,dovecot-fsync,cyrus", "--disk", "1", "--dir", str(place), "--out",
                           str(page)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    written = page.read_text()
    assert "All answers were as they must be." in written
    assert "    tools/bench compare --workloads sieve-1,login --only onecopy-everything,dovecot-fsync,cyrus" in written
    row = re.search(r"^\| login \| sess/s \| more \| ([\d,.]+) \(.+\) \| ([\d,.]+) \(.+\) \| ([\d,.]+) \(.+\) "
                    r"\| \**([\d.]+)\** \|$", written, re.MULTILINE)
    assert row is not None and "| sieve-1 | msg/s | more |" in written
    fsync, cyrus, ours, ratio = (float(cell.replace(",", "")) for cell in row.groups())
    assert ratio == pytest.approx(ours / max(fsync, cyrus), abs=0.02, rel=0.02)
    assert "dovecot" in (tmp_path / "speed/login.svg").read_text().lower()
    assert list(place.iterdir()) == []
    left = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
            if bytes(place) in procfs.command_line(pid)]
    assert left == []
