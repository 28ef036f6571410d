"""Rules of access, in Sun's form."""

import pytest

from store.accounts.accessrules import LONGEST, BadRule, Rules

IN, OUT = "10.1.2.3", "192.0.2.7"


def may(rules, service="imap", peer=IN, secure=False):
    return Rules.parse(rules).allow(service, peer, secure=secure)


# What the rules say: of imap and pop from 10.1.2.3, and from 192.0.2.7

@pytest.mark.parametrize(("rules", "imap_in", "imap_out", "pop_in", "pop_out"), [
    ("", True, True, True, True),
    ("+imap,pop:10.0.0.0/8$-ALL:*", True, False, True, False),         # the example of the issue
    ("+ALL:*", True, True, True, True),
    ("-ALL:*", False, False, False, False),
    ("+imap:ALL", True, True, False, False),                            # only allowances: nothing else is allowed
    ("-pop:*", True, True, False, False),                               # only denials: all else is allowed
    ("-imap:192.0.2.0/24", True, False, True, True),
    ("+imap:* EXCEPT 10.0.0.0/8$-imap:*", False, True, False, False),
    ("-imap:10.0.0.0/8 EXCEPT 10.1.2.3", True, True, True, True),
    ("-imap:ALL EXCEPT 10.0.0.0/8 EXCEPT 10.1.0.0/16", False, False, True, True),      # a EXCEPT (b EXCEPT c)
    ("+ALL EXCEPT pop:*", True, True, False, False),
    ("+all except pop,http : * except 10.1.", False, True, False, False),
    ("-ALL:*$+ALL:*", False, False, False, False),                      # the first decides
    ("+imap pop:10.1.2.3 192.0.2.7$-ALL:*", True, True, True, True),    # blanks for commas
    ("+pop3:*", False, False, True, True),
    ("+http,smtp:*", False, False, False, False),                       # services of others: no rule speaks of ours
    (" +imap:* $ -pop:* ", True, True, False, False),
])
def test_what_rules_allow(rules, imap_in, imap_out, pop_in, pop_out):
    found = [may(rules, service, peer) for service in ("imap", "pop") for peer in (IN, OUT)]
    assert found == [imap_in, imap_out, pop_in, pop_out]


@pytest.mark.parametrize(("rules", "clear", "tls"), [
    ("+imap:*", True, True), ("+imaps:*", False, True), ("-imaps:*", True, False), ("-imap:*", False, False),
    ("+imaps:*$-imap:*", False, True), ("-imap:* EXCEPT 10.1.2.3", True, True)])
def test_a_service_under_tls(rules, clear, tls):
    assert (may(rules), may(rules, secure=True)) == (clear, tls)


@pytest.mark.parametrize(("clients", "there", "elsewhere"), [
    ("10.1.2.3", ["10.1.2.3", "::ffff:10.1.2.3"], ["10.1.2.4", "local"]),
    ("10.1.", ["10.1.0.1", "10.1.255.255"], ["10.2.0.1", "10.10.0.1"]),
    ("10.1.*", ["10.1.0.1"], ["10.2.0.1"]),
    ("10.*", ["10.255.0.1"], ["11.0.0.1"]),
    ("10.1.0.0/255.255.0.0", ["10.1.9.9"], ["10.2.0.0"]),
    ("2001:db8::/32", ["2001:db8:1::1"], ["2001:db9::1", "10.1.2.3"]),
    ("[2001:db8::1]", ["2001:db8::1"], ["2001:db8::2"]),
    ("::1", ["::1"], ["::2"]),
    ("local", ["local"], ["127.0.0.1"]),
    ("LOCAL,10.0.0.0/8", ["local", "10.0.0.1"], ["127.0.0.1"]),
])
def test_the_forms_of_clients(clients, there, elsewhere):
    rules = f"+imap:{clients}"
    assert all(may(rules, peer=peer) for peer in there)
    assert not any(may(rules, peer=peer) for peer in elsewhere)


@pytest.mark.parametrize(("rules", "said"), [
    ("imap:*", "neither + nor -"), ("+imap", "no colon"), ("+:*", "list is empty"), ("+imap:", "list is empty"),
    ("+imap:*$", "neither + nor -"), ("+imap:*$$-pop:*", "neither + nor -"), ("+telnet:*", "'telnet' is no service"),
    ("+imap:mail.example.org", "not looked up"), ("+imap:.example.org", "not looked up"),
    ("+imap:10.1.2.300", "10.1.2.300"),
    ("+imap:10.1.2.3/8", "10.1.2.3/8"), ("+imap:* EXCEPT", "EXCEPT"), ("+imap:10.1.2.3/255.0.255.0", "255.0.255.0"),
    ("+imap:EXCEPT 10.0.0.1", "EXCEPT"), ("+" + "imap," * LONGEST + "pop:*", "characters"), ("*", "neither"),
])
def test_what_is_no_rule(rules, said):
    with pytest.raises(BadRule, match=said.replace("+", r"\+")):
        Rules.parse(rules)
