"""The table of options: what can be written, where, and what wins."""

import sys
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest

import imap.settings
import store.settings
from tools.cli import options as config
from tools.exits import Failure
from tools.serversettings import ImapListen, LmtpListen, Log, Tls


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(config, "DEFAULT_FILE", tmp_path / "etc.toml")


@pytest.mark.parametrize(("text", "value"), [
    ("0", 0), ("4096", 4096), ("64k", 65536), ("64M", 64 << 20), ("1.5G", 3 << 29), ("2 GiB", 2 << 30),
    ("1TB", 1 << 40)])
def test_sizes(text: str, value: int) -> None:
    assert config.size(text) == value


@pytest.mark.parametrize("text", ["", "M", "-1", "1X", "1e3", "0x10", "١", "1,5M", "8192P", "9223372036854775808",
                                  "9" * 400 + ".5P"])
def test_not_sizes(text: str) -> None:
    with pytest.raises(ValueError):
        config.size(text)


@pytest.mark.parametrize(("text", "value"), [
    ("90", 90), ("30m", 1800), ("12h", 43200), ("7d", 604800), ("2w", 1209600), ("250ms", 0.25), ("1.5 s", 1.5)])
def test_durations(text: str, value: float) -> None:
    assert config.duration(text) == value


@pytest.mark.parametrize("text", ["", "m", "-1s", "1y", "1:30", "1m30s", "36501d", "9" * 400])
def test_not_durations(text: str) -> None:
    with pytest.raises(ValueError):
        config.duration(text)


def test_command_line_over_environment_over_file_over_default(tmp_path: Path) -> None:
    (tmp_path / "onecopy.toml").write_text('[imap]\nport = 1001\ntls_port = 1002\n[pop3]\nport = 1003\n')
    environment = {"ONECOPY_IMAP_PORT": "2001", "ONECOPY_IMAP_TLS_PORT": "2002", "PATH": "/bin"}
    found = config.load({"imap.port": "3001"}, environment)
    assert (found.values["imap.port"], found.origins["imap.port"]) == (3001, "--imap-port")
    assert (found.values["imap.tls_port"], found.origins["imap.tls_port"]) == (2002, "ONECOPY_IMAP_TLS_PORT")
    assert (found.values["pop3.port"], found.origins["pop3.port"]) == (1003, "onecopy.toml: pop3.port")
    assert (found.values["pop3.tls_port"], found.origins["pop3.tls_port"]) == (995, "default")


def test_other_defaults_give_way_to_everything(tmp_path: Path) -> None:
    (tmp_path / "onecopy.toml").write_text("[imap]\nport = 1001\n")
    found = config.load({}, {}, defaults={"imap.port": "5001", "pop3.port": "5002"})
    assert found.values["imap.port"] == 1001
    assert (found.values["pop3.port"], found.origins["pop3.port"]) == (5002, "default")


def test_values_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "onecopy.toml").write_text("""
root = "mail"
[store]
message_limit = "64M"
purge_delay = "12h"
default_domain = "example.org"
[imap]
address = ["127.0.0.1", "::1"]
plaintext_login = true
[lmtp]
socket = "/run/onecopy/lmtp"
socket_mode = "0660"
[tls]
certificate = "tls/cert.pem"
[log]
level = "warning"
""")
    found = config.load({}, {})
    assert found.root == tmp_path / "mail"
    settings = found.settings("store", store.settings.Settings)
    assert (settings.message_limit, settings.purge_delay) == (64 << 20, 43200)
    assert isinstance(settings.purge_delay, int)
    assert found.settings("imap", ImapListen).address == ("127.0.0.1", "::1")
    assert found.settings("imap", imap.settings.Settings).plaintext_login is True
    assert found.settings("lmtp", LmtpListen) == LmtpListen(socket=Path("/run/onecopy/lmtp"), socket_mode=0o660)
    assert found.settings("tls", Tls) == Tls(certificate=tmp_path / "tls/cert.pem")
    assert found.settings("log", Log) == Log(level="warning")


def test_a_path_in_a_file_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    file = tmp_path / "sub" / "other.toml"
    file.write_text('root = "mail"\n')
    assert config.load({}, {}, file).root == tmp_path / "sub" / "mail"
    assert config.load({}, {"ONECOPY_CONFIG": str(file)}).root == tmp_path / "sub" / "mail"
    assert config.load({}, {"ONECOPY_ROOT": "mail"}, file).root == tmp_path / "mail"


