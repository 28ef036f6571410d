"""The queries of docs/deploy/grafana/onecopy.json, and what promtool finds by them in samples."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support import ROOT

DASHBOARD = ROOT / "docs/deploy/grafana/onecopy.json"
PROMTOOL = Path(sys.prefix) / "unpacked/prometheus/usr/bin/promtool"
SPAN = "5m"                 # for $__rate_interval: all samples of a test
STANDBY = "Standby"


def queries(*, standby: bool) -> list[tuple[str, str]]:
    """The titles and queries of the panels: those about a standby, which need one, or all others."""
    found, row = [], ""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        row = panel["title"] if panel["type"] == "row" else row
        if (row == STANDBY) is standby:
            found += [(panel["title"], target["expr"].replace("$__rate_interval", SPAN).replace("$instance", ".*"))
                      for target in panel.get("targets", ())]
    return found


def empty(samples: Mapping[str, float], asked: Sequence[tuple[str, str]], folder: Path) -> list[str]:
    """The queries that find nothing in these samples."""
    file = folder / "queries.yml"
    file.write_text(json.dumps({"tests": [{                     # JSON is YAML
        "interval": "1m",
        "input_series": [{"series": name, "values": f"{value:f}x1"} for name, value in samples.items()],
        "promql_expr_test": [{"expr": f"count({text}) > bool 0", "eval_time": "1m",
                              "exp_samples": [{"labels": "{}", "value": 1}]} for _, text in asked]}]}))
    done = subprocess.run([PROMTOOL, "test", "rules", file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=300, check=False)
    found = re.findall(r'expr: "(.*)", time: ', done.stdout)
    assert (done.returncode == 0) is (not found), done.stdout
    return found
