"""mbsync, which keeps two sides alike, and remembers in files of its own what it has seen of each."""

import re
import subprocess
from collections import Counter
from pathlib import Path

from tests.support.clients import clients

#: What it sends that changes and fetches nothing.
QUIET = {"STARTTLS", "LOGIN", "CAPABILITY", "AUTHENTICATE", "NAMESPACE", "LIST", "SELECT", "UID FETCH", "CLOSE",
         "LOGOUT"}

_SENT = re.compile(r"^(?:\(.*\) )?(?:[FN]: )?>>> \d+ ((?:UID )?[A-Z]+)(?:.*(BODY))?", re.MULTILINE)
_COMPLAINT = re.compile(r"^(?:Error|Warning|Notice|IMAP (?:error|warning|command))\b.*", re.MULTILINE)


class Pair:
    """Two sides that mbsync keeps alike. `stores` is the part of its configuration that says where `far` and `near`
    are."""

    def __init__(self, folder: Path, stores: str) -> None:
        self._state = folder / "state"
        self._state.mkdir()
        self.config = folder / "mbsyncrc"
        self.move(stores)

    def move(self, stores: str) -> None:
        """The sides are elsewhere from now on."""
        self.config.write_text(f"""\
{stores}
Channel both
Far :far:
Near :near:
Patterns *
Create Both
Remove Both
Expunge Both
CopyArrivalDate yes
Sync All
SyncState {self._state}/
""")

    def sync(self) -> "Counter[str]":
        """Once; the commands that it sent, of both sides together."""
        said = clients.run(self._words, self.config.parent)
        complaints = _COMPLAINT.findall(said)
        assert not complaints
        return Counter(" ".join(found).strip() for found in _SENT.findall(said))

    def begin(self) -> "subprocess.Popen[bytes]":
        """One run, which nobody waits for."""
        return subprocess.Popen(self._words, cwd=self.config.parent, env=clients.environment(self.config.parent),
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @property
    def _words(self) -> "list[str | Path]":
        return ["mbsync", "--debug-net", "--config", self.config, "both"]
