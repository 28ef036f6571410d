"""What mail programs are told: Mozilla's autoconfig, Microsoft's Autodiscover, Apple's profiles, in their forms."""

import plistlib
from xml.etree import ElementTree

import pytest
from twisted.internet.defer import ensureDeferred

from tools.http.clientconfig import APPLE, MICROSOFT, MOZILLA, ClientConfig, Service, services
from tools.http.settings import Settings
from tools.http.webpages import Answer, Asked, Pages, Refused

FOUND = services("mail.example.org", (143, 993), (0, 995), "smtp.example.org:587")
ASKED = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE a [<!ENTITY x "alice">]>
<Autodiscover xmlns="http://schemas.microsoft.com/exchange/autodiscover/outlook/requestschema/2006"><Request>
<EMailAddress>{}</EMailAddress>
<AcceptableResponseSchema>http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a
</AcceptableResponseSchema></Request></Autodiscover>"""
NAMESPACE = {"r": "http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a"}


def ask(target: str, body: str = "", found: list[Service] = FOUND) -> Answer:
    """The answer of the pages."""
    pages, answers = Pages(), list[Answer]()
    ClientConfig(found, "example.org").add_pages(pages)
    asked = Asked("POST" if body else "GET", target, {}, body.encode())
    waiting = ensureDeferred(pages.answer(asked))
    failures = list[BaseException]()
    waiting.addCallbacks(answers.append, lambda failure: failures.append(failure.value))
    if failures:
        raise failures[0]
    return answers[0]


def test_services_in_order() -> None:
    assert [(each.kind, each.host, each.port, each.security) for each in FOUND] == [
        ("imap", "mail.example.org", 993, "TLS"), ("imap", "mail.example.org", 143, "STARTTLS"),
        ("pop3", "mail.example.org", 995, "TLS"), ("smtp", "smtp.example.org", 587, "STARTTLS")]
    assert services("m", (0, 0), (0, 0), "s:465") == [Service("smtp", "s", 465, "TLS")]     # RFC 8314 §3.3


@pytest.mark.parametrize("path", MOZILLA)
def test_mozilla(path: str) -> None:
    answer = ask(f"{path}?emailaddress=alice%40Example.NET")
    assert answer.kind.startswith("text/xml")
    provider, = ElementTree.fromstring(answer.body)
    assert provider.get("id") == "example.net" and provider.findtext("domain") == "example.net"
    told = [[server.tag, server.get("type"), *(server.findtext(name) for name in (
        "hostname", "port", "socketType", "authentication", "username"))] for server in provider
        if server.tag.endswith("Server")]
    last = ["password-cleartext", "%EMAILADDRESS%"]
    assert told == [["incomingServer", "imap", "mail.example.org", "993", "SSL", *last],
                    ["incomingServer", "imap", "mail.example.org", "143", "STARTTLS", *last],
                    ["incomingServer", "pop3", "mail.example.org", "995", "SSL", *last],
                    ["outgoingServer", "smtp", "smtp.example.org", "587", "STARTTLS", *last]]
    assert ElementTree.fromstring(ask(path).body)[0].get("id") == "example.org"


@pytest.mark.parametrize("path", MICROSOFT)
def test_microsoft(path: str) -> None:
    account = ElementTree.fromstring(ask(path, ASKED.format("alice@example.net")).body).find(".//r:Account", NAMESPACE)
    assert account is not None and account.findtext("r:Action", namespaces=NAMESPACE) == "settings"
    told = {protocol.findtext("r:Type", namespaces=NAMESPACE): [protocol.findtext(f"r:{name}", namespaces=NAMESPACE)
            for name in ("Server", "Port", "LoginName", "SSL", "Encryption")]
            for protocol in account.findall("r:Protocol", NAMESPACE)}
    assert list(told) == ["IMAP", "POP3", "SMTP"]           # the first is preferred
    assert told == {"IMAP": ["mail.example.org", "993", "alice@example.net", "on", "SSL"],
                    "POP3": ["mail.example.org", "995", "alice@example.net", "on", "SSL"],
                    "SMTP": ["smtp.example.org", "587", "alice@example.net", "off", "TLS"]}


def test_apple() -> None:
    answer = ask(f"{APPLE}?email=alice%40example.net")
    profile = plistlib.loads(answer.body)
    account, = profile["PayloadContent"]
    assert answer.kind == "application/x-apple-aspen-config"
    assert account["EmailAccountType"] == "EmailTypeIMAP" and account["EmailAddress"] == "alice@example.net"
    assert [account[f"IncomingMailServer{name}"] for name in ("HostName", "PortNumber", "UseSSL")] == [
        "mail.example.org", 993, True]
    assert account["OutgoingMailServerHostName"] == "smtp.example.org" and account["OutgoingMailServerUseSSL"] is True
    assert "IncomingPassword" not in account
    again = plistlib.loads(ask(f"{APPLE}?email=alice%40example.net").body)
    other = plistlib.loads(ask(f"{APPLE}?email=bob%40example.net").body)
    assert again["PayloadUUID"] == profile["PayloadUUID"] != other["PayloadUUID"]


@pytest.mark.parametrize("address", [
    "", "alice", "@example.org", "a@b@c", "a b@example.org", "<x>@example.org", "a@-.org", "&x;@example.org",
    "a@" + "x" * 300, "a\n@example.org", "a@example.org\"", "a'@example.org"])
def test_what_is_no_address(address: str) -> None:
    quoted = "".join(f"%{octet:02x}" for octet in address.encode())
    refusals = [(f"{APPLE}?email={quoted}", ""), (MICROSOFT[0], ASKED.format(address or " "))]
    if address:
        refusals.append((f"{MOZILLA[0]}?emailaddress={quoted}", ""))
    for target, body in refusals:
        with pytest.raises(Refused) as refused:
            ask(target, body)
        assert refused.value.status == 400


def test_a_request_that_is_no_xml() -> None:
    for body in ("x", "<EMailAddress>", "\x00" * 1000, "<EMailAddress>" + "a" * 500 + "@example.org</EMailAddress>"):
        with pytest.raises(Refused):
            ask(MICROSOFT[0], body)


def test_without_a_name_there_are_no_pages() -> None:
    for path in (*MOZILLA, APPLE):
        with pytest.raises(Refused) as refused:
            ask(path, found=[])
        assert refused.value.status == 404


@pytest.mark.parametrize(("name", "value"), [
    ("mail_name", "two words"), ("mail_name", "<x>"), ("submission", "smtp.example.org"), ("submission", "smtp:0"),
    ("submission", "smtp:65536"), ("submission", ":25"), ("submission", "a b:25")])
def test_what_is_no_setting(name: str, value: str) -> None:
    with pytest.raises(ValueError):
        Settings(**{name: value})
