"""Accounts out of entries: what each profile reads."""

import pytest
from attrs import evolve

from store.accounts.base import Account, Status
from store.accounts.ldap.ldapentry import BadEntry, Entry
from store.accounts.ldap.ldapmap import mirrored
from store.accounts.ldap.ldapreading import read_account
from store.accounts.sieverules import parse
from tests.store.accounts.ldap.ldap_entries import BASE, TWO, domain, entry, person, profile

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
    found = read_account(profile(name), user, tree)
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
        read_account(profile(name), user, tree)
    assert user.dn in str(raised.value)


def test_who_keeps_one_domain_cannot_take_addresses_of_another():
    tree = entry("o=net,o=root", sunPreferredDomain="example.net", associatedDomain="example.com")
    found = read_account(profile("sun2"), person(mail="alice@example.net", mailAlternateAddress=[
        "ceo@example.org", "a@example.com"]), tree)
    assert found.account.aliases == ("a@example.com",)
    assert any("ceo@example.org" in text for text in found.warnings)


# Aliases

def test_aliases_are_all_addresses_but_the_user_id():
    found = read_account(profile("openldap"), person(
        mailAlternateAddress=["Alice.Smith@example.org", "alice@example.net"], mailEquivalentAddress="as@example.org"))
    assert found.account.aliases == ("alice.smith", "alice@example.net", "as")
    assert found.warnings == ()


def test_addresses_of_active_directory():
    found = read_account(profile("ad"), entry("cn=A,dc=x", sAMAccountName="asmith", mail="a.smith@example.org",
                                        proxyAddresses=[
        "SMTP:a.smith@example.org", "smtp:asmith@example.net", "X500:/o=x/cn=y", "sip:asmith@example.org",
        "x400:c=us;a= ;p=x", "smtp:asmith@example.org"]))
    assert found.account.aliases == ("a.smith", "asmith@example.net")


@pytest.mark.parametrize("wrong", ["@example.net", "a b@example.org", "alice", '"a"@example.org', "a@b@c", "x@",
                                   b"\xff@y"])
def test_an_address_that_cannot_be_one_is_passed_over(wrong):
    found = read_account(profile("openldap"), person(mailAlternateAddress=[wrong]))
    assert found.account.aliases == () and len(found.warnings) == 1


# Status: of the domain, its mail, the user, the user's mail; the first that is not active decides

@pytest.mark.parametrize("status", ["active", "inactive", "disabled", "deleted", "removed", "hold", "overquota"])
@pytest.mark.parametrize(("where", "name"), [
    ("domain", "inetDomainStatus"), ("domain", "mailDomainStatus"), ("user", "inetUserStatus"),
    ("user", "mailUserStatus")])
def test_each_status_in_each_place(where, name, status):
    user = person(mail="a@example.net", **({name: status.upper()} if where == "user" else {}))
    tree = domain(**({name: status} if where == "domain" else {}))
    found = read_account(profile("domains"), user, tree)
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
    found = read_account(profile("domains"),
        person(mail="a@example.net", **{name: value for name, value in values.items() if value is not None}),
        domain(**{name: value for name, value in of_domain.items() if value is not None}))
    assert found.account.status.value == outcome


@pytest.mark.parametrize("values", [["active", "inactive"], [b"\xff"], ["gone"], ["x" * 5000]])
def test_a_status_that_makes_no_sense_is_inactive_and_said(values):
    found = read_account(profile("openldap"), person(mailUserStatus=values))
    assert found.account.status is Status.INACTIVE and not found.account.status.may_log_in
    assert found.warnings


def test_other_words_for_a_status():
    chosen = profile("openldap", statuses=("enabled=active", "LOCKED=hold"), attributes=("status=accountState",))
    enabled = person(accountState="Enabled", inetUserStatus="deleted")
    assert read_account(chosen, enabled).account.status is Status.ACTIVE
    assert read_account(chosen, person(accountState="locked")).account.status is Status.HOLD


@pytest.mark.parametrize(("control", "status"), [
    ("512", "active"), ("514", "inactive"), ("66048", "active"), ("66050", "inactive"), ("-2147483646", "inactive"),
    ("", "inactive"), ("many", "inactive"), (None, "active"), ("0x200", "inactive")])
def test_disabled_accounts_of_active_directory(control, status):
    user = entry("cn=A,dc=x", sAMAccountName="a", **({} if control is None else {"userAccountControl": control}))
    assert read_account(profile("ad"), user).account.status.value == status


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
    found = read_account(profile("domains"), person(mail="a@example.net", **({"mailHost": user} if user else {})),
                                       domain(**({"preferredMailHost": of_domain} if of_domain else {})), TWO)
    assert found.account.host == host


