"""The files of docs/ldap, in a real slapd: both forms of the schema, the sample tree, the indexes, who may see what."""

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

from store.accounts.base import Status
from store.accounts.ldap.ldapentry import BadEntry, Entry, Here
from store.accounts.ldap.ldapmap import Profile
from store.accounts.ldap.ldappool import Servers
from store.accounts.ldap.ldapprofiles import MapSettings
from store.accounts.ldap.ldapsettings import Settings
from store.errors import StoreError
from store.values import Secret
from tests.store.accounts.ldap.asking import Asking
from tests.support import ROOT
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers import slapd

DOCS = ROOT / "docs" / "ldap"
BASE = slapd.BASE
ONECOPY, MOVER, ALICE = (f"cn=onecopy,ou=services,{BASE}", f"cn=onecopy-move,ou=services,{BASE}",
                         f"uid=alice,ou=people,{BASE}")
MAP = MapSettings("openldap", base=f"ou=people,{BASE}", domain_base=f"ou=domains,{BASE}",
                  group_base=f"ou=groups,{BASE}")
HERE = Here("mail1.example.org", frozenset({"primary"}))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slapd.Slapd]:
    """With our files, as they are, in the place of what tests of other things use."""
    folder = tmp_path_factory.mktemp("slapd")
    made = slapd.Slapd(folder / "one", schemas=[slapd.SCHEMAS / "misc.schema", DOCS / "onecopy.schema"],
                       rules=f"include {DOCS}/index.conf\ninclude {DOCS}/access.conf",
                       tree=(DOCS / "sample.ldif").read_text())
    with made:
        yield made


@pytest.fixture(scope="module")
def ask(server: slapd.Slapd, tmp_path_factory: pytest.TempPathFactory) -> Asking:
    file = tmp_path_factory.mktemp("password") / "file"
    file.write_text("secret\n")
    return Asking(Servers(Settings(uris=(server.uri,), starttls=False, bind_dn=ONECOPY, bind_password_file=file)), MAP)


def test_a_user_of_the_sample_tree(ask):
    found = ask("Alice@Example.org", HERE)
    assert found is not None and not found.warnings
    account = found.account
    assert (account.user, account.host) == ("alice", "mail1.example.org")
    assert account.aliases == ("alice.smith", "postmaster")
    assert account.groups == ("sales%20team", "staff")
    assert found.quota.octets == 2 << 30 and found.quota.messages == 100000
    assert found.quota.parts == (("Archive", 10 << 30, None),)
    for address in ("alice", "alice.smith@example.org", "postmaster"):
        assert ask(address, HERE) == found


def test_the_domains_of_the_sample_tree(ask):
    bob = ask("bob@example.net", HERE)
    assert bob is not None and bob.account.user == "bob@example.net" and not bob.warnings
    assert bob.account.host == "mail2.example.org" and bob.account.access == "+imap,pop:*"
    assert (bob.domain, bob.domain_quota.octets) == ("example.net", 100 << 30)
    assert ask("bob@example.com", HERE) == bob
    assert ask("bob@example.org", HERE) is None and ask("bob", HERE) is None and ask("bob@example.info", HERE) is None
    erin = ask("erin@example.edu", HERE)
    assert erin is not None and erin.account.access == "+imaps:*$-ALL:*" and not erin.warnings
    dave, carol = ask("dave", HERE), ask("carol", HERE)
    assert dave is not None and dave.account.status is Status.INACTIVE
    assert carol is not None and (carol.account.host, carol.quota.octets) == ("mail2.example.org", -1)


def test_who_keeps_a_domain_of_its_own_cannot_be_somebody_of_another(server, ask):
    server.add(f"dn: uid=evil,ou=school,{BASE}\nobjectClass: inetOrgPerson\nobjectClass: mailStoreUser\nuid: evil\n"
               "cn: x\nsn: x\nmail: alice@example.org\nmailAlternateAddress: evil@example.edu\n")
    with pytest.raises(BadEntry, match="another domain"):
        ask("evil@example.edu", HERE)
    found = ask("alice", HERE)
    assert found is not None and found.account.aliases == ("alice.smith", "postmaster")


def test_nothing_in_an_address_finds_more_than_it_says(ask):
    for address in ("*", "al*", "alice)(uid=*", "alice\\2a", "*)(|(uid=*", "\x01"):
        assert ask(f"{address}@example.org", HERE) is None


# Who may see and change what (access.conf)

