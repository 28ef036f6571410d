"""A test that starts no process has stores of few folders, whatever else its module has."""

import pytest

from store.partition.messagefiles import MessageFiles
from tests.support.stores import small


def test_a_quick_one_has_few() -> None:
    assert MessageFiles.path is not small._PATH


@pytest.mark.long
def test_a_long_one_has_all() -> None:
    assert MessageFiles.path is small._PATH


@pytest.mark.long
@pytest.mark.few_folders
def test_a_long_one_that_is_marked_has_few() -> None:
    assert MessageFiles.path is not small._PATH
