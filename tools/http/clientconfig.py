"""Settings for mail programs, in the forms in which they ask for them: Mozilla's autoconfig (config-v1.1.xml),
Microsoft's Autodiscover ("POX", [MS-OXDSCLI]), and a configuration profile of Apple. RFC 6186 does it by the DNS:
docs/mail-programs.md.

Nothing in an answer depends on whether there is such a user, and none of them is asked for a password.
"""

import plistlib
import re
import uuid
from collections.abc import Sequence
from html import unescape
from xml.sax.saxutils import escape

from attrs import frozen

from tools.http.settings import submission_of
from tools.http.webpages import Answer, Asked, Pages, Refused

XML = "text/xml; charset=utf-8"
PROFILE = "application/x-apple-aspen-config"
MOZILLA = ("/mail/config-v1.1.xml", "/.well-known/autoconfig/mail/config-v1.1.xml")
MICROSOFT = ("/autodiscover/autodiscover.xml", "/Autodiscover/Autodiscover.xml")
APPLE = "/mail/apple.mobileconfig"
TLS, STARTTLS = "TLS", "STARTTLS"
_ADDRESS = re.compile(r"[^\s@<>\"&'\\\x00-\x1f\x7f]{1,64}@([A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)")
_ASKED = re.compile(r"<(?:\w+:)?EMailAddress>([^<]{1,400})</", re.IGNORECASE)
_OUTLOOK = "http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a"
_RESPONSE = "http://schemas.microsoft.com/exchange/autodiscover/responseschema/2006"


@frozen
class Service:
    """Where a protocol is served for mail programs: `kind` is imap, pop3 or smtp."""

    kind: str
    host: str
    port: int
    security: str           # TLS or STARTTLS: passwords go no other way


def services(name: str, imap: tuple[int, int], pop3: tuple[int, int], submission: str) -> list[Service]:
    """What mail programs are told: of each protocol TLS before STARTTLS. `name`: by which they come; the ports are
    those with STARTTLS and under TLS, 0 for none; `submission`: host:port, "" for none."""
    found = [Service(kind, name, port, security) for kind, (plain, tls) in (("imap", imap), ("pop3", pop3))
             for port, security in ((tls, TLS), (plain, STARTTLS)) if port]
    if sending := submission_of(submission):
        host, port = sending
        found.append(Service("smtp", host, port, TLS if port == 465 else STARTTLS))        # RFC 8314 §3.3
    return found


# Mozilla

def mozilla(found: Sequence[Service], domain: str) -> bytes:
    """clientConfig, version 1.1; the mail program puts the address in the place of %EMAILADDRESS%."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<clientConfig version="1.1">',
             f'  <emailProvider id="{escape(domain)}">', f"    <domain>{escape(domain)}</domain>",
             f"    <displayName>{escape(domain)}</displayName>",
             f"    <displayShortName>{escape(domain)}</displayShortName>"]
    for each in found:
        element = "outgoingServer" if each.kind == "smtp" else "incomingServer"
        lines += [f'    <{element} type="{each.kind}">', f"      <hostname>{escape(each.host)}</hostname>",
                  f"      <port>{each.port}</port>",
                  f"      <socketType>{'SSL' if each.security == TLS else 'STARTTLS'}</socketType>",
                  "      <authentication>password-cleartext</authentication>",
                  "      <username>%EMAILADDRESS%</username>", f"    </{element}>"]
    return "\n".join([*lines, "  </emailProvider>", "</clientConfig>", ""]).encode()


def _first(found: Sequence[Service]) -> dict[str, Service]:
    """Of each protocol the best, in this order."""
    best: dict[str, Service] = {}
    for each in found:
        best.setdefault(each.kind, each)
    return best


# Microsoft

def address_in(body: bytes) -> str:
    """The address in a request of Autodiscover. It is looked for in the text: nothing in it is carried out, as a reader
    of XML would with entities. Raises Refused."""
    found = _ASKED.search(body.decode("utf-8", "replace"))
    return require_address(unescape(found[1].strip()) if found else "")


def microsoft(found: Sequence[Service], address: str) -> bytes:
    """Autodiscover's response; of each protocol the first."""
    lines = ['<?xml version="1.0" encoding="utf-8"?>', f'<Autodiscover xmlns="{_RESPONSE}">',
             f'  <Response xmlns="{_OUTLOOK}">', "    <Account>", "      <AccountType>email</AccountType>",
             "      <Action>settings</Action>"]
    for each in _first(found).values():
        encryption = "SSL" if each.security == TLS else "TLS"
        lines += ["      <Protocol>", f"        <Type>{each.kind.upper()}</Type>",
                  f"        <Server>{escape(each.host)}</Server>", f"        <Port>{each.port}</Port>",
                  "        <DomainRequired>off</DomainRequired>", f"        <LoginName>{escape(address)}</LoginName>",
                  "        <SPA>off</SPA>", f"        <SSL>{'on' if each.security == TLS else 'off'}</SSL>",
                  f"        <Encryption>{encryption}</Encryption>", "        <AuthRequired>on</AuthRequired>",
                  "      </Protocol>"]
    return "\n".join([*lines, "    </Account>", "  </Response>", "</Autodiscover>", ""]).encode()


