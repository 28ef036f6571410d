"""Searches out of addresses and entries: what each profile asks."""

import pytest

from store.accounts.ldap.ldapentry import BadEntry
from store.accounts.ldap.ldapprofiles import MapSettings
from tests.store.accounts.ldap.ldap_entries import BASE, SETTINGS, domain, entry, person, profile


@pytest.mark.parametrize(("name", "address", "text"), [
    ("openldap", "bob@example.net", "(&(objectClass=mailStoreUser)(|(mail=bob@example.net)"
     "(mailAlternateAddress=bob@example.net)(mailEquivalentAddress=bob@example.net)))"),
    ("openldap", "Alice", "(&(objectClass=mailStoreUser)(|(mail=alice@example.org)"
     "(mailAlternateAddress=alice@example.org)(mailEquivalentAddress=alice@example.org)))"),
    ("posix", "alice@example.org", "(&(objectClass=posixAccount)(|(uid=alice@example.org)(uid=alice)))"),
    ("posix", "alice@example.net", "(&(objectClass=posixAccount)(uid=alice@example.net))"),
    ("ad", "a.smith@example.net", "(&(&(objectCategory=person)(objectClass=user))(|(mail=a.smith@example.net)"
     "(userPrincipalName=a.smith@example.net)(sAMAccountName=a.smith@example.net)"
     "(proxyAddresses=smtp:a.smith@example.net)))"),
    ("ad", "asmith", "(&(&(objectCategory=person)(objectClass=user))(|(mail=asmith@example.org)"
     "(userPrincipalName=asmith@example.org)(sAMAccountName=asmith@example.org)"
     "(proxyAddresses=smtp:asmith@example.org)(sAMAccountName=asmith)(userPrincipalName=asmith)))"),
])
def test_the_filter_for_a_user(name, address, text):
    search = profile(name).user_search(address)
    assert (search.base, search.filter, search.below) == (SETTINGS[name].base, text, True)


@pytest.mark.parametrize("address", ["*", "a)(uid=*", "al*@example.org", "x\\@example.org", "a(b@example.org"])
@pytest.mark.parametrize("name", ["openldap", "posix", "ad"])
def test_nothing_in_an_address_means_anything_to_the_filter(name, address):
    text = profile(name).user_filter(address)
    harmless = profile(name).user_filter("harmless@example.org")
    assert text.count("(") == harmless.count("(") and "*" not in text


@pytest.mark.parametrize("address", ["", "@", "@example.org", "alice@", "a" * 700, "a\0b", "x@\u2488com"])
def test_what_can_be_nobody_is_not_asked_for(address):
    assert profile("openldap").user_search(address) is None


def test_a_filter_of_ones_own():
    chosen = profile("openldap", user_filter="(|(cn={user})(x={address})(y={domain}))")
    assert chosen.user_filter("a*b@Example.net") == r"(|(cn=a\2ab)(x=a\2ab@example.net)(y=example.net))"


@pytest.mark.parametrize("wrong", [
    {"user_filter": "(uid={login})"}, {"user_filter": "uid={user}"}, {"domain_filter": "(dc={user})"},
    {"profile": "nis"}, {"user_id": "cn"}, {"base": "example"}, {"attributes": ("hosts=x",)}, {"attributes": ("host",)},
    {"statuses": ("enabled=on",)}, {"group_names": "cn"},
])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError):
        MapSettings(**wrong)


def test_the_attributes_that_are_wanted():
    assert set(profile("openldap").user_search("alice").attributes) == {
        "uid", "mail", "mailAlternateAddress", "mailEquivalentAddress", "mailHost", "mailMessageStore", "mailQuota",
        "mailMsgQuota", "mailAllowedServiceAccess", "inetUserStatus", "mailUserStatus",
        "mailSieveSettings", "mailSieveRuleSource"}
    assert set(profile("posix").user_search("alice").attributes) == {"uid", "gidNumber"}


# Domains

def test_without_a_base_of_domains_there_are_none():
    assert profile("openldap").domain_search("example.net") is None


def test_a_domain_is_found_by_its_names():
    search = profile("domains").domain_search("example.net")
    assert (search.base, search.below) == (f"ou=domains,{BASE}", True)
    assert search.filter == "(&(objectClass=mailStoreDomain)(associatedDomain=example.net))"
    search = profile("sun2").domain_search("example.net")
    assert search.filter == ("(&(objectClass=sunManagedOrganization)(|(sunPreferredDomain=example.net)"
                             "(associatedDomain=example.net)))")


