"""Directories of other kinds, played by a real slapd: Sun's two schemas, POSIX accounts, Active Directory."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store.accounts.base import Status
from store.accounts.ldap.ldapentry import Found, Here
from store.accounts.ldap.ldappool import Servers
from store.accounts.ldap.ldapprofiles import MapSettings
from store.accounts.ldap.ldapsettings import Settings
from tests.store.accounts.ldap.asking import Asking
from tests.support import ROOT
from tests.support.servers import slapd

BASE = slapd.BASE
DOCS = ROOT / "docs" / "ldap"
TREE = f"""\
dn: {BASE}
objectClass: organization
objectClass: dcObject
dc: example
o: x

dn: {slapd.SERVICE}
objectClass: applicationProcess
objectClass: simpleSecurityObject
cn: service
userPassword: {slapd.SERVICE_PASSWORD}

# Sun, schema 1: domains in a tree of their own, which says where the users are

dn: o=internet,{BASE}
objectClass: organization
o: internet

dn: dc=net,o=internet,{BASE}
objectClass: domain
dc: net

dn: dc=example,dc=net,o=internet,{BASE}
objectClass: domain
objectClass: inetDomain
dc: example
inetDomainBaseDN: o=isp1,{BASE}
inetDomainStatus: active
preferredMailHost: mail1.example.org

dn: dc=example,dc=com,o=internet,{BASE}
objectClass: alias
objectClass: extensibleObject
dc: example
aliasedObjectName: dc=example,dc=net,o=internet,{BASE}

dn: dc=closed,dc=net,o=internet,{BASE}
objectClass: domain
objectClass: inetDomain
dc: closed
inetDomainBaseDN: o=isp2,{BASE}
mailDomainStatus: disabled

dn: o=isp1,{BASE}
objectClass: organization
o: isp1

dn: uid=bob,o=isp1,{BASE}
objectClass: inetOrgPerson
objectClass: inetMailUser
uid: bob
cn: Bob
sn: Bob
mail: bob.jones@example.net
mailMsgQuota: 5
mailHost: mail2.example.org
isMemberOf: cn=staff,o=isp1,{BASE}
userPassword: secret

dn: o=isp2,{BASE}
objectClass: organization
o: isp2

dn: uid=bob,o=isp2,{BASE}
objectClass: inetOrgPerson
objectClass: inetMailUser
uid: bob
cn: Bob
sn: Bob
mail: bob@closed.net
mailHost: mail1.example.org

# Sun, schema 2: users below their domain

dn: o=root,{BASE}
objectClass: organization
o: root

dn: o=example.org,o=root,{BASE}
objectClass: organization
objectClass: sunManagedOrganization
o: example.org
sunPreferredDomain: example.org
associatedDomain: mail.example.org
mailDomainDiskQuota: 10M
preferredMailHost: mail1.example.org

dn: ou=people,o=example.org,o=root,{BASE}
objectClass: organizationalUnit
ou: people

dn: uid=alice,ou=people,o=example.org,o=root,{BASE}
objectClass: inetOrgPerson
objectClass: inetMailUser
uid: alice
cn: Alice
sn: Alice
mail: alice.smith@example.org
mailQuota: -1
inetUserStatus: active
mailUserStatus: hold

# POSIX

dn: ou=posix,{BASE}
objectClass: organizationalUnit
ou: posix

dn: uid=carol,ou=posix,{BASE}
objectClass: account
objectClass: posixAccount
uid: carol
cn: Carol
uidNumber: 1000
gidNumber: 100
homeDirectory: /home/carol

dn: cn=users,ou=posix,{BASE}
objectClass: posixGroup
cn: users
gidNumber: 100

dn: cn=audio,ou=posix,{BASE}
objectClass: posixGroup
cn: audio
gidNumber: 29
memberUid: carol

dn: cn=root,ou=posix,{BASE}
objectClass: posixGroup
cn: root
gidNumber: 0

# Active Directory

dn: cn=Users,{BASE}
objectClass: applicationProcess
cn: Users

