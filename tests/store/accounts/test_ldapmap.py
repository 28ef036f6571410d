"""Searches out of addresses, and accounts out of entries: what each profile asks and reads."""

import os

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mboxlist.names import legal_owner
from store.accounts.aliases import legal_aliases
from store.accounts.base import Account, Status
from store.accounts.ldapmap import BadEntry, Entry, Here, MapSettings, Profile, mirrored
from store.quota import UNLIMITED

BASE = "dc=example,dc=org"
TWO = Here("mail1.example.org", frozenset({"primary", "fast"}), "primary")
SETTINGS = {
    "openldap": MapSettings("openldap", base=BASE),
    "domains": MapSettings("openldap", base=f"ou=people,{BASE}", domain_base=f"ou=domains,{BASE}"),
    "sun1": MapSettings("sun1", base="o=internet"),
    "sun2": MapSettings("sun2", base="o=root"),
    "posix": MapSettings("posix", base=BASE),
    "ad": MapSettings("ad", base="dc=corp,dc=example,dc=org"),
}


def profile(name, **changes):
    return Profile.of(evolve(SETTINGS[name], **changes), "example.org")


def entry(dn, **values):
    """Attributes by name; texts, octets, or lists of them."""
    return Entry.of(dn, {name: [value.encode() if isinstance(value, str) else value for value in (
        values[name] if isinstance(values[name], list) else [values[name]])] for name in values})


def person(**values):
    return entry(f"uid=alice,ou=people,{BASE}", **{"uid": "alice", "mail": "alice@example.org", **values})


def domain(name="example.net", **values):
    return entry(f"associatedDomain={name},ou=domains,{BASE}", **{"associatedDomain": name, **values})


# What is asked

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
        "mailMsgQuota", "mailAllowedServiceAccess", "inetUserStatus", "mailUserStatus"}
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


# User ids

@pytest.mark.parametrize(("name", "user", "tree", "user_id", "logins"), [
    ("openldap", person(), None, "alice", {"alice"}),
    ("openldap", person(mail="Bob@Example.NET"), None, "bob@example.net", {"bob@example.net"}),
    ("posix", person(), None, "alice", {"alice"}),
    ("posix", person(uid="alice@example.net"), None, "alice@example.net", {"alice@example.net"}),
    ("sun1", person(), entry("dc=example,dc=net,o=internet", inetDomainBaseDN="o=net"), "alice@example.net",
     {"alice@example.net"}),
    ("sun1", person(), entry("dc=example,dc=org,o=internet", inetDomainBaseDN="o=org"), "alice", {"alice"}),
    ("sun2", person(), entry("o=net,o=root", sunPreferredDomain="example.net"), "alice@example.net",
     {"alice@example.net"}),
    ("domains", person(mail="alice@example.net"), domain(), "alice@example.net", {"alice@example.net"}),
    ("ad", entry("cn=A,dc=x", sAMAccountName="ASmith", userPrincipalName="a.smith@corp.example.org"), None, "asmith",
     {"asmith", "a.smith@corp.example.org"}),
    # two values: the one that the entry is named by
    ("posix", person(uid=["alice", "alicia"]), None, "alice", {"alice"}),
])
def test_user_ids(name, user, tree, user_id, logins):
    found = profile(name).account(user, tree)
    assert found.account.user == user_id
    assert found.logins == logins


@pytest.mark.parametrize(("name", "user", "tree"), [
    ("openldap", person(mail=[]), None),
    ("openldap", person(mail=["a@example.org", "b@example.org"]), None),     # in any order: it is nobody's own
    ("openldap", person(mail="alice"), None),
    ("openldap", person(mail=b"\xff@example.org"), None),
    ("openldap", person(mail="a b@example.org"), None),
    ("openldap", person(mail="a/b@example.org"), None),
    ("openldap", person(mail="group:x"), None),
    ("openldap", person(mail="a" * 5000 + "@example.org"), None),
    ("posix", entry("cn=A,dc=x", uid=["a", "b"]), None),
    ("posix", entry("cn=A,dc=x"), None),
    ("posix", entry("cn=A,dc=x", uid="anyone"), None),
    ("sun2", person(uid="ceo@example.org"), entry("o=net,o=root", sunPreferredDomain="example.net")),
])
def test_who_it_is_must_be_certain(name, user, tree):
    with pytest.raises(BadEntry) as raised:
        profile(name).account(user, tree)
    assert user.dn in str(raised.value)


