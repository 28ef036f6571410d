"""docs/deploy/alerts.yml, tried by Prometheus's own promtool: no rule fires on a new store or on one that is well, and
each fires when it should."""

import json
import re
import subprocess
from collections.abc import Collection, Mapping

import pytest

from tests.support import ROOT
from tests.support.clients.dashboard import PROMTOOL
from tools.server.metrics.metriclist import HISTOGRAM, METRICS, PREFIX

RULES = ROOT / "docs/deploy/alerts.yml"
HOUR, DAY = 6, 144          # samples, one every ten minutes
BEFORE = 3 * HOUR           # in which there is no store; more where values are of longer ago

TASK = 'onecopy_task_last_run_timestamp_seconds{process="keeper",task="purge"}'
FLUSHES = 'onecopy_log_flush_seconds_count{partition="primary"}'
NOOPS = 'onecopy_command_duration_seconds_bucket{server="imap",command="NOOP",le="+Inf"}'
SLOW = NOOPS.replace("NOOP", "LOGIN")
TURNS = 'onecopy_loop_turn_seconds_bucket{process="all-1",le="+Inf"}'
LAG = 'onecopy_task_lag_seconds{process="keeper",task="checkpoint"}'
SCRIPTS, ERRORS = (f'onecopy_sieve_failures_total{{process="all-1",kind="{kind}"}}' for kind in ("script", "server"))
FAILURES = 'onecopy_login_failures_total{service="imap",reason="login"}'
NEW: Mapping[str, str] = {
    "onecopy_processes": "2", "onecopy_snapshot_newest_timestamp_seconds": "0",
    "onecopy_snapshot_failed_timestamp_seconds": "0", "onecopy_recovery_last_timestamp_seconds": "0",
    TASK: "0",
    'onecopy_task_failing_items{process="keeper",task="purge"}': "0", "onecopy_written_timestamp_seconds": "now",
    'onecopy_partition_free_bytes{partition="primary"}': "90",
    'onecopy_partition_used_bytes{partition="primary"}': "10",
    'onecopy_database_cache_proposed_bytes{environment="primary"}': "0",
    'onecopy_log_flush_seconds_sum{partition="primary"}': "+0", FLUSHES: "+0",
    'onecopy_command_duration_seconds_bucket{server="imap",command="NOOP",le="2.5"}': "+0", NOOPS: "+0",
    'onecopy_loop_turn_seconds_bucket{process="all-1",le="0.5"}': "+0", TURNS: "+0",
    LAG: "0", 'onecopy_purge_overdue_seconds{partition="primary"}': "0", "onecopy_check_findings": "0",
    SCRIPTS: "+0", ERRORS: "+0", FAILURES: "+0"}
IN_STEP, FOLLOWS, BEHIND = (f'onecopy_standby_{name}{{standby="second.example.org"}}' for name in (
    "in_step", "connected", "lag_seconds"))
DOWN, DEAD, LOST = (f'onecopy_{name}{{receiver="search"}}' for name in (
    "outbox_down", "events_dead_total", "events_lost_total"))
RECEIVER = {DOWN: "0", DEAD: "+0", LOST: "+0"}
STANDBY = {IN_STEP: "1", FOLLOWS: "1", BEHIND: "1"}
WELL = {**NEW, TASK: "now", "onecopy_snapshot_newest_timestamp_seconds": "now"}
BUSY = {**WELL, **STANDBY, **RECEIVER, "onecopy_log_flush_seconds_sum{partition=\"primary\"}": "+6", FLUSHES: "+600",
        'onecopy_command_duration_seconds_bucket{server="imap",command="NOOP",le="2.5"}': "+600", NOOPS: "+601",
        'onecopy_command_duration_seconds_bucket{server="imap",command="NOOP",le="0.01"}': "+590",
        'onecopy_command_duration_seconds_bucket{server="imap",command="LOGIN",le="2.5"}': "+0", SLOW: "+600",
        'onecopy_loop_turn_seconds_bucket{process="all-1",le="0.5"}': "+60000", TURNS: "+60001",
        LAG: "600", SCRIPTS: "+6", FAILURES: "+600"}