def test_the_system_file_is_the_last_resort(tmp_path: Path) -> None:
    (tmp_path / "etc.toml").write_text("[imap]\nport = 1001\n")
    assert config.load({}, {}).values["imap.port"] == 1001
    (tmp_path / "onecopy.toml").write_text("")
    assert config.load({}, {}).values["imap.port"] == 143


@pytest.mark.parametrize(("text", "said"), [
    ("[imap]\nprot = 143\n", "onecopy.toml: imap.prot: there is no such option"),
    ("[impa]\nport = 143\n", "onecopy.toml: [impa]: there is no such section"),
    ("port = 143\n", "onecopy.toml: port: there is no such option"),
    ("[imap]\nport = 65536\n", "onecopy.toml: imap.port: 65536: must be between 0 and 65535"),
    ("[imap]\nport = -1\n", "onecopy.toml: imap.port: -1: must be between 0 and 65535"),
    ("[imap]\nport = 1.5\n", "onecopy.toml: imap.port: 1.5: not a whole number"),
    ("[imap]\nport = true\n", "onecopy.toml: imap.port: True: not of the right type"),
    ("[imap]\nport = [143]\n", "onecopy.toml: imap.port: [143]: not of the right type"),
    ("[imap]\nplaintext_login = 1\n", "onecopy.toml: imap.plaintext_login: 1: not of the right type"),
    ("[store]\nmessage_limit = 'much'\n", "onecopy.toml: store.message_limit: 'much': not a size"),
    ("[store]\npurge_delay = 0.5\n", "onecopy.toml: store.purge_delay: 0.5: must be whole seconds"),
    ("[lmtp]\nseparator = '++'\n", "onecopy.toml: lmtp.separator: '++': the separator must be one character"),
    ("[lmtp]\nsocket_mode = 'rw'\n", "onecopy.toml: lmtp.socket_mode: 'rw': not the permissions"),
    ("[log]\nlevel = 'loud'\n", "onecopy.toml: log.level: 'loud': must be one of debug, info, warning, error"),
    ("[imap\n", "onecopy.toml: "),
    ("[imap]\nport = \xff", "onecopy.toml: "),
])
def test_a_fault_in_a_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "onecopy.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(Failure) as failure:
        config.load({}, {})
    assert str(failure.value).startswith(said)
    assert "\n" not in str(failure.value)
    assert failure.value.status == 2


@pytest.mark.parametrize(("environment", "said"), [
    ({"ONECOPY_IMAP_PROT": "1"}, "environment: ONECOPY_IMAP_PROT: there is no such option"),
    ({"ONECOPY_IMAP_PORT": "many"}, "ONECOPY_IMAP_PORT: 'many': not a whole number"),
    ({"ONECOPY_IMAP_PORT": ""}, "ONECOPY_IMAP_PORT: '': not a whole number"),
    ({"ONECOPY_STORE_PURGE_DELAY": "soon"}, "ONECOPY_STORE_PURGE_DELAY: 'soon': not a duration"),
    ({"ONECOPY_IMAP_PLAINTEXT_LOGIN": "maybe"}, "ONECOPY_IMAP_PLAINTEXT_LOGIN: 'maybe': not yes or no"),
])
def test_a_fault_in_the_environment_is_named(environment: dict[str, str], said: str) -> None:
    with pytest.raises(Failure, match=f"^{said}"):
        config.load({}, environment)


def test_a_fault_on_the_command_line_is_named() -> None:
    with pytest.raises(Failure, match="^--lmtp-socket-mode: '9': not the permissions"):
        config.load({"lmtp.socket_mode": "9"}, {})


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="none.toml: No such file"):
        config.load({}, {}, tmp_path / "none.toml")


def test_which_store_must_be_said() -> None:
    with pytest.raises(Failure, match="--root, ONECOPY_ROOT, or root in onecopy.toml"):
        _ = config.load({}, {}).root


def test_names_are_unique_everywhere() -> None:
    options = config.table().values()
    assert len({option.variable for option in options}) == len({option.flag for option in options}) == len(options)


def test_every_default_can_be_written_and_read_again() -> None:
    for option in config.table().values():
        text = option.show(option.default)
        if text or option.optional:
            assert option.read(text) == option.default, option.name


def test_every_option_is_explained() -> None:
    assert [option.name for option in config.table().values() if not option.help] == []


def test_a_class_that_text_cannot_fill_is_a_mistake_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    @attrs.frozen
    class Odd:
        value: complex = 1j

    monkeypatch.setitem(sys.modules, "odd", SimpleNamespace(Odd=Odd))
    monkeypatch.setitem(config.SECTIONS, "odd", ("odd:Odd",))
    with pytest.raises(TypeError, match="value has a type"):
        config.table.__wrapped__()