def test_who_keeps_one_domain_cannot_take_addresses_of_another():
    tree = entry("o=net,o=root", sunPreferredDomain="example.net", associatedDomain="example.com")
    found = profile("sun2").account(person(mail="alice@example.net", mailAlternateAddress=[
        "ceo@example.org", "a@example.com"]), tree)
    assert found.account.aliases == ("a@example.com",)
    assert any("ceo@example.org" in text for text in found.warnings)


# Aliases

def test_aliases_are_all_addresses_but_the_user_id():
    found = profile("openldap").account(person(
        mailAlternateAddress=["Alice.Smith@example.org", "alice@example.net"], mailEquivalentAddress="as@example.org"))
    assert found.account.aliases == ("alice.smith", "alice@example.net", "as")
    assert found.warnings == ()


def test_addresses_of_active_directory():
    found = profile("ad").account(entry("cn=A,dc=x", sAMAccountName="asmith", mail="a.smith@example.org",
                                        proxyAddresses=[
        "SMTP:a.smith@example.org", "smtp:asmith@example.net", "X500:/o=x/cn=y", "sip:asmith@example.org",
        "x400:c=us;a= ;p=x", "smtp:asmith@example.org"]))
    assert found.account.aliases == ("a.smith", "asmith@example.net")


@pytest.mark.parametrize("wrong", ["@example.net", "a b@example.org", "alice", '"a"@example.org', "a@b@c", "x@",
                                   b"\xff@y"])
def test_an_address_that_cannot_be_one_is_passed_over(wrong):
    found = profile("openldap").account(person(mailAlternateAddress=[wrong]))
    assert found.account.aliases == () and len(found.warnings) == 1


# Status: of the domain, its mail, the user, the user's mail; the first that is not active decides

@pytest.mark.parametrize("status", ["active", "inactive", "disabled", "deleted", "removed", "hold", "overquota"])
@pytest.mark.parametrize(("where", "name"), [
    ("domain", "inetDomainStatus"), ("domain", "mailDomainStatus"), ("user", "inetUserStatus"),
    ("user", "mailUserStatus")])
def test_each_status_in_each_place(where, name, status):
    user = person(mail="a@example.net", **({name: status.upper()} if where == "user" else {}))
    tree = domain(**({name: status} if where == "domain" else {}))
    found = profile("domains").account(user, tree)
    assert found.account.status is Status(status)
    assert found.origins["status"] == f"{name}={status.upper() if where == 'user' else status} of " + (
        user.dn if where == "user" else tree.dn)


@pytest.mark.parametrize(("domain_status", "domain_mail", "user", "user_mail", "outcome"), [
    (None, None, None, None, "active"),
    ("active", None, "active", "inactive", "inactive"),
    ("hold", "disabled", "deleted", "removed", "hold"),
    (None, "disabled", "deleted", "inactive", "disabled"),
    ("active", "active", "deleted", "inactive", "deleted"),
    ("active", "active", "active", "removed", "removed"),
    ("inactive", "active", "active", "active", "inactive"),
    (None, "busy", None, None, "inactive"),             # an unknown value is inactive
    (None, None, "", None, "inactive"),
    (None, "overquota", None, None, "overquota"),
    # who is closed does not get in because the domain is full
    (None, "overquota", "inactive", None, "inactive"),
    (None, "overquota", None, "removed", "removed"),
])
def test_the_first_that_is_not_active_decides(domain_status, domain_mail, user, user_mail, outcome):
    values = {"inetUserStatus": user, "mailUserStatus": user_mail}
    of_domain = {"inetDomainStatus": domain_status, "mailDomainStatus": domain_mail}
    found = profile("domains").account(
        person(mail="a@example.net", **{name: value for name, value in values.items() if value is not None}),
        domain(**{name: value for name, value in of_domain.items() if value is not None}))
    assert found.account.status.value == outcome


@pytest.mark.parametrize("values", [["active", "inactive"], [b"\xff"], ["gone"], ["x" * 5000]])
def test_a_status_that_makes_no_sense_is_inactive_and_said(values):
    found = profile("openldap").account(person(mailUserStatus=values))
    assert found.account.status is Status.INACTIVE and not found.account.status.may_log_in
    assert found.warnings