#: A store's values, for how many samples, and the alert that fires then; "": none does.
CASES = [
    (NEW, 1, ""), (NEW, HOUR, ""), (WELL, HOUR, ""), (WELL, 3 * DAY, ""), (BUSY, DAY, ""),
    ({**WELL, "onecopy_written_timestamp_seconds": "-0"}, 4, "MetricsAreOld"),
    ({}, 4, "MetricsAreOld"),
    ({**WELL, "onecopy_processes": "0"}, 2, "NoServer"),
    ({**WELL, "onecopy_snapshot_newest_timestamp_seconds": f"-{3 * DAY}"}, 2, "NoFreshSnapshot"),
    ({**WELL, "onecopy_snapshot_newest_timestamp_seconds": "0"}, 3 * DAY, "NoSnapshotYet"),
    ({**WELL, "onecopy_snapshot_failed_timestamp_seconds": "-2"}, 2, "SnapshotFailed"),
    ({**WELL, 'onecopy_task_failing_items{task="purge"}': "3"}, 2 * HOUR, "HousekeepingFails"),
    ({**WELL, TASK: f"-{2 * HOUR}"}, 2, "HousekeepingStands"),
    ({**WELL, TASK: "0"}, 3 * HOUR, "HousekeepingNeverBegan"),
    ({**WELL, "onecopy_recovery_last_timestamp_seconds": "-2"}, 2, "StoreWasDamaged"),
    ({**WELL, 'onecopy_partition_free_bytes{partition="primary"}': "1"}, 3, "VolumeNearlyFull"),
    ({**WELL, 'onecopy_database_cache_proposed_bytes{environment="primary"}': "1e9"}, 2 * HOUR, "CacheTooSmall"),
    ({**BUSY, 'onecopy_log_flush_seconds_sum{partition="primary"}': "+300"}, 4, "LogFlushesAreSlow"),
    ({**BUSY, NOOPS: "+700"}, 4, "CommandsAreSlow"),
    ({**BUSY, TURNS: "+60100"}, 4, "EventLoopStalls"),
    ({**BUSY, LAG: "7200"}, 3, "HousekeepingIsLate"),
    ({**WELL, 'onecopy_purge_overdue_seconds{partition="primary"}': "100000"}, 2 * HOUR, "PurgeIsLate"),
    ({**BUSY, IN_STEP: "0"}, 2, "StandbyNotInStep"), ({**BUSY, FOLLOWS: "0"}, 3, "StandbyDoesNotFollow"),
    ({**BUSY, BEHIND: "300"}, 3, "StandbyIsLate"),
    ({**BUSY, DOWN: "1"}, 4, "ReceiverIsDown"), ({**BUSY, DEAD: "+1"}, 2, "ReceiverRefuses"),
    ({**BUSY, LOST: "+1"}, 2, "EventsAreLost"),
    ({**WELL, "onecopy_check_findings": "2"}, 2, "CheckFoundSomething"),
    ({**BUSY, ERRORS: "+1"}, 2, "ScriptsMeetErrors"), ({**BUSY, SCRIPTS: "+600"}, 4, "ManyScriptsFail"),
    ({**BUSY, FAILURES: "+6000"}, 4, "ManyLoginsFail"),
]


def unit_test(changes: Mapping[str, str], after: int, names: Collection[str]) -> dict[str, object]:
    """That none of these alerts fires when a store has had these values for so many samples, as promtool is asked.
    "now": at each sample the time of it; "-N": since N samples before the store was made; "+N": N more with each
    sample."""
    before = BEFORE + max([0, *(-int(value) for value in changes.values() if value.startswith("-"))])
    made = 600 * before         # as promtool's clock has it, which begins at 0

    def samples(value: str) -> str:
        if value == "now":
            return f"{made}+600x{after}"
        if value.startswith("+"):
            return f"0{value}x{after}"
        return f"{made + 600 * int(value) if value.startswith('-') else value}x{after}"

    return {"rule_files": [str(RULES)], "evaluation_interval": "10m", "tests": [{
        "interval": "10m",
        "input_series": [{"series": name, "values": f"_x{before} {samples(value)}"} for name, value in changes.items()],
        "alert_rule_test": [{"eval_time": f"{10 * (before + after)}m", "alertname": name, "exp_alerts": []}
                            for name in names]}]}


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory) -> list[set[str]]:
    """Which alerts fire, of each of CASES: all in one run of promtool, since it costs more to start than to try one."""
    folder = tmp_path_factory.mktemp("alerts")
    names = re.findall(r"alert: (\w+)", RULES.read_text())
    files = [folder / f"{number}.yml" for number in range(len(CASES))]
    for file, (values, after, _) in zip(files, CASES, strict=True):
        file.write_text(json.dumps(unit_test(values, after, names)))        # JSON is YAML
    done = subprocess.run([PROMTOOL, "test", "rules", *files], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=300, check=False)
    begun, *told = re.split(r"^Unit Testing: +(.*)$", done.stdout, flags=re.MULTILINE)
    assert (begun, told[::2]) == ("", [*map(str, files)]), done.stdout
    for text in told[1::2]:
        assert ("SUCCESS" in text) != ("alertname: " in text), text
    return [{name for name in names if f"alertname: {name}," in text} for text in told[1::2]]


def test_the_rules_can_be_read() -> None:
    done = subprocess.run([PROMTOOL, "check", "rules", "--lint=all", RULES], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert "26 rules found" in done.stdout


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{alert or 'none'}-{after}" for _, after, alert in CASES])
def test_what_should_fire_does_and_nothing_else(fired: list[set[str]], number: int) -> None:
    alert = CASES[number][2]
    assert fired[number] == ({alert} if alert else set())


def test_the_rules_are_about_metrics_that_there_are() -> None:
    used, there = set(re.findall(r"onecopy_\w+", RULES.read_text())), {
        name.partition("{")[0] for name in (*NEW, *STANDBY, *RECEIVER)}
    assert used <= {PREFIX + metric.name + suffix for metric in METRICS
                    for suffix in (("_bucket", "_sum", "_count") if metric.kind == HISTOGRAM else ("",))}
    assert used <= there
