"""What a newcomer types wrongly most often is answered by one line that says what to do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes.program import QUICK
from tools.cli import program

#: What was typed, and what has to be in the answer: the word that is wrong, and what helps.
MISTAKES = [
    ("mailbox info nobdy INBOX", ("nobdy", "onecopy user list")),
    ("messages search -u nobdy seen", ("nobdy", "onecopy user list")),
    ("user rename nobdy bob", ("onecopy user list",)),
    ("mailbox info alice Sentt", ("Sentt of alice", "onecopy mailbox list")),
    ("mailbox rename alice Sentt Sent", ("onecopy mailbox list",)),
    ("mailbox status -u alice Sentt", ("onecopy mailbox list",)),
    ("mailbox create alice a//b", ("a//b", "empty")),
    ("mailbox acl alice INBOX bob", ("which rights for bob?",)),
    ("connections", ("onecopy serve", "systemctl start onecopy")),
    ("log errors --since 1h", ("onecopy serve",)), ("drain", ("onecopy serve",)), ("config reload", ("onecopy serve",)),
    ("log errors --since yesterday", ("yesterday", "12h, 7d")),
    ("messages search -u alice since tomorrow", ("tomorrow", "2026-11-27", "7d")),
    ("messages search -u alice since 2026-02-30", ("2026-02-30", "no such day")),
    ("messages search -u alice sinze 7d", ("did you mean since?",)),
    ("messages search seen", ("--user, --domain or --all",)),
    ("undelete alice INBOX --since noon", ("noon", "2026-01-31T12:00")),
    ("undelete alice INBOX --uid x", ("'x'", "not a number")),
    ("deliver alice --date noon", ("noon", "2026-01-31")),
    ("quota set alice --octets lots", ("lots", "64M")), ("quota set alice", ("--octets, --messages",)),
    ("user set alice --status gone", ("active, inactive",)), ("user set alice", ("--status",)),
    ("mailbox delete alice INBOX", ("use --yes",)),
    ("mailbox crate alice X", ("did you mean create",)), ("mailbx list", ("did you mean mailbox?",)),
    ("user show alice --jsn", ("did you mean --json?",)), ("user show", ("USER",)),
    ("dump indx", ("did you mean index?",)), ("batch /none", ("/none: No such file",)),
    ("partition drain nowhere", ("nowhere: there are primary",)), ("dump state --partition x", ("primary",)),
    ("scrub --partition x", ("there are primary",)), ("user move alice --to nowhere", ("there are primary",)),
    ("mailbox create alice #snapshots/x", ("name spaces", "another")),
    ("mailbox undelete alice Old", ("Old of alice", "onecopy mailbox list --deleted")),
    ("mailbox rename alice X Y", ("X of alice", "onecopy mailbox list")),
    ("mailbox acl alice INBOX nobdy lrs", ("nobdy", "onecopy user list")),
    ("mailbox create nobdy X", ("nobdy", "onecopy user list")), ("user undelete nobdy", ("nobdy",)),
    ("snapshot browse alice none", ("none", "onecopy snapshot browse alice")),
    ("snapshot verify none", ("none", "onecopy snapshot list")),
    ("sieve get alice none", ("onecopy sieve list alice",)), ("sieve activate alice none", ("sieve list alice",)),
    ("token revoke none", ("none", "onecopy token list")),
    ("access revoke alice x", ("x", "onecopy access list alice")),
    ("outbox show none", ("none", "onecopy outbox list")), ("outbox retry none", ("none", "onecopy outbox list")),
    ("standby status", ("onecopy standby create",)), ("standby promote --yes", ("onecopy standby create",)),
    ("user list --root /none", ("`onecopy init` makes one",)),
    ("import imap alice --host x --port 70000", ("70000", "number of a port")),
    ("import imap alice --host x --sieve-port 0", ("0", "number of a port")),
    ("import imap alice --tunnel x --sieve-port 4190", ("--sieve-port goes with --host",)),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store with alice, that no server serves."""
    root, password = tmp_path_factory.mktemp("mistakes") / "store", tmp_path_factory.mktemp("password") / "file"
    password.write_text("secret")
    with pytest.MonkeyPatch.context() as patched:
        for name, value in QUICK.items():
            patched.setenv(name, value)
        assert program.main(["init", "--root", str(root)]) == 0
        assert program.main(["user", "add", "alice", "--password-file", str(password), "--root", str(root)]) == 0
        yield root


@pytest.mark.parametrize(("typed", "said"), MISTAKES)
def test_it_is_said_what_to_do(typed: str, said: tuple[str, ...], root: Path,
                               capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    words = [*typed.split(), *([] if "--root" in typed else ["--root", str(root)])]
    assert program.main(words) in (1, 2)
    out, error = capsys.readouterr()
    line, = error.splitlines()
    assert out == "" and line.startswith("onecopy: ")
    assert [each for each in said if each not in line] == [], line