def test_other_words_for_a_status():
    chosen = profile("openldap", statuses=("enabled=active", "LOCKED=hold"), attributes=("status=accountState",))
    assert chosen.account(person(accountState="Enabled", inetUserStatus="deleted")).account.status is Status.ACTIVE
    assert chosen.account(person(accountState="locked")).account.status is Status.HOLD


@pytest.mark.parametrize(("control", "status"), [
    ("512", "active"), ("514", "inactive"), ("66048", "active"), ("66050", "inactive"), ("-2147483646", "inactive"),
    ("", "inactive"), ("many", "inactive"), (None, "active"), ("0x200", "inactive")])
def test_disabled_accounts_of_active_directory(control, status):
    user = entry("cn=A,dc=x", sAMAccountName="a", **({} if control is None else {"userAccountControl": control}))
    assert profile("ad").account(user).account.status.value == status


def test_since_when_an_account_is_deleted():
    gone = Account("alice", "primary", Status.DELETED)
    first = mirrored(None, gone, 1000.7)
    assert first.removed == 1000
    assert mirrored(first, gone, 2000.0).removed == 1000
    assert mirrored(first, evolve(gone, status=Status.REMOVED), 2000.0).removed == 1000
    assert mirrored(first, evolve(gone, status=Status.ACTIVE), 2000.0).removed == 0


# Host and partition

@pytest.mark.parametrize(("user", "of_domain", "host"), [
    ("Mail1.Example.ORG", None, "mail1.example.org"), ("mail2.example.org.", "mail1.example.org", "mail2.example.org"),
    (None, "mail2.example.org", "mail2.example.org"),
])
def test_the_host(user, of_domain, host):
    found = profile("domains").account(person(mail="a@example.net", **({"mailHost": user} if user else {})),
                                       domain(**({"preferredMailHost": of_domain} if of_domain else {})), TWO)
    assert found.account.host == host


def test_without_a_host_a_store_of_many_machines_does_not_know_where_the_mail_belongs():
    with pytest.raises(BadEntry, match="which back end"):
        profile("openldap").account(person(), None, TWO)
    assert profile("openldap").account(person()).account.host == ""
    found = profile("openldap", default_host="Mail2.example.org").account(person(), None, TWO)
    assert (found.account.host, found.origins["host"]) == ("mail2.example.org", "default: directory.default_host")


@pytest.mark.parametrize("wrong", [["a.example.org", "b.example.org"], "", " ", "two words", b"\xff", "user@host",
                                   "höst"])
def test_a_host_that_is_none(wrong):
    with pytest.raises(BadEntry):
        profile("openldap").account(person(mailHost=wrong), None, TWO)


@pytest.mark.parametrize(("value", "before", "partition", "warned"), [
    ("fast", None, "fast", False),
    ("slow", None, "primary", True),
    ("slow", "fast", "fast", True),
    (None, None, "primary", False),
    (None, "fast", "fast", False),
    ("primary", "fast", "primary", False),
    (["fast", "primary"], None, "primary", True),
    ("../etc", None, "primary", True),
    (b"\xff", "fast", "fast", True),
    (None, "vanished", "primary", False),
])
def test_the_partition(value, before, partition, warned):
    user = person(mailHost=TWO.host, **({} if value is None else {"mailMessageStore": value}))
    found = profile("openldap").account(user, None, TWO, before=Account("alice", before) if before else None)
    assert found.account.partition == partition
    assert bool(found.warnings) is warned


def test_partitions_of_another_back_end_are_its_own_business():
    found = profile("openldap").account(person(mailHost="mail2.example.org", mailMessageStore="slow"), None, TWO)
    assert found.account.partition == "slow" and not found.warnings


# Quota

@pytest.mark.parametrize(("values", "octets", "messages", "said"), [
    ({}, -2, -2, False),
    ({"mailQuota": "-1", "mailMsgQuota": "-2"}, -1, -2, True),
    ({"mailQuota": "0"}, 0, -2, True),
    ({"mailQuota": "50M", "mailMsgQuota": "1000"}, 52428800, 1000, True),
])
def test_quotas(values, octets, messages, said):
    quota = profile("openldap").account(person(**values)).quota
    assert (quota.octets, quota.messages, quota.parts, quota.said) == (octets, messages, (), said)