def allowed(server, who, dn, attribute, what):
    """Whether slapacl, which reads the same configuration, grants it."""
    done = subprocess.run(["slapacl", "-f", server.folder / "slapd.conf", *(["-D", who] if who else []), "-b", dn,
                           f"{attribute}/{what}"], capture_output=True, timeout=180, check=False, text=True)
    assert ("ALLOWED" in done.stderr) != ("DENIED" in done.stderr), done.stderr
    return "ALLOWED" in done.stderr


@pytest.mark.parametrize(("who", "attribute", "what", "granted"), [
    ("", "userPassword", "auth", True), ("", "userPassword", "read", False), ("", "mail", "read", False),
    (ONECOPY, "userPassword", "read", False), (ONECOPY, "mailQuota", "read", True), (ONECOPY, "mailHost", "read", True),
    (ONECOPY, "mailQuota", "write", False), (ONECOPY, "mailHost", "write", False),
    (MOVER, "mailHost", "write", True), (MOVER, "mailQuota", "write", False),
    (ALICE, "userPassword", "write", True), (ALICE, "userPassword", "read", False),
    (ALICE, "mailQuota", "write", False), (ALICE, "mailAlternateAddress", "write", False),
    (ALICE, "mailUserStatus", "write", False),
    (ALICE, "mailQuota", "read", True), (f"uid=bob,ou=people,{BASE}", "mail", "read", False),
])
def test_who_may_see_and_change_what(server, who, attribute, what, granted):
    assert allowed(server, who, ALICE, attribute, what) is granted


def test_a_password_is_proved_and_an_empty_one_is_not(ask):
    assert ask.servers.proves(ALICE, Secret(b"secret"))
    assert not ask.servers.proves(ALICE, Secret(b"Secret"))
    assert not ask.servers.proves(ALICE, Secret(b""))


# The forms of the files

def definitions(text):
    """What a schema defines, without regard to how its lines are broken."""
    words = re.sub(r"\s+", " ", re.sub(r"(?m)^#.*$", "", text))
    return sorted(re.sub(r"\s+", " ", each).strip() for each in re.split(
        r"(?i)(?:attributetype|objectclass|olcAttributeTypes:|olcObjectClasses:)\s*(?=\()", words)[1:])


def test_both_forms_of_the_schema_say_the_same():
    one, other = (definitions((DOCS / f"onecopy.{ending}").read_text()) for ending in ("schema", "ldif"))
    assert one == other and len(one) == 22


def test_the_profile_asks_for_what_the_schema_has():
    """Every attribute of the profile is in our schema, or in those that come with slapd."""
    text = "".join(path.read_text() for path in (DOCS / "onecopy.schema", *(
        slapd.SCHEMAS / f"{name}.schema" for name in ("core", "cosine", "misc", "inetorgperson"))))
    names = set(re.findall(r"'([A-Za-z]+)'", text)) | {"uid", "mail", "cn"}
    profile = Profile.of(MAP, "example.org")
    assert not {*profile.attributes, *profile.domain_attributes} - names


def test_indexes_and_rules_are_the_same_in_both_forms():
    config = (DOCS / "config.ldif").read_text()
    indexes = [" ".join(line.split()[1:]) for line in (DOCS / "index.conf").read_text().splitlines()
               if line.startswith("index")]
    assert re.findall(r"(?m)^olcDbIndex: (.*)$", config) == indexes
    rules = re.sub(r"(?m)^#.*$", "", (DOCS / "access.conf").read_text())
    wanted = [" ".join(("to " + rule).split()) for rule in re.split(r"(?m)^access to ", rules)[1:]]
    found = [" ".join(rule.split()) for rule in re.findall(r"(?m)^olcAccess: \{\d\}((?:.*\n)(?: .*\n)*)", config)]
    assert found == wanted


def test_every_attribute_that_is_searched_has_an_index():
    indexed = set(re.findall(r"[A-Za-z]+", " ".join(line.split()[1] for line in (DOCS / "index.conf").read_text(
        ).splitlines() if line.startswith("index"))))
    profile = Profile.of(MAP, "example.org")
    user = Entry(ALICE, {"mail": [b"alice@example.org"]})
    texts = [profile.user_filter("alice"), profile.domain_filter("example.org")]
    search = profile.group_search(user)
    assert search is not None
    for text in (*texts, search.filter):
        assert set(re.findall(r"\(([A-Za-z]+)=", text)) <= indexed