def test_schema_1_spells_a_domain_out_in_the_name_of_its_entry():
    search = profile("sun1").domain_search("mail.example.net")
    assert (search.base, search.filter, search.below) == (
        "dc=mail,dc=example,dc=net,o=internet", "(objectClass=inetDomain)", False)
    tree = entry("dc=mail,dc=example,dc=net,o=internet", inetDomainBaseDN="o=example.net,o=isp")
    assert profile("sun1").domain_name(tree) == "mail.example.net"
    assert profile("sun1").domain_name(entry("dc=x,o=internet", inetCanonicalDomainName="Example.NET")) == "example.net"


@pytest.mark.parametrize("evil", ["a,o=internet", "a+b", 'a"b', "a;b", "a=b"])
def test_nothing_in_a_domain_means_anything_to_the_name(evil):
    assert len(profile("sun1").domain_search(evil + ".net").base.replace("\\,", "").split(",")) == 3


def test_in_a_tree_of_domains_nobody_is_outside_of_them():
    for name in ("sun1", "sun2", "domains"):
        assert profile(name).user_search("alice@example.net", None) is None


def test_users_are_looked_for_where_the_domain_says():
    tree = entry("dc=example,dc=net,o=internet", inetDomainBaseDN="o=example.net,o=isp")
    search = profile("sun1").user_search("bob@example.net", tree)
    assert search.base == "o=example.net,o=isp"
    assert "(uid=bob)" in search.filter and "(mailAlternateAddress=bob@example.net)" in search.filter
    below = entry("o=example.net,o=root", sunPreferredDomain="example.net")
    assert profile("sun2").user_search("bob@example.net", below).base == below.dn


def test_the_name_alone_is_asked_for_only_where_it_belongs_to_the_domain():
    """bob of another domain must not be taken for bob."""
    changed = {"user_id": "name"}
    assert "(uid=bob)" not in profile("domains", **changed).user_search("bob@example.net", domain()).filter
    own = domain(mailDomainBaseDN=f"ou=net,{BASE}")
    assert "(uid=bob)" in profile("domains", **changed).user_search("bob@example.net", own).filter
    assert "(uid=bob)" in profile("domains", **changed).user_search("bob@example.org", domain("example.org")).filter


def test_by_another_name_of_the_domain_users_are_found_too():
    both = domain(associatedDomain=["example.net", "example.com"])
    search = profile("domains").user_search("bob@example.com", both)
    assert "(mail=bob@example.com)" in search.filter and "(mail=bob@example.net)" in search.filter
    assert profile("domains").domain_name(both) == "example.net"       # by which the entry is named


@pytest.mark.parametrize("wrong", [
    entry(f"cn=x,{BASE}"), entry(f"cn=x,{BASE}", associatedDomain=["a.net", "b.net"]),
    entry(f"cn=x,{BASE}", associatedDomain=b"\xff\xfe"), entry("no name", associatedDomain=["a.net", "b.net"]),
    domain(mailDomainBaseDN="nowhere"), domain(mailDomainBaseDN=[f"ou=a,{BASE}", f"ou=b,{BASE}"]),
])
def test_a_domain_that_cannot_be_understood(wrong):
    with pytest.raises(BadEntry):
        profile("domains").user_search("bob@example.net", wrong)


def test_schema_1_must_say_where_users_are():
    with pytest.raises(BadEntry, match="inetDomainBaseDN"):
        profile("sun1").user_search("bob@example.net", entry("dc=example,dc=net,o=internet"))


# Groups

def test_groups_are_searched_for_by_the_name_of_the_entry():
    user = entry(r"cn=Smith\, A (x),ou=people,dc=example,dc=org", uid="a", mail="a@example.org")
    search = profile("openldap", group_base=f"ou=groups,{BASE}").group_search(user)
    assert search.base == f"ou=groups,{BASE}"
    assert search.filter == (
        r"(|(&(objectClass=groupOfNames)(member=cn=Smith\5c, A \28x\29,ou=people,dc=example,dc=org))"
        r"(&(objectClass=groupOfUniqueNames)(uniqueMember=cn=Smith\5c, A \28x\29,ou=people,dc=example,dc=org)))")
    search = profile("posix").group_search(person(gidNumber="100"))
    assert search.filter == "(&(objectClass=posixGroup)(|(memberUid=alice)(gidNumber=100)))"
    with pytest.raises(BadEntry, match="gidNumber"):
        profile("posix").group_search(person())
    assert profile("ad").group_search(person(sAMAccountName="a")) is None
    assert profile("openldap", group_filter="none").group_search(person()) is None
    assert profile("ad", group_filter="(member:1.2.840.113556.1.4.1941:={dn})").group_search(
        entry("cn=A,dc=x", sAMAccountName="a")).filter == "(member:1.2.840.113556.1.4.1941:=cn=A,dc=x)"
