"""`tools/bench powercut --page`: the table of docs/durability.md is that of the cuts on record of one commit."""

from pathlib import Path

from tools.benchmarks.powercut import report
from tools.benchmarks.powercut.cuts import Outcome


def test_the_table_has_each_cut_of_one_commit_once(tmp_path: Path) -> None:
    record, page = tmp_path / "cuts.json", tmp_path / "page.md"
    page.write_text("before\n<!-- begin power cuts -->\nold\n<!-- end power cuts -->\nafter\n")
    for code, seed, number, answers in [("a", 1, 0, 1000), ("a", 1, 0, 1000), ("a", 2, 0, 234), ("b", 1, 1, 9)]:
        report.note(Outcome(number, "mail", "ext4", "none", answers=answers), seed, code, record)
    report.note(Outcome(1, "init", "xfs", "all", lost=["x"]), 1, "a", record)
    report.put_in(page, record, "a")
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "3 cuts of commit a, seeds 1, 2:" in text
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    lost = cells[0].index("lost")
    assert [(*row[:4], row[lost]) for row in cells[2:]] == [
        ("init", "xfs", "1", "0", "1"), ("mail", "ext4", "2", "1,234", "0"), ("all", "", "3", "1,234", "1")]


def test_the_page_has_its_place() -> None:
    assert "<!-- begin power cuts -->" in report.PAGE.read_text()
