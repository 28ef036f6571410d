"""Postfix in front: whether it hands mail over as the store wants it (docs/relays)."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from lmtp.settings import Settings
from store.settings import Settings as StoreSettings
from store.values import readable
from tools.cli.options import Config
from tools.server.doctor.advice import Advice
from tools.serversettings import LmtpListen

FEW = 100                   # recipients of a transaction: then a message for many is brought several times
TIME = 20                   # seconds
MAIN = Path("/etc/postfix/main.cf")
_TRANSPORTS = ("virtual_transport", "mailbox_transport", "local_transport", "relay_transport", "default_transport")
_ASKED = (*_TRANSPORTS, "transport_maps", "queue_directory", "message_size_limit", "lmtp_destination_recipient_limit",
          "virtual_mailbox_domains", "virtual_mailbox_maps", "mydestination", "smtpd_recipient_restrictions",
          "smtpd_relay_restrictions", "relay_recipient_maps")
_ABOUT = "Postfix: "


def look(config: Config, folder: Path | None) -> Iterator[Advice]:
    """What is not right with the Postfix of that folder, or of this host; nothing where there is none."""
    program = shutil.which("postconf")
    if folder is None and not (program and MAIN.exists()):
        return
    if program is None:
        yield Advice("Postfix", True, "there is no program postconf", "install Postfix")
        return
    words = [program, *(["-c", str(folder)] if folder else [])]
    try:
        values = _values(_asked([*words, "-x", *_ASKED]))
        lmtp = _asked([*words, "-M", "lmtp/unix"])
    except (OSError, subprocess.SubprocessError) as error:
        yield Advice("Postfix", True, f"its configuration cannot be read: {error}", "postfix check")
        return
    yield from judged(config, values, lmtp)


def _asked(words: list[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, timeout=TIME, check=True,
                          stdin=subprocess.DEVNULL).stdout


def _values(text: str) -> dict[str, str]:
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in text.splitlines())}


def judged(config: Config, values: Mapping[str, str], lmtp: str) -> Iterator[Advice]:
    """What is wrong with these parameters of Postfix (postconf(5)), and the line of its lmtp client in master.cf."""
    yield from _transport(config, values)
    most = config.settings("store", StoreSettings).message_limit
    largest = int(values["message_size_limit"])
    if not 0 < largest <= most:
        taken = f"messages of {readable(largest)}" if largest else "messages of any size"
        yield Advice(_ABOUT + "message_size_limit", True, f"it takes {taken}, and the store refuses those above "
                     f"{readable(most)}: they bounce later", f"set it to {most}")
    limit = int(values["lmtp_destination_recipient_limit"].replace("$default_destination_recipient_limit", "50"))
    ours = config.settings("lmtp", Settings).recipient_limit
    if 0 < limit < FEW:
        yield Advice(_ABOUT + "lmtp_destination_recipient_limit", False, f"a message for more than {limit} people is "
                     "brought several times", f"set it to {ours}")
    if not 0 < limit <= ours:
        yield Advice(_ABOUT + "lmtp_destination_recipient_limit", False, f"it is above lmtp.recipient_limit, {ours}: "
                     "the others are put off, and brought again", f"set it to {ours}")
    if flags := re.search(r"flags=\S*[DORX]", lmtp):
        yield Advice(_ABOUT + "master.cf, lmtp", False, f"with {flags[0]} each recipient has a message of his own, and "
                     "the store keeps as many files", "take D, O, R and X out of its flags")
    restrictions = values["smtpd_recipient_restrictions"] + values["smtpd_relay_restrictions"]
    if not (values["virtual_mailbox_maps"] or values["relay_recipient_maps"] or "check_policy_service" in restrictions
            or "reject_unverified_recipient" in restrictions):
        yield Advice(_ABOUT + "smtpd_recipient_restrictions", True, "mail for users whom there are not is taken, and "
                     "bounces to forged senders", "have it ask lmtp.verify_port: docs/relays/postfix/main.cf")
    domain = config.settings("store", StoreSettings).default_domain
    for name in ("virtual_mailbox_domains", "mydestination"):
        words = re.split(r"[\s,]+", values[name])
        if name == "mydestination" and domain in words and not values["mailbox_transport"]:
            yield Advice(_ABOUT + name, True, f"mail for {domain} is delivered by Postfix itself, not by the store",
                         "name the domain in virtual_mailbox_domains alone")


def _transport(config: Config, values: Mapping[str, str]) -> Iterator[Advice]:
    """Whether mail goes to where LMTP is served."""
    found = [(name, values[name]) for name in _TRANSPORTS if values[name].startswith(("lmtp:", "onecopy:"))]
    if not found and not values["transport_maps"]:
        yield Advice(_ABOUT + "virtual_transport", True, "no transport hands mail over by LMTP: it does not come here",
                     "docs/relays/postfix/main.cf has the lines")
    listen = config.settings("lmtp", LmtpListen)
    for name, value in found:
        _, kind, rest = (*value.split(":", 2), "", "")[:3]
        if kind == "inet":
            host, _, port = rest.rpartition(":")
            if host.strip("[]") in ("127.0.0.1", "localhost", "::1") and port.isdigit() and int(port) not in (
                    listen.port, listen.guaranteed_port):
                yield Advice(_ABOUT + name, True, f"it brings mail to port {port} of this host, and LMTP is served on "
                             f"{listen.port or 'none'}", "make them agree: lmtp.port")
        elif kind == "unix" and listen.socket is not None:
            if not (Path(values["queue_directory"], rest) == listen.socket or Path("/", rest) == listen.socket):
                yield Advice(_ABOUT + name, True, f"it brings mail to {rest} in {values['queue_directory']}, and "
                             f"LMTP is served on {listen.socket}", "make them agree: lmtp.socket")
        elif kind == "unix":
            yield Advice(_ABOUT + name, True, f"it brings mail to the socket {rest}, and LMTP is served on none",
                         "set lmtp.socket")
