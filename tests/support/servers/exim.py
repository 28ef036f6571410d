"""A real Exim with the configuration that we ship."""

from tests.support.servers.relay import shipped
from tests.support.servers.unpacked import Unpacked

PROGRAM = "/usr/sbin/exim4"


class Exim(Unpacked):
    """It hands on to the port `lmtp` of loopback."""

    name = "Exim"
    command = (PROGRAM, "-bdf")
    users = ("Debian-exim",)

    def __init__(self, lmtp: int) -> None:
        super().__init__()
        self.own("etc/exim4", "root", 0o755)
        self.write("etc/exim4/exim4.conf", shipped("exim.conf", {
            "daemon_smtp_ports = 25\n": f"daemon_smtp_ports = {self.port}\n",
            "  port = 24\n": f"  port = {lmtp}\n"}))
        for path in ("var/spool/exim4", "var/log/exim4", "run/exim4"):
            self.own(path, "Debian-exim", 0o750)

    def flush(self) -> None:
        self.run(PROGRAM, "-qff")

    def queued(self) -> list[str]:
        return [file.name for file in (self.folder / "var/spool/exim4/input").glob("*-[HD]")]