def test_without_attributes_for_limits_the_store_keeps_its_own():
    quota = profile("posix").account(person()).quota
    assert (quota.octets, quota.messages, quota.said) == (None, None, False)
    found = profile("openldap", attributes=("message_quota=",)).account(person(mailQuota="5K", mailMsgQuota="7"))
    assert (found.quota.octets, found.quota.messages) == (5120, None)


def test_quotas_of_mailboxes():
    found = profile("openldap").account(person(
        mailQuota="50M;#voice%5M;Archive%200M", mailMsgQuota="100;Sent%5;Archive%7"))
    assert found.quota.parts == (("Archive", 209715200, 7), ("Sent", None, 5))
    assert "#voice" in found.warnings[0]


@pytest.mark.parametrize("wrong", ["lots", "", ["1M", "2M"], "5M;x", b"\xff", "1e3", "99999G"])
@pytest.mark.parametrize("name", ["mailQuota", "mailMsgQuota"])
def test_a_quota_that_is_none_never_becomes_no_limit(name, wrong):
    user = person(**{name: wrong})
    with pytest.raises(BadEntry, match=name):
        profile("openldap").account(user)                   # nobody knows how much that user may keep
    found = profile("openldap").account(user, before=Account("alice", "primary"))
    assert (found.quota.octets if name == "mailQuota" else found.quota.messages) is None      # left as it is
    assert name in found.warnings[0] and found.origins["quota" if name == "mailQuota" else "message_quota"].startswith(
        "store: left as it was")


def test_quotas_of_a_domain():
    found = profile("domains").account(person(mail="a@example.net"), domain(
        mailDomainDiskQuota="10G", mailDomainMsgQuota="1000000"))
    assert (found.domain, found.domain_quota.octets, found.domain_quota.messages) == ("example.net", 10 << 30, 1000000)
    found = profile("domains").account(person(mail="a@example.net"), domain(mailDomainDiskQuota="10G;Archive%5M"))
    assert found.domain_quota.octets is None and found.warnings


# Access

def test_access_is_the_users_else_the_domains():
    tree = domain(mailDomainAllowedServiceAccess="+imap:*")
    user = person(mail="a@example.net")
    assert profile("domains").account(user, tree).account.access == "+imap:*"
    own = person(mail="a@example.net", mailAllowedServiceAccess="+pop:*$-ALL:*")
    assert profile("domains").account(own, tree).account.access == "+pop:*$-ALL:*"
    assert profile("domains").account(user, domain()).account.access == ""


def test_access_rules_that_make_no_sense_let_nobody_in():
    found = profile("openldap").account(person(mailAllowedServiceAccess="everything"))
    assert found.account.access == "everything"             # the entrance refuses what it cannot read
    assert found.warnings
    assert profile("openldap").account(person(mailAllowedServiceAccess=b"\xff")).account.access == "-ALL:*"


def test_several_values_of_access_have_no_order_so_denials_come_first():
    for values in (["+ALL:*", "-pop:*"], ["-pop:*", "+ALL:*"]):
        found = profile("openldap").account(person(mailAllowedServiceAccess=values))
        assert found.account.access == "-pop:*$+ALL:*" and found.warnings


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


def test_groups_have_names_in_order():
    found = profile("openldap").account(person(), None, groups=[
        entry(f"cn=Staff,ou=groups,{BASE}", cn="Staff"), entry(f"cn=admins,ou=groups,{BASE}", cn=["admins", "root"]),
        entry(f"cn=Sales  Team,ou=groups,{BASE}", cn="Sales  Team")])
    assert found.account.groups == ("admins", "sales%20team", "staff")


def test_groups_by_member_of_count_only_below_their_base():
    user = entry("cn=A,dc=x", sAMAccountName="a", memberOf=[
        "CN=Staff,OU=Mail,DC=x", "CN=Admins,OU=Elsewhere,DC=x", "nonsense", "CN=100% sure,OU=Mail,DC=x"])
    found = profile("ad", group_base="ou=mail,dc=x").account(user)
    assert found.account.groups == ("100%25%20sure", "staff")
    assert "nonsense" in found.warnings[0]


def test_groups_by_their_whole_names_are_never_two():
    user = entry("cn=A,dc=x", sAMAccountName="a", memberOf=[
        "CN=Staff,OU=B,DC=x", "cn=staff, ou=a,dc=x", "CN=staff,OU=b,DC=X"])
    assert profile("ad", group_names="dn").account(user).account.groups == ("cn=staff,ou=a,dc=x", "cn=staff,ou=b,dc=x")


