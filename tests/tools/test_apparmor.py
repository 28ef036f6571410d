"""The package's AppArmor profile allows all that a server opens. The kernel of a test machine need not have AppArmor,
so the files are those that strace sees; what the profile says of them is read here, as apparmor.d(5) has it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.servers.debianpackage import made
from tests.support.servers.debianroot import UNPACKED, DebianRoot

PROFILE = "/etc/apparmor.d/onecopy"
SETTINGS = """root = "/var/lib/onecopy/store"
[http]
port = 8080
[lmtp]
socket = "/var/spool/postfix/onecopy/lmtp"
"""
TALK = """
import imaplib, urllib.request
box = imaplib.IMAP4("127.0.0.1")
box.starttls()
box.login("alice", "secret")
box.append("INBOX", None, None, b"Subject: one\\r\\n\\r\\none\\r\\n")
box.select()
box.store("1", "+FLAGS", "\\\\Deleted")
box.expunge()
box.logout()
print(urllib.request.urlopen("http://127.0.0.1:8080/health").status)
"""
WRITES = ("O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND")
LOOKS = ("getcwd", "statfs", "stat", "newfstatat", "statx", "access", "faccessat2", "readlink", "readlinkat", "lstat",
         "chdir")
CHANGES = ("unlink", "rename", "mkdir", "rmdir", "link", "symlink", "chmod", "chown", "truncate", "utimensat", "mknod")

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")]


@pytest.fixture
def debian(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianRoot]:
    with DebianRoot(tmp_path, "debian-12") as root:
        root.copy(made("debian-12", tmp_path_factory), "/var/tmp/onecopy.deb")
        root.run("dpkg -i /var/tmp/onecopy.deb")
        yield root


def test_a_server_opens_only_what_it_may(debian: DebianRoot, tmp_path: Path) -> None:
    debian.run(f"apparmor_parser --skip-kernel-load --skip-cache {PROFILE}")
    debian.write("/etc/onecopy/onecopy.toml", SETTINGS)
    debian.run("install -d -o onecopy -m 710 /var/spool/postfix/onecopy")
    trace = tmp_path / "trace"
    with debian.serve("strace", "-f", "-qq", "-z", "-y", "-s", "4096", "-e", "trace=%file", "-o", trace):
        debian.run("echo secret | onecopy user add --password-stdin alice")
        assert debian.run(f"python3 -c '{TALK}'") == "200\n"
    reads, writes = opened(trace.read_text().splitlines(), str(debian.folder / "root"))
    assert {"/etc/onecopy/onecopy.toml", "/usr/bin/onecopy"} <= reads
    assert "/var/spool/postfix/onecopy/lmtp" in writes and len(reads) > 500
    rules = Rules(debian.path / PROFILE.lstrip("/"), debian.path / "etc/apparmor.d")
    links = {path for path in reads if (debian.path / path.lstrip("/")).is_symlink()}   # what they lead to is opened
    assert not [path for path in sorted(reads - links) if not rules.allow(path, "r")]
    assert not [path for path in sorted(writes) if not rules.allow(path, "w")]


def test_what_is_not_a_servers_is_not_allowed() -> None:
    """That the test before can fail."""
    rules = Rules(ROOT / "tools/packages/debian/onecopy.apparmor", UNPACKED / "debian-12/etc/apparmor.d")
    assert not [path for path in ("/etc/shadow", "/home/alice/mail", "/var/mail/alice",
                                  "/var/lib/other/store") if rules.allow(path, "r")]
    assert not [path for path in ("/etc/onecopy/onecopy.toml", "/usr/lib/onecopy/bin/onecopy", "/etc/passwd")
                if rules.allow(path, "w")]


def opened(lines: list[str], root: str) -> tuple[set[str], set[str]]:
    """The files that system calls have named, to be read and to be changed, after the server's program has begun."""
    reads, writes = set[str](), set[str]()
    begun = False
    for line in lines:
        begun = begun or 'execve("/usr/bin/onecopy"' in line
        call = re.match(r"\d+ +(\w+)\((.*)\) = ", line)
        if not begun or not call or call[1] in LOOKS:
            continue
        for folder, name in re.findall(r'(?:(?:\d+|AT_FDCWD)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"', call[2])[:2]:
            path = os.path.normpath(os.path.join(folder.removeprefix(root) or "/", name)).replace("/self/", "/1/")
            if re.match("/proc/1/fd/", path):       # a file that is open already
                continue
            changes = call[1].startswith(CHANGES) or call[1].startswith("open") and any(
                flag in call[2] for flag in WRITES)
            (writes if changes else reads).add(path)
            if call[1] == "execve":
                break
    return reads, writes


class Rules:
    """What a profile allows, with all that it includes."""

    def __init__(self, profile: Path, included: Path) -> None:
        self._folder = included
        self._variables = {"pid": "[0-9]*", "pids": "[0-9]*", "tid": "[0-9]*"}
        self._rules = list[tuple[re.Pattern[str], str]]()
        self._read(profile)

    def _read(self, file: Path) -> None:
        for line in file.read_text().splitlines():
            words = line.split("#include <")[0].split("#")[0].split() if "#include" not in line else line.split()
            if match := re.match(r"\s*#?include (?:if exists )?<([^>]+)>", line):
                there = self._folder / match[1]
                for each in sorted(there.iterdir()) if there.is_dir() else [there] if there.exists() else []:
                    self._read(each)
            elif match := re.match(r"\s*@\{(\w+)\}\s*\+?=\s*(.*)", line):
                values = [self._expanded(word.strip('"').rstrip("/")) for word in match[2].split()]
                self._variables[match[1]] = values[0] if len(values) == 1 else "{" + ",".join(values) + "}"
            elif match := re.match(r'\s*(?:owner |deny )?"?([/@]\S*?)"?\s+([a-zA-Z]+)\s*,', " ".join(words)):
                if "deny" not in words:
                    self._rules.append((self._pattern(self._expanded(match[1])), match[2]))

    def _expanded(self, text: str) -> str:
        return re.sub(r"@\{(\w+)\}", lambda name: self._variables.get(name[1], "\0"), text)

    @staticmethod
    def _pattern(glob: str) -> re.Pattern[str]:
        out, depth, at = "", 0, 0
        glob = re.sub(r"/+", "/", glob)
        while at < len(glob):
            sign = glob[at]
            if glob.startswith("**", at):
                out, at = out + ".*", at + 1
            elif sign == "[":
                end = glob.index("]", at)
                out, at = out + glob[at:end + 1].replace("[^", "[^/"), end
            elif sign in "{}":
                depth += 1 if sign == "{" else -1
                out += "(?:" if sign == "{" else ")"
            else:
                out += {"*": "[^/]*", "?": "[^/]", ",": "|" if depth else ","}.get(sign, re.escape(sign))
            at += 1
        return re.compile(out)

    def allow(self, path: str, right: str) -> bool:
        return any(right in rights and pattern.fullmatch(folder) for pattern, rights in self._rules
                   for folder in (path, path.rstrip("/") + "/"))