def test_without_a_host_a_store_of_many_machines_does_not_know_where_the_mail_belongs():
    with pytest.raises(BadEntry, match="which back end"):
        read_account(profile("openldap"), person(), None, TWO)
    assert read_account(profile("openldap"), person()).account.host == ""
    found = read_account(profile("openldap", default_host="Mail2.example.org"), person(), None, TWO)
    assert (found.account.host, found.origins["host"]) == ("mail2.example.org", "default: directory.default_host")


@pytest.mark.parametrize("wrong", [["a.example.org", "b.example.org"], "", " ", "two words", b"\xff", "user@host",
                                   "höst"])
def test_a_host_that_is_none(wrong):
    with pytest.raises(BadEntry):
        read_account(profile("openldap"), person(mailHost=wrong), None, TWO)


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
    found = read_account(profile("openldap"), user, None, TWO, before=Account("alice", before) if before else None)
    assert found.account.partition == partition
    assert bool(found.warnings) is warned


def test_partitions_of_another_back_end_are_its_own_business():
    found = read_account(profile("openldap"), person(mailHost="mail2.example.org", mailMessageStore="slow"), None, TWO)
    assert found.account.partition == "slow" and not found.warnings


# Quota

@pytest.mark.parametrize(("values", "octets", "messages", "said"), [
    ({}, -2, -2, False),
    ({"mailQuota": "-1", "mailMsgQuota": "-2"}, -1, -2, True),
    ({"mailQuota": "0"}, 0, -2, True),
    ({"mailQuota": "50M", "mailMsgQuota": "1000"}, 52428800, 1000, True),
])
def test_quotas(values, octets, messages, said):
    quota = read_account(profile("openldap"), person(**values)).quota
    assert (quota.octets, quota.messages, quota.parts, quota.said) == (octets, messages, (), said)


def test_without_attributes_for_limits_the_store_keeps_its_own():
    quota = read_account(profile("posix"), person()).quota
    assert (quota.octets, quota.messages, quota.said) == (None, None, False)
    found = read_account(profile("openldap", attributes=("message_quota=",)), person(mailQuota="5K", mailMsgQuota="7"))
    assert (found.quota.octets, found.quota.messages) == (5120, None)


def test_quotas_of_mailboxes():
    found = read_account(profile("openldap"), person(
        mailQuota="50M;#voice%5M;Archive%200M", mailMsgQuota="100;Sent%5;Archive%7"))
    assert found.quota.parts == (("Archive", 209715200, 7), ("Sent", None, 5))
    assert "#voice" in found.warnings[0]


@pytest.mark.parametrize("wrong", ["lots", "", ["1M", "2M"], "5M;x", b"\xff", "1e3", "99999G"])
@pytest.mark.parametrize("name", ["mailQuota", "mailMsgQuota"])
def test_a_quota_that_is_none_never_becomes_no_limit(name, wrong):
    user = person(**{name: wrong})
    with pytest.raises(BadEntry, match=name):
        read_account(profile("openldap"), user)                   # nobody knows how much that user may keep
    found = read_account(profile("openldap"), user, before=Account("alice", "primary"))
    assert (found.quota.octets if name == "mailQuota" else found.quota.messages) is None      # left as it is
    assert name in found.warnings[0] and found.origins["quota" if name == "mailQuota" else "message_quota"].startswith(
        "store: left as it was")


def test_quotas_of_a_domain():
    found = read_account(profile("domains"), person(mail="a@example.net"), domain(
        mailDomainDiskQuota="10G", mailDomainMsgQuota="1000000"))
    assert (found.domain, found.domain_quota.octets, found.domain_quota.messages) == ("example.net", 10 << 30, 1000000)
    found = read_account(profile("domains"), person(mail="a@example.net"), domain(mailDomainDiskQuota="10G;Archive%5M"))
    assert found.domain_quota.octets is None and found.warnings


# Access

def test_access_is_the_users_else_the_domains():
    tree = domain(mailDomainAllowedServiceAccess="+imap:*")
    user = person(mail="a@example.net")
    assert read_account(profile("domains"), user, tree).account.access == "+imap:*"
    own = person(mail="a@example.net", mailAllowedServiceAccess="+pop:*$-ALL:*")
    assert read_account(profile("domains"), own, tree).account.access == "+pop:*$-ALL:*"
    assert read_account(profile("domains"), user, domain()).account.access == ""


