"""The files to copy from (docs/deploy): they name what there is, and nothing else."""

import re
import subprocess

import pytest

from store.settings import Settings
from tests.support import ROOT
from tests.support.servers.server import PROGRAM
from tools.benchmarks.sizing import Load, Unit, projected
from tools.cli.options import load

DEPLOY = ROOT / "docs" / "deploy"


def make_secrets(folder):
    """`secrets` in that folder."""
    (folder / "secrets.sh").write_bytes((DEPLOY / "secrets.sh").read_bytes())
    subprocess.run(["sh", folder / "secrets.sh"], check=True, capture_output=True)


@pytest.mark.parametrize("name", ["store", "front"])
def test_the_program_knows_all_settings(name):
    subprocess.run([PROGRAM, "config", "show", "--config", DEPLOY / f"{name}.toml"], check=True, capture_output=True)


def test_a_setting_that_is_none_is_refused(tmp_path):
    """That the test before can fail."""
    file = tmp_path / "onecopy.toml"
    file.write_text((DEPLOY / "store.toml").read_text() + '\n[front]\nprot = 1\n')
    done = subprocess.run([PROGRAM, "config", "show", "--config", file], capture_output=True, check=False)
    assert done.returncode in (1, 2)
    assert b"prot" in done.stderr


def test_what_the_containers_mount_and_copy_is_there():
    compose, container = (DEPLOY / "compose.yaml").read_text(), (DEPLOY / "Containerfile").read_text()
    mounted = {path for path in re.findall(r"(\./[\w./-]+):/", compose) if not path.startswith("./secrets/")}
    assert mounted == {"./store.toml", "./front.toml"}
    assert all((DEPLOY / path).exists() for path in mounted)
    copied = re.findall(r"^COPY (docs/\S+) ", container, re.MULTILINE)
    assert copied and all(list(ROOT.glob(path.rstrip("/"))) for path in copied)
    targets = set(re.findall(r"target: (\w+)", compose))
    assert targets == set(re.findall(r" AS (\w+)$", container, re.MULTILINE)) - {"build"}


def test_the_secrets_are_those_that_the_settings_name(tmp_path):
    make_secrets(tmp_path)
    made = {path.relative_to(tmp_path / "secrets").as_posix() for path in (tmp_path / "secrets").rglob("*")}
    compose = (DEPLOY / "compose.yaml").read_text()
    wanted = set(re.findall(r"\./secrets/([\w./-]+)[:}]", compose))
    assert wanted and wanted <= made
    named = set(re.findall(r'"/etc/onecopy/(tls/[\w.]+)"', "".join(
        (DEPLOY / name).read_text() for name in ("store.toml", "front.toml"))))
    named |= {f"tls/{file}" for conf in DEPLOY.glob("slapd-*.conf")
              for file in re.findall(r"/etc/ldap/tls/([\w.]+)", conf.read_text())}
    assert named and named <= made
    done = subprocess.run(["openssl", "verify", "-CAfile", tmp_path / "secrets/tls/ca.pem",
                           tmp_path / "secrets/tls/certificate.pem"], capture_output=True, text=True, check=False)
    assert done.stdout.endswith("OK\n"), done


def test_the_sample_tree_has_everybody_who_binds():
    tree = (ROOT / "docs" / "ldap" / "sample.ldif").read_text()
    binding = set(re.findall(r"cn=[\w-]+,ou=services,dc=example,dc=org", "".join(
        path.read_text() for path in (*DEPLOY.glob("*.toml"), *DEPLOY.glob("slapd-*.conf")))))
    assert len(binding) == 3
    assert all(f"\ndn: {name}\n" in tree for name in binding)


@pytest.mark.parametrize("role", ["provider", "replica"])
def test_slapd_takes_its_configuration(tmp_path, role):
    """slaptest reads the whole of it; only the folders are others here."""
    text = (DEPLOY / f"slapd-{role}.conf").read_text()
    make_secrets(tmp_path)
    (tmp_path / "data").mkdir()
    text = text.replace("/etc/ldap/onecopy", str(ROOT / "docs" / "ldap")).replace(
        "/etc/ldap/tls", str(tmp_path / "secrets" / "tls")).replace("/var/lib/ldap/example", str(tmp_path / "data"))
    configuration = tmp_path / "slapd.conf"
    configuration.write_text(text)
    done = subprocess.run(["slaptest", "-u", "-f", configuration], capture_output=True, text=True, check=False,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    assert done.returncode == 0 and "config file testing succeeded" in done.stderr, done.stderr


@pytest.mark.parametrize("unit", ["onecopy.service", "onecopy-standby.service", "onecopy-reading.service"])
def test_the_unit_is_one(unit):
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", DEPLOY / unit], capture_output=True,
                          text=True, check=False)
    told = [line for line in done.stderr.splitlines() if "is not executable" not in line]
    assert told == []


def test_sizing_grows_with_the_users():
    """Twice the back ends: half of everything for each."""
    unit = Unit(user=1000, reference=200, message=2000, log_delivery=3000, log_change=500, recovery_rate=10 << 20,
                open_time=0.1)
    load = Load(users=1000, kept=300, size=10_000, sharing=3, arriving=30, flags=10)
    one, two = projected(load, unit, 1), projected(load, unit, 2)
    assert one["users"] == 1000 and two["users"] == 500
    assert one["message_files"] == 1000 * 300 / 3
    octets = 1000 * 1000 + 100_000 * 2000 + 200_000 * 200
    assert one["databases_gib"] == round(octets / (1 << 30), 1)
    assert one["log_gib_a_day"] == round((10_000 * 3000 + 10_000 * 500) / (1 << 30), 1)


def test_the_name_of_a_back_end_comes_from_the_environment():
    config = load({}, {"ONECOPY_STORE_HOST": "Mail1.example.org"}, DEPLOY / "store.toml")
    assert config.settings("store", Settings).host == "mail1.example.org"
