"""Whatever a directory says, there is an account that is safe, or none."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mboxlist.names import legal_owner
from store.accounts.aliases import legal_aliases
from store.accounts.base import Account
from store.accounts.ldap.ldapentry import BadEntry, Entry
from store.accounts.ldap.ldapreading import read_account
from store.tables.quotatable import UNLIMITED
from tests.store.accounts.ldap.ldap_entries import SETTINGS, TWO, profile

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


@pytest.mark.long
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
        found = read_account(chosen, entry, of_domain, TWO, before=before)
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