# Apple

def apple(found: Sequence[Service], address: str, password: str = "", *, sends: bool = True) -> bytes:
    """A profile with one account of IMAP, and with that password; without one it is asked for when the profile is
    installed. `sends`: it is the password for sending, too."""
    first = _first(found)
    domain = address.rpartition("@")[2].lower()
    mark = f"{'.'.join(reversed(domain.split('.')))}.onecopy"
    payload: dict[str, object] = {
        "PayloadType": "com.apple.mail.managed", "PayloadVersion": 1, "PayloadIdentifier": f"{mark}.mail",
        "PayloadUUID": _uuid(address, "mail"), "PayloadDisplayName": f"Mail of {domain}",
        "EmailAccountType": "EmailTypeIMAP", "EmailAddress": address, "EmailAccountDescription": address}
    for kind, way in (("imap", "Incoming"), ("smtp", "Outgoing")):
        if each := first.get(kind):
            payload |= {f"{way}MailServerHostName": each.host, f"{way}MailServerPortNumber": each.port,
                        f"{way}MailServerUseSSL": True, f"{way}MailServerUsername": address,
                        f"{way}MailServerAuthentication": "EmailAuthPassword"}
    if password:
        payload["IncomingPassword"] = password
    if "smtp" in first and sends:
        payload["OutgoingPasswordSameAsIncomingPassword"] = True
    return plistlib.dumps({
        "PayloadType": "Configuration", "PayloadVersion": 1, "PayloadIdentifier": mark,
        "PayloadUUID": _uuid(address, "profile"), "PayloadDisplayName": f"Mail of {domain}",
        "PayloadRemovalDisallowed": False, "PayloadContent": [payload]})


def _uuid(address: str, what: str) -> str:
    """Always this one for that address and use: a profile that is installed again takes the place of the first."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"mailto:{address.lower()}?{what}")).upper()


# Pages

def require_address(text: str) -> str:
    """The address. Raises Refused for what is none."""
    if not _ADDRESS.fullmatch(text):
        raise Refused(400, "an address such as alice@example.org is needed")
    return text


@frozen
class ClientConfig:
    """The pages. `found`: what mail programs are told; with none there are no pages. `domain`: of those who name
    none."""

    found: Sequence[Service]
    domain: str

    def add_pages(self, pages: Pages) -> None:
        """Have these pages, if there is something to tell."""
        if not self.found:
            return
        for path in MOZILLA:
            pages.add(path, self._mozilla)
        for path in MICROSOFT:
            pages.add(path, self._microsoft, "POST")
        pages.add(APPLE, self._apple)

    async def _mozilla(self, asked: Asked) -> Answer:
        address = asked.query.get("emailaddress", "")
        domain = require_address(address).rpartition("@")[2] if address else self.domain
        return Answer(body=mozilla(self.found, domain.lower()), kind=XML)

    async def _microsoft(self, asked: Asked) -> Answer:
        return Answer(body=microsoft(self.found, address_in(asked.body)), kind=XML)

    async def _apple(self, asked: Asked) -> Answer:
        """GET /mail/apple.mobileconfig?email=alice@example.org"""
        return profile(apple(self.found, require_address(asked.query.get("email", ""))))

    def address_of(self, user: str) -> str:
        """By which mail programs know that user; "" where they are told nothing, or the user has none for them."""
        address = user if "@" in user else f"{user}@{self.domain}"
        return address if self.found and _ADDRESS.fullmatch(address) else ""


def profile(octets: bytes, fields: Sequence[tuple[str, str]] = ()) -> Answer:
    """A profile of Apple, as a file."""
    return Answer(body=octets, kind=PROFILE,
                  fields=[("Content-Disposition", 'attachment; filename="mail.mobileconfig"'), *fields])