def test_access_rules_that_make_no_sense_let_nobody_in():
    found = read_account(profile("openldap"), person(mailAllowedServiceAccess="everything"))
    assert found.account.access == "everything"             # the authenticator refuses what it cannot read
    assert found.warnings
    assert read_account(profile("openldap"), person(mailAllowedServiceAccess=b"\xff")).account.access == "-ALL:*"


def test_several_values_of_access_have_no_order_so_denials_come_first():
    for values in (["+ALL:*", "-pop:*"], ["-pop:*", "+ALL:*"]):
        found = read_account(profile("openldap"), person(mailAllowedServiceAccess=values))
        assert found.account.access == "-pop:*$+ALL:*" and found.warnings


# Sieve

def test_what_holds_for_sieve_is_said_by_the_domain_and_then_by_the_user():
    tree = domain(mailDomainSieveSettings="redirects=1 scripts=5")
    user = person(mail="a@example.net", mailSieveSettings="redirects=0")
    account = read_account(profile("domains"), user, tree).account
    assert parse(account.sieve) == {"redirects": 0, "scripts": 5}
    assert read_account(profile("domains"), person(mail="a@example.net"), domain()).account.sieve == ""
    found = read_account(profile("domains"), person(mail="a@example.net", mailSieveSettings="redirects=few"), tree)
    assert found.account.sieve == "own=no" and "redirects=few" in found.warnings[0]


def test_scripts_are_the_users_else_the_domains():
    tree = domain(mailDomainSieveRuleSource="keep;")
    assert read_account(profile("domains"), person(mail="a@example.net"), tree).scripts == ("keep;",)
    own = person(mail="a@example.net", mailSieveRuleSource=["stop;", "discard;"])
    found = read_account(profile("domains"), own, tree)
    assert found.scripts == ("discard;", "stop;") and not found.warnings
    assert found.origins["sieve_script"].startswith("mailSieveRuleSource of uid=alice,")
    assert read_account(profile("openldap"), person(mailSieveRuleSource="#" * 60_000)).scripts
    for wrong in (b"\xff", "#" * 70_000, ["#" * 40_000, "# " * 20_000]):
        found = read_account(profile("openldap"), person(mailSieveRuleSource=wrong))
        assert found.scripts == () and len(found.warnings) == 1


# Groups

def test_groups_have_names_in_order():
    found = read_account(profile("openldap"), person(), None, groups=[
        entry(f"cn=Staff,ou=groups,{BASE}", cn="Staff"), entry(f"cn=admins,ou=groups,{BASE}", cn=["admins", "root"]),
        entry(f"cn=Sales  Team,ou=groups,{BASE}", cn="Sales  Team")])
    assert found.account.groups == ("admins", "sales%20team", "staff")


def test_groups_by_member_of_count_only_below_their_base():
    user = entry("cn=A,dc=x", sAMAccountName="a", memberOf=[
        "CN=Staff,OU=Mail,DC=x", "CN=Admins,OU=Elsewhere,DC=x", "nonsense", "CN=100% sure,OU=Mail,DC=x"])
    found = read_account(profile("ad", group_base="ou=mail,dc=x"), user)
    assert found.account.groups == ("100%25%20sure", "staff")
    assert "nonsense" in found.warnings[0]


def test_groups_by_their_whole_names_are_never_two():
    user = entry("cn=A,dc=x", sAMAccountName="a", memberOf=[
        "CN=Staff,OU=B,DC=x", "cn=staff, ou=a,dc=x", "CN=staff,OU=b,DC=X"])
    found = read_account(profile("ad", group_names="dn"), user)
    assert found.account.groups == ("cn=staff,ou=a,dc=x", "cn=staff,ou=b,dc=x")


# What is said

def test_each_value_says_where_it_comes_from():
    found = read_account(profile("domains"), person(mail="a@example.net", mailQuota="5M"), domain(
        mailDomainStatus="active", preferredMailHost="mail1.example.org"), TWO)
    assert set(found.origins) >= {"user", "status", "host", "partition", "quota", "message_quota", "aliases", "groups",
                                  "access", "domain_quota", "domain_message_quota"}
    assert found.origins["quota"] == f"mailQuota=5M of uid=alice,ou=people,{BASE}"
    assert found.origins["host"] == f"preferredMailHost=mail1.example.org of {domain().dn}"
    assert found.origins["message_quota"] == "default: store.default_message_quota"


def test_names_of_attributes_have_no_case_and_no_options():
    user = Entry.of("uid=a,dc=x", {"UID": [b"a"], "uid;lang-de": [b"b"], "MAIL": [b"a@example.org"]})
    assert read_account(profile("openldap"), user).account.user == "a"
