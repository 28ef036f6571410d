"""docs/deploy/grafana/onecopy.json: each of its queries finds something in a real Prometheus that scrapes a server, but
those about a standby, which tests/interop/test_standby.py tries. And what rate() makes of counters when processes of
the server die and are started again."""

import json
import math
import os
import re
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.dashboard import DASHBOARD, PROMTOOL, SPAN, queries
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.pop3 import Pop3
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.server import PASSWORD, Server
from tests.tools.server.test_administration import values
from tests.tools.server.test_alerts import RULES

LOGINS = "onecopy_logins_total"
loaded: list[None] = []     # one for each `load`
LIMIT = 180


class Prometheus:
    """One that scrapes the server's HTTP door each second."""

    def __init__(self, folder: Path, server: Server, http: int) -> None:
        self._server, self._http, self._port = server, http, free_port()
        (folder / "prometheus.yml").write_text(json.dumps({         # JSON is YAML
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "onecopy", "static_configs": [{"targets": [f"127.0.0.1:{http}"]}]}]}))
        with (folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [PROMTOOL.with_name("prometheus"), f"--config.file={folder}/prometheus.yml",
                 f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{self._port}"],
                stdout=log, stderr=log)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, path: str, **words: str) -> Any:
        """What its API answers; None while it does not."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(words)}",
                                        timeout=LIMIT) as answer:
                return json.loads(answer.read())["data"]
        except OSError:
            return None

    def query(self, text: str) -> list[tuple[dict[str, str], float]]:
        """Labels and values that a query finds now."""
        found = self.ask("query", query=text)
        return [] if found is None else [(each["metric"], float(each["value"][1])) for each in found["result"]]

    def page(self) -> dict[str, float]:
        """The samples of the door's page; none while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http}/metrics", timeout=LIMIT) as answer:
                return values(answer.read().decode())
        except OSError:
            return {}

    def scrape(self) -> dict[str, float]:
        """Wait until it has seen what there is now, which is this."""
        told = self.page()
        wait.until(lambda: any(when > told["onecopy_written_timestamp_seconds"] for _, when in self.query(
            "onecopy_written_timestamp_seconds")), "it is scraped", pid=self._server.pid, limit=LIMIT)
        return told


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One process serves all. Two receivers want its events, one of which does not answer."""
    folder = tmp_path_factory.mktemp("dashboard")
    with Server(folder, ["alice", "bob"], {
            "http.port": str(free_port()), "outbox.up.to": f"file:{folder}/events",
            "outbox.gone.to": f"http://127.0.0.1:{free_port()}/", "outbox.gone.retry_longest": "1s"}) as made:
        yield made
        made.stop()
        made.check()


@pytest.fixture(scope="module")
def prometheus(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    made = Prometheus(tmp_path_factory.mktemp("prometheus"), server, int(server.options["http.port"]))
    try:
        yield made
    finally:
        made.stop()


def load(server: Server) -> None:
    """A little of everything; of IMAP one login."""
    loaded.append(None)
    with Lmtp(server.lmtp) as lmtp:
        for number in range(3):
            lmtp.deliver("a@example.org", ["alice", "bob", "nobody"], b"Subject: %d\r\n\r\nx\r\n" % number)
    with Imap(server.imap) as stranger:
        assert stranger.command("LOGIN alice wrong").status == "NO"
    with Imap(server.imap, "alice", PASSWORD) as imap:
        imap.select()
        imap.ok("UID FETCH 1:* (FLAGS BODY[])")
        imap.ok("UID STORE 1:* +FLAGS (\\Flagged)")
        imap.ok("NOOP")
    with Pop3(server.pop3, "bob", PASSWORD) as pop3:
        pop3.ok("STAT")


def test_each_query_of_the_dashboard_finds_something(server: Server, prometheus: Prometheus) -> None:
    server.command("snapshot", "create")
    server.command("check")
    load(server)
    wait.until(lambda: 'onecopy_partition_unique_bytes{partition="primary"}' in prometheus.page(), "octets are counted",
               pid=server.pid, limit=LIMIT)
    prometheus.scrape()
    load(server)
    wait.until(lambda: prometheus.page().get('onecopy_outbox_waiting{receiver="gone"}', 0) > 0, "events are counted",
               pid=server.pid, limit=LIMIT)
    told = prometheus.scrape()
    assert told['onecopy_outbox_down{receiver="gone"}'] == 1 and told['onecopy_outbox_down{receiver="up"}'] == 0
    assert told['onecopy_outbox_waited_seconds{receiver="gone"}'] > 0
    asked = queries(standby=False)
    assert len(asked) > 40
    empty = []
    for title, text in asked:
        found = prometheus.query(text)
        if not any(math.isfinite(value) for _, value in found):
            empty.append((title, text, found))
    assert empty == []
    names = [each["name"] for each in json.loads(DASHBOARD.read_text())["templating"]["list"]]
    assert names == ["datasource", "instance"] and prometheus.ask("label/instance/values")


def test_the_rules_are_taken_and_none_fires(prometheus: Prometheus) -> None:
    """The server is well."""
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(re.findall("- alert: ", RULES.read_text()))
    assert {rule["lastError"] for rule in rules if "lastError" in rule} <= {""}
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []


def test_rate_is_right_when_processes_die(server: Server, prometheus: Prometheus) -> None:
    """Each series falls to what its process has counted since, which is a reset of a counter as Prometheus knows them:
    so what is counted before and after adds up."""
    load(server)
    before = prometheus.scrape()
    keeper, = json.loads(server.command("stats", "--json"))["processes"]
    os.kill(keeper["pid"], signal.SIGKILL)
    started = 'onecopy_process_start_timestamp_seconds{process="keeper"}'
    wait.until(lambda: prometheus.page().get(started, 0) > before[started], "it is started again", pid=server.pid,
               limit=LIMIT)
    prometheus.scrape()             # or a counter that has come as far again would not be seen to have begun anew
    load(server)
    after = prometheus.scrape()
    for name in after.keys() & before.keys():
        if name.startswith("onecopy_process_start"):        # all of them have begun anew, and so have their counters
            assert after[name] > before[name]
    assert sum(value for name, value in after.items() if re.match(f"{LOGINS}.*imap", name)) == 1
    found = prometheus.ask("query", query=f'{LOGINS}{{server="imap"}}[{SPAN}]')["result"]
    samples, = [[float(value) for _, value in each["values"]] for each in found]
    assert samples[0] + increased(samples) == len(loaded)
    assert all(value >= 0 for _, value in prometheus.query(f"rate({LOGINS}[{SPAN}])"))


def increased(samples: list[float]) -> float:
    """What increase() makes of samples, without extrapolation: one that is smaller than the one before is a counter
    that has begun again at 0 (Prometheus's documentation, "Query functions", increase)."""
    return sum(now - before if now >= before else now for before, now in pairwise(samples))
