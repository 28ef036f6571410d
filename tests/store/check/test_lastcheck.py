"""What is kept of the last check."""

import pytest

from store.check import lastcheck
from store.values import Finding

FOUND = [Finding("it is not there", f"mailbox {number}") for number in range(3)]


@pytest.mark.parametrize("octets", [None, b"", b"{", b"[]", b"{}", b'{"time": "x", "seconds": 1, "findings": 1}',
                                    b'{"time": 1, "seconds": null, "findings": 1}'])
def test_nothing_or_nonsense_is_none(tmp_path, octets):
    if octets is not None:
        (tmp_path / lastcheck.FILE).write_bytes(octets)
    assert lastcheck.read(tmp_path) == {"time": 0.0, "seconds": 0.0, "findings": 0}
    assert lastcheck.read_with_findings(tmp_path) == {"time": 0.0, "seconds": 0.0, "findings": 0, "first": []}


def test_what_is_written_is_read(tmp_path):
    lastcheck.write(tmp_path, 1_700_000_000.0, FOUND)
    found = lastcheck.read(tmp_path)
    assert (found["time"], found["findings"]) == (1_700_000_000.0, 3) and found["seconds"] > 0
    assert (tmp_path / lastcheck.FILE).stat().st_mode & 0o777 == 0o600
    lastcheck.write(tmp_path, 1_800_000_000.0, [])
    assert lastcheck.read(tmp_path)["findings"] == 0


def test_the_first_findings_are_kept(tmp_path):
    """However many there are, and however long."""
    lastcheck.write(tmp_path, 1.0, [*FOUND, *[Finding("x" * 10**6, "y" * 10**6)] * 1000])
    found = lastcheck.read_with_findings(tmp_path)
    assert found["findings"] == 1003 and len(found["first"]) == lastcheck.KEPT
    assert found["first"][1] == {"where": "mailbox 1", "what": "it is not there", "repair": "reconstruct --all"}
    assert (tmp_path / lastcheck.FILE).stat().st_size < 10**6


def test_what_an_earlier_version_wrote_is_read(tmp_path):
    (tmp_path / lastcheck.FILE).write_text('{"time": 1, "seconds": 2, "findings": 3}')
    assert lastcheck.read_with_findings(tmp_path) == {"time": 1.0, "seconds": 2.0, "findings": 3, "first": []}


def test_where_nothing_can_be_written_the_check_goes_on(tmp_path):
    lastcheck.write(tmp_path / "gone", 1.0, FOUND)
