"""What is kept of the last check."""

import pytest

from store.check import lastcheck


@pytest.mark.parametrize("octets", [None, b"", b"{", b"[]", b"{}", b'{"time": "x", "seconds": 1, "findings": 1}',
                                    b'{"time": 1, "seconds": null, "findings": 1}'])
def test_nothing_or_nonsense_is_none(tmp_path, octets):
    if octets is not None:
        (tmp_path / lastcheck.FILE).write_bytes(octets)
    assert lastcheck.read(tmp_path) == {"time": 0.0, "seconds": 0.0, "findings": 0}


def test_what_is_written_is_read(tmp_path):
    lastcheck.write(tmp_path, 1_700_000_000.0, 3)
    found = lastcheck.read(tmp_path)
    assert (found["time"], found["findings"]) == (1_700_000_000.0, 3) and found["seconds"] > 0
    assert (tmp_path / lastcheck.FILE).stat().st_mode & 0o777 == 0o600
    lastcheck.write(tmp_path, 1_800_000_000.0, 0)
    assert lastcheck.read(tmp_path)["findings"] == 0


def test_where_nothing_can_be_written_the_check_goes_on(tmp_path):
    lastcheck.write(tmp_path / "gone", 1.0, 1)