# What is said

def test_each_value_says_where_it_comes_from():
    found = profile("domains").account(person(mail="a@example.net", mailQuota="5M"), domain(
        mailDomainStatus="active", preferredMailHost="mail1.example.org"), TWO)
    assert set(found.origins) >= {"user", "status", "host", "partition", "quota", "message_quota", "aliases", "groups",
                                  "access", "domain_quota", "domain_message_quota"}
    assert found.origins["quota"] == f"mailQuota=5M of uid=alice,ou=people,{BASE}"
    assert found.origins["host"] == f"preferredMailHost=mail1.example.org of {domain().dn}"
    assert found.origins["message_quota"] == "default: store.default_message_quota"


def test_names_of_attributes_have_no_case_and_no_options():
    user = Entry.of("uid=a,dc=x", {"UID": [b"a"], "uid;lang-de": [b"b"], "MAIL": [b"a@example.org"]})
    assert profile("openldap").account(user).account.user == "a"


# Whatever a directory says

ODD = [b"", b" ", b"\x00", b"\xff\xfe", b"-1", b"0", b"1e9", b"a" * 5000, "ü@ö.example".encode(), b"@", b"a@b@c",
       b"user@example.net", b"alice@example.org", b"active", b"inactive", b"+ALL:*", b"-ALL:*", b"mail1.example.org",
       b"50M;Archive%200M", b";", b"cn=x,dc=y", b"cn=\\", b"smtp:a@example.org", b"512", "ａ@example.org".encode(),
       b"a\r\nb", b"*)(uid=*", b"primary", b"..", b"anyone", b"group:x", "\u202e@example.org".encode()]
DNS = ["", "uid=a,dc=x", "no name", "cn=\\,", "uid=alice+cn=b,dc=x", "associatedDomain=example.net,dc=x",
       "dc=a,o=internet"]
ATTRIBUTES = sorted({name for each in SETTINGS for name in (
    *profile(each).attributes, *profile(each).domain_attributes)})
USUAL = {"uid": [b"alice"], "sAMAccountName": [b"alice"], "mail": [b"alice@example.net"], "gidNumber": [b"100"],
         "mailHost": [b"mail1.example.org"], "associatedDomain": [b"example.net"],
         "sunPreferredDomain": [b"example.net"], "inetDomainBaseDN": [b"dc=x"]}
EXAMPLES = int(os.environ.get("LDAP_ENTRIES", "150"))
values = st.dictionaries(st.sampled_from(ATTRIBUTES), st.lists(
    st.sampled_from(ODD) | st.binary(max_size=12), max_size=3), max_size=8).map(lambda odd: {**USUAL, **odd})


@given(st.sampled_from(sorted(SETTINGS)), st.sampled_from(DNS), values, st.none() | st.tuples(
    st.sampled_from(DNS), values), st.booleans())
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_it_says_there_is_an_account_that_is_safe_or_none(name, dn, user, tree, known):
    chosen = profile(name, default_host="mail1.example.org")
    has_domains = chosen.domain_search("example.net") is not None
    entry, of_domain = Entry.of(dn, user), Entry.of(*tree) if tree is not None and has_domains else None
    before = Account("alice", "primary") if known else None
    try:
        chosen.user_search("alice@example.net", of_domain)
        chosen.group_search(entry, of_domain)
        found = chosen.account(entry, of_domain, TWO, before=before)
    except BadEntry:
        return
    account = found.account
    legal_owner(account.user)
    legal_aliases(account.aliases)
    assert account.host and account.user in found.logins and account.user not in account.aliases
    assert account.partition in TWO.partitions or account.host != TWO.host
    for limit, field in ((found.quota.octets, "quota"), (found.quota.messages, "message_quota")):
        texts = [value for attribute in chosen.schema.user[field] for value in entry.values.get(attribute.lower(), ())]
        if limit == UNLIMITED:                          # only because the directory says so, and nothing else
            assert {text.strip().partition(b";")[0] for text in texts} == {b"-1"}
        assert (limit is None) == (not chosen.schema.user[field]) or (known or account.host != TWO.host)
    if account.status.may_log_in and chosen.schema.user["status"] and name != "ad":
        said = [value for attribute in ("inetUserStatus", "mailUserStatus")
                for value in entry.values.get(attribute.lower(), ())]
        assert set(said) <= {b"active"}
