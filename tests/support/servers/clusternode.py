"""A node of a real Pacemaker, with corosync, from packages that are unpacked and not installed.

Each has a network, mounts, processes and a name of its own (namespaces(7)): one SIGKILL ends it with all that
runs there, and nothing of this machine is changed. There is no fencing: who loses a node knows that it is gone.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.processes import wait
from tests.support.processes.twonetworks import ADDRESSES, Network
from tests.support.servers.backends import BackEnd
from tests.support.servers.overlaid import Overlaid

AGENT = Path(__file__).parents[3] / "tools/packages/ocf/onecopy"
NAMES = "one", "two"
LIMIT = 300.0
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
NUMBER = 64_999             # of the user and the group that Debian's package would make

_NODE = f"""\
set -e
hostname "$1"
for place in /run /var/lib/corosync /var/lib/pacemaker; do mount -t tmpfs tmpfs "$place"; done
for name in blackbox cib cores pengine; do mkdir "/var/lib/pacemaker/$name"; done
mkdir /run/crm /run/lock
printf %s "$4" >/var/lib/pacemaker/cib/cib.xml
chown -R {NUMBER}:{NUMBER} /var/lib/pacemaker /run/crm
mount --bind "$2" "$3"
corosync -f &
until corosync-cfgtool -s >/dev/null 2>&1; do sleep 0.1; done
exec pacemakerd -f
"""
_COROSYNC = """\
totem {
    version: 2
    cluster_name: mail
    transport: udpu
    interface {
        ringnumber: 0
        bindnetaddr: %s
    }
}
nodelist {
%s}
quorum {
    provider: corosync_votequorum
    two_node: 1
}
logging {
    to_stderr: yes
    to_syslog: no
}
"""
# By itself nothing begins within 20 s: so long a node waits for others.
_OPTIONS = """\
<crm_config><cluster_property_set id="options"><nvpair id="fencing" name="stonith-enabled" value="false"/>
<nvpair id="patience" name="dc-deadtime" value="2s"/></cluster_property_set></crm_config><nodes/>"""
_BEGINNING = f"""\
<cib crm_feature_set="3.16.1" validate-with="pacemaker-3.9" epoch="1" num_updates="0" admin_epoch="0"><configuration>
{_OPTIONS}<resources/><constraints/></configuration><status/></cib>
"""
_RESOURCE = f"""\
<configuration>
{_OPTIONS}
<resources><clone id="mail-clone"><meta_attributes id="meta"><nvpair id="promotable" name="promotable" value="true"/>
<nvpair id="most" name="promoted-max" value="1"/></meta_attributes>
<primitive id="mail" class="ocf" provider="onecopy" type="onecopy"><instance_attributes id="parameters">%s
</instance_attributes><operations>%s</operations></primitive></clone></resources><constraints/></configuration>
"""
_OPERATIONS = [("monitor", "2s", ' role="Promoted"'), ("monitor", "3s", ' role="Unpromoted"'),
               *((name, "0", "") for name in ("start", "stop", "promote", "demote"))]


class ClusterNode:
    """The first one or the second. `here` is the folder in whose place it has that of its machine, so that both have
    the same paths."""

    def __init__(self, name: str, machine: BackEnd, network: Network, here: Path) -> None:
        self.name, self.machine, self.network, self.here = name, machine, network, here
        self._folder = machine.root.parent
        self._files = Overlaid("pacemaker", self._folder / "own")
        self._write()
        self._process: subprocess.Popen[bytes] | None = None

    def _write(self) -> None:
        options = "".join(f"export {name}='{value}'\n" for name, value in self.machine.environment().items()
                          if name.startswith("ONECOPY_") and name != "ONECOPY_CONFIG")
        program = self._folder / "onecopy"
        program.write_text(f'#!/bin/sh\n{options}export PYTHONPATH={AGENT.parents[3]}\n'
                           f'exec {sys.executable} -m tools.onecopy "$@"\n')
        program.chmod(0o755)
        (self._folder / "onecopy.toml").touch()
        self._files.write("usr/lib/ocf/resource.d/onecopy/onecopy", AGENT.read_text()).chmod(0o755)
        for file, line in (("passwd", f"hacluster:x:{NUMBER}:{NUMBER}::/nonexistent:/usr/sbin/nologin\n"),
                           ("group", f"haclient:x:{NUMBER}:\n")):
            self._files.write(f"etc/{file}", Path("/etc", file).read_text() + line)
        nodes = "".join(f"    node {{\n        ring0_addr: {address}\n        name: {name}\n        nodeid: {number}\n"
                        "    }\n" for number, (name, address) in enumerate(zip(NAMES, ADDRESSES, strict=True), 1))
        self._files.write("etc/corosync/corosync.conf", _COROSYNC % (self.network.address, nodes))

    def start(self) -> None:
        """Begin; `says` tells when it is there."""
        self._process = self._files.start(
            ["/bin/sh", "-c", _NODE, "sh", self.name, str(self._folder), str(self.here), _BEGINNING],
            self._folder / "said",
            {"PCMK_logfile": str(self._folder / "pacemaker.log"), "PATH": PATH},
            ["nsenter", f"--net={self.network.path}", "unshare", "--uts", "--pid", "--fork", "--kill-child",
             "--mount-proc"])

    def run(self, *words: str) -> str:
        """What a program says there; nothing while it cannot be run."""
        assert self._process is not None
        first, *_ = wait.tree(self._process.pid)[1:] or [0]
        done = subprocess.run(["nsenter", "-t", str(first), "--mount", "--net", "--pid", "--uts", *words],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              env=os.environ | {"PATH": PATH})
        return "" if done.returncode else done.stdout or " "

    def says(self, *what: str) -> None:
        """Return when crm_mon(8) shows one of these."""
        assert self._process is not None
        try:
            wait.until(lambda: any(each in self.run("crm_mon", "-1", "-A") for each in what), f"{what}",
                       pid=self._process.pid, limit=LIMIT, step=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.run('crm_mon', '-1', '-A')}\n{self.said()}") from None

    def said(self) -> str:
        """The end of its logs."""
        return "\n".join(path.read_text(errors="replace")[-3000:] for name in ("said", "pacemaker.log", "cluster.log")
                         if (path := self._folder / name).exists())

    def configure(self) -> None:
        """Give the cluster its resource: docs/standby.md has the same for pcs(8)."""
        parameters = {"program": self.here / "onecopy", "config": self.here / "onecopy.toml",
                      "root": self.here / "store", "user": "root", "log": self.here / "cluster.log"}
        given = "".join(f'<nvpair id="{name}" name="{name}" value="{value}"/>' for name, value in parameters.items())
        operations = "".join(f'<op id="{name}-{interval}" name="{name}" interval="{interval}" timeout="120s"{role}/>'
                             for name, interval, role in _OPERATIONS)
        assert self.run("cibadmin", "--replace", "--scope", "configuration", "--xml-text",
                        _RESOURCE % (given, operations)), self.said()

    def kill(self) -> None:
        """The node is lost with all that runs there."""
        if self._process is not None:
            inside = wait.tree(self._process.pid)[1:]
            self._process.kill()
            self._process.wait()
            for pid in inside:
                wait.gone(pid, "a process of the node", limit=LIMIT)
            self._process = None
