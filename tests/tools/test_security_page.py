"""docs/security.md: its numbers are the program's, and the tests that it names are there."""

import importlib
import re

import pytest

from tests.support import ROOT
from tools.cli.options import table

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
OPTIONS = re.findall(r"^\| `(\w+\.\w+)` \| `([^`]*)` \|", PAGE, re.MULTILINE)
CONSTANTS = re.findall(r"^\| `([A-Z_]+)` \| `([\w/]+)\.py` \| ([0-9.]+) \|", PAGE, re.MULTILINE)
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)
SECTIONS = {name.partition(".")[0] for name in table()}


@pytest.mark.parametrize(("name", "value"), OPTIONS)
def test_a_default_is_what_the_page_says(name: str, value: str) -> None:
    option = table()[name]
    assert option.show(option.default) == value


@pytest.mark.parametrize(("name", "module", "value"), CONSTANTS)
def test_a_constant_is_what_the_page_says(name: str, module: str, value: str) -> None:
    assert getattr(importlib.import_module(module.replace("/", ".")), name) == float(value)


@pytest.mark.parametrize(("file", "test"), sorted(set(NAMED)))
def test_a_test_that_the_page_names_is_there(file: str, test: str) -> None:
    assert f"def {test or 'test_'}" in (ROOT / file).read_text(encoding="utf-8")


def test_all_that_is_promised_names_a_test() -> None:
    assert len(OPTIONS) > 20 and len(CONSTANTS) > 5 and len(NAMED) > 20
    rows = [line.rstrip("|").rpartition("|")[2] for line in PAGE.splitlines()
            if line.startswith("|") and "| it may not |" not in line and line.count("|") == 4 and "---" not in line
            and not line.startswith("| `") and "| what it limits |" not in line]
    assert len(rows) > 20 and [row for row in rows if "`tests/" not in row] == []


def test_options_that_the_page_names_are_there() -> None:
    named = {name for name in re.findall(r"`(\w+\.\w+)(?: = [^`]*)?`", PAGE) if name.partition(".")[0] in SECTIONS}
    assert len(named) > 30 and sorted(named - table().keys() - {"store.idx"}) == []
