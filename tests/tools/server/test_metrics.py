"""Metrics that stand on files, and the text format."""

import os
import subprocess

from store.recovery.environments import REPORTS
from store.snapshots import retention
from tests.tools.server.test_administration import values
from tests.tools.server.test_alerts import PROMTOOL
from tools.server.metrics.exposition import text
from tools.server.metrics.figures import gather
from tools.server.metrics.metriclist import METRICS


def told(store):
    return {name: value for name, value in values(text(gather(store)).decode()).items()
            if "snapshot" in name or "recover" in name}


def test_a_store_without_any(store):
    assert set(told(store).values()) == {0}
    assert values(text(gather(store)).decode())["onecopy_processes"] == 0


def test_snapshots_and_recoveries(store):
    snapshot = retention.make(store)
    found = told(store)
    assert found["onecopy_snapshot_newest_timestamp_seconds"] == snapshot.time
    assert (found["onecopy_snapshots"], found["onecopy_snapshot_failed_timestamp_seconds"]) == (1, 0)
    assert found["onecopy_snapshot_newest_bytes"] == snapshot.size > 0
    failed = snapshot.path.parent / retention.FAILED
    failed.write_text("no room\n")
    os.utime(failed, (1_700_000_000, 1_700_000_000))
    (store.root / REPORTS).mkdir(exist_ok=True)
    for name, when in (("20260101T000000Z", 1_767_225_600), ("20260201T000000Z", 1_769_904_000)):
        (store.root / REPORTS / f"{name}.json").write_text(
            f'{{"time": {when}.5, "seconds": 1.25, "notes": [], "environments": []}}')
    found = told(store)
    assert found["onecopy_snapshot_failed_timestamp_seconds"] == 1_700_000_000
    assert (found["onecopy_recoveries_total"], found["onecopy_recovery_last_timestamp_seconds"],
            found["onecopy_recovery_last_duration_seconds"]) == (2, 1_769_904_000.5, 1.25)


def test_each_has_a_name_of_its_own():
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_promtool_has_nothing_to_say(store):
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text(gather(store)), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