def run(*words, octets=""):
    done = subprocess.run(words, input=octets, capture_output=True, timeout=180, check=False, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def by_entries(folder: Path) -> Path:
    """A configuration as Debian's package makes it, with our schema, indexes, rules and sample tree."""
    config, data = folder / "config", folder / "data"
    config.mkdir()
    data.mkdir()
    schemas = "".join(f"include: file://{slapd.SCHEMAS}/{name}.ldif\n" for name in (
        "core", "cosine", "misc", "inetorgperson"))
    run("slapadd", "-n", "0", "-F", str(config), octets=f"""\
dn: cn=config
objectClass: olcGlobal
cn: config

dn: cn=module,cn=config
objectClass: olcModuleList
cn: module
olcModulePath: /usr/lib/ldap
olcModuleLoad: back_mdb

dn: cn=schema,cn=config
objectClass: olcSchemaConfig
cn: schema

{schemas}
dn: olcDatabase={{0}}config,cn=config
objectClass: olcDatabaseConfig
olcDatabase: {{0}}config

dn: olcDatabase={{1}}mdb,cn=config
objectClass: olcDatabaseConfig
objectClass: olcMdbConfig
olcDatabase: {{1}}mdb
olcSuffix: {BASE}
olcDbDirectory: {data}
olcDbMaxSize: 8388608
""")
    run("slapadd", "-n", "0", "-F", str(config), "-l", str(DOCS / "onecopy.ldif"))
    run("slapmodify", "-n", "0", "-F", str(config), "-l", str(DOCS / "config.ldif"))
    run("slapadd", "-n", "1", "-F", str(config), "-l", str(DOCS / "sample.ldif"))
    return config


def test_a_slapd_that_is_configured_by_entries_takes_them(tmp_path: Path):
    """cn=config: schema, indexes and rules are loaded as they are; then the sample tree fits in."""
    config = by_entries(tmp_path)
    assert "mailQuota: 2G;Archive%10G" in run("slapcat", "-n", "1", "-F", str(config))
    assert "olcDbIndex: mail eq" in run("slapcat", "-n", "0", "-F", str(config))
    shutil.rmtree(config)


def test_tls_as_it_is_described(tmp_path: Path):
    """Authority and certificate by tls.sh, slapd by tls.ldif; StartTLS and ldaps work, and no password goes without."""
    config, keys = by_entries(tmp_path), tmp_path / "tls"
    run("sh", str(DOCS / "tls.sh"), str(keys), "localhost")
    run("sh", str(DOCS / "tls.sh"), str(keys), "ldap2.example.org")                # the authority stays
    assert sorted(path.name for path in keys.glob("*.pem") if path.stat().st_mode & 0o077) == [
        "ca.pem", "ldap2.example.org.pem", "localhost.pem"]
    ldif = (DOCS / "tls.ldif").read_text().replace("/etc/ldap/tls/ldap1.example.org", f"{keys}/localhost")
    run("slapmodify", "-n", "0", "-F", str(config), octets=ldif)
    password = tmp_path / "password"
    password.write_text("secret\n")
    plain, tls = free_port(), free_port()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([slapd.PROGRAM, "-F", config, "-d", "0", "-h", f"ldap://127.0.0.1:{plain}/ "
                                    f"ldaps://127.0.0.1:{tls}/"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait.until(lambda: answers(plain) and answers(tls), "slapd answers", pid=process.pid, limit=slapd.START)
        settings = Settings(bind_dn=ONECOPY, bind_password_file=password, ca=keys / "ca.pem")
        for uri in (f"ldap://localhost:{plain}", f"ldaps://localhost:{tls}"):
            asked = Asking(Servers(evolve(settings, uris=(uri,))), MAP)
            found = asked("alice", HERE)
            assert found is not None and found.account.user == "alice"
        for wrong in (evolve(settings, uris=(f"ldap://localhost:{plain}",), starttls=False),        # no TLS
                      evolve(settings, uris=(f"ldap://127.0.0.1:{plain}",)),                        # another name
                      evolve(settings, uris=(f"ldaps://localhost:{tls}",), ca=None)):               # no authority
            with pytest.raises(StoreError):
                Asking(Servers(wrong), MAP)("alice", HERE)
    finally:
        process.terminate()
        process.wait(slapd.STOP)
        shutil.rmtree(config)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 180).close()
    except OSError:
        return False
    return True
