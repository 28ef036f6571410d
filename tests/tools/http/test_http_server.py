"""The HTTP door of a real server, asked by a real curl."""

import subprocess
from pathlib import Path

from tests.support.processes.ports import free_port
from tests.support.servers.server import Server


def curl(*words: str) -> tuple[int, str]:
    """The status and the body."""
    done = subprocess.run(["curl", "-sS", "-w", "\n%{http_code}", "--max-time", "180", *words], capture_output=True,
                          text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def test_metrics_of_all_processes(tmp_path: Path) -> None:
    plain, tls = free_port(), free_port()
    options = {"http.port": str(plain), "http.tls_port": str(tls), "workers.all": "1"}
    with Server(tmp_path, ["alice"], options) as server:
        status, text = curl(f"http://127.0.0.1:{plain}/metrics")
        assert status == 200
        lines = text.splitlines()
        assert "onecopy_processes 3.0" in lines               # the keeper, all-1, http-1
        assert any(line.startswith('onecopy_connections_total{process="http-1",server="http"} ') for line in lines)
        printed = server.command("stats", "--prometheus").splitlines()
        assert {line for line in lines if line.startswith("# TYPE")} == {
            line for line in printed if line.startswith("# TYPE")}
        assert curl("-k", f"https://127.0.0.1:{tls}/metrics")[0] == 200
        assert curl(f"http://127.0.0.1:{plain}/../etc/passwd", "--path-as-is")[0] == 404
        assert server.stop() == 0
        server.check()
