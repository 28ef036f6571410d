"""A real OpenSMTPD with the configuration that we ship."""

import os

from tests.support.servers.relay import shipped
from tests.support.servers.unpacked import Unpacked


class OpenSmtpd(Unpacked):
    """It hands on to the port `lmtp` of loopback."""

    name = "OpenSMTPD"
    command = ("/usr/sbin/smtpd", "-d")
    users = ("opensmtpd", "opensmtpq", "nobody")

    def __init__(self, lmtp: int) -> None:
        super().__init__()
        self.write("etc/smtpd.conf", shipped("smtpd.conf", {
            "listen on 127.0.0.1 port 25\n": f"listen on 127.0.0.1 port {self.port}\n",
            ' lmtp "127.0.0.1:24" ': f' lmtp "127.0.0.1:{lmtp}" '}))
        self.write("etc/mailname", "relay.example.org\n")
        self.own("var/lib/opensmtpd/empty", "root", 0o755)
        self.own("var/spool/smtpd", "root", 0o711)

    def flush(self) -> None:
        self.run("/usr/sbin/smtpctl", "schedule", "all", group="opensmtpq")

    def queued(self) -> list[str]:
        return [name for part in ("incoming", "queue")          # folders go away meanwhile, which os.walk forgives
                for _, _, names in os.walk(self.folder / "var/spool/smtpd" / part) for name in names]