dn: cn=Smith\\, Dave,cn=Users,{BASE}
objectClass: user
cn: Smith, Dave
sn: Smith
sAMAccountName: dsmith
userPrincipalName: dave@corp.example.org
mail: Dave.Smith@example.org
proxyAddresses: SMTP:Dave.Smith@example.org
proxyAddresses: smtp:dave@example.net
userAccountControl: 512
objectCategory: person
memberOf: CN=Sales (EMEA),CN=Users,{BASE}

dn: cn=Erin,cn=Users,{BASE}
objectClass: user
cn: Erin
sn: Erin
sAMAccountName: erin
userAccountControl: 514
objectCategory: person
""".replace(f"dn: dc=example,dc=com,o=internet,{BASE}", f"""\
dn: dc=com,o=internet,{BASE}
objectClass: domain
dc: com

dn: dc=example,dc=com,o=internet,{BASE}""")

MAPS = {
    "sun1": MapSettings("sun1", domain_base=f"o=internet,{BASE}"),
    "sun2": MapSettings("sun2", base=f"o=root,{BASE}"),
    "posix": MapSettings("posix", base=f"ou=posix,{BASE}", default_host="mail1.example.org"),
    "ad": MapSettings("ad", base=f"cn=Users,{BASE}", default_host="mail1.example.org"),
}
HERE = Here("mail1.example.org", frozenset({"primary"}))


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Found | None]]:
    """The account that a profile finds for an address."""
    folder = tmp_path_factory.mktemp("slapd")
    file = folder / "password"
    file.write_text(slapd.SERVICE_PASSWORD + "\n")
    schemas = [slapd.SCHEMAS / "misc.schema", DOCS / "onecopy.schema", Path(__file__).with_name("foreign.schema")]
    with slapd.Slapd(folder / "one", tree=TREE, schemas=schemas) as server:
        servers = Servers(Settings(uris=(server.uri,), starttls=False, bind_dn=slapd.SERVICE, bind_password_file=file))
        yield lambda name, address: Asking(servers, MAPS[name])(address, HERE)


def test_schema_1(look):
    bob = look("sun1", "bob@example.net")
    assert bob.account.user == "bob@example.net" and bob.logins == {"bob@example.net"} and not bob.warnings
    assert bob.account.aliases == ("bob.jones@example.net",) and bob.account.groups == ("staff",)
    assert (bob.account.host, bob.quota.messages, bob.account.status) == ("mail2.example.org", 5, Status.ACTIVE)
    assert look("sun1", "bob.jones@example.net") == bob
    assert look("sun1", "bob@example.com").account.user == "bob@example.net"        # by an alias of the domain's entry
    other = look("sun1", "bob@closed.net")
    assert (other.account.user, other.account.status) == ("bob@closed.net", Status.DISABLED)
    for nobody in ("bob", "bob@net", "bob@example.info", "bob.jones@closed.net"):
        assert look("sun1", nobody) is None


def test_schema_2(look):
    alice = look("sun2", "alice")
    assert (alice.account.user, alice.account.aliases) == ("alice", ("alice.smith",))
    assert (alice.account.status, alice.quota.octets, alice.domain_quota.octets) == (Status.HOLD, -1, 10 << 20)
    assert alice.account.host == "mail1.example.org"
    for address in ("Alice.Smith@Example.org", "alice@mail.example.org", "alice.smith@mail.example.org"):
        assert look("sun2", address) == alice
    assert look("sun2", "alice@example.net") is None


def test_posix(look):
    carol = look("posix", "carol@example.org")
    assert (carol.account.user, carol.account.groups) == ("carol", ("audio", "users"))
    assert (carol.account.aliases, carol.quota.octets, carol.quota.said) == ((), None, False)
    assert look("posix", "carol") == carol and look("posix", "carol@example.net") is None


def test_active_directory(look):
    dave = look("ad", "dsmith")
    assert dave.account.user == "dsmith" and dave.logins == {"dsmith", "dave@corp.example.org"}
    assert dave.account.aliases == ("dave.smith", "dave@corp.example.org", "dave@example.net")
    assert dave.account.groups == ("sales%20(emea)",)
    for address in ("dave@corp.example.org", "dave@example.net", "dave.smith@example.org"):
        assert look("ad", address) == dave
    assert look("ad", "erin").account.status is Status.INACTIVE
    assert look("ad", "dave") is None
