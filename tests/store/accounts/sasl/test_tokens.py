"""Tokens: asked about (RFC 7662), or signed (RFC 7519)."""

import base64
import json
import ssl
import urllib.error
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs

import jwt
import pytest
from attrs import evolve
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from store.accounts.loginsettings import Settings
from store.accounts.tokens import Tokens
from store.errors import Problem, StoreError
from store.values import Secret
from tests.support.servers.certificates import Authority

URL = "https://auth.example.org/introspect"
NOW = 1_700_000_000
ACTIVE = {"active": True, "username": "alice", "exp": NOW + 100, "scope": "mail calendar", "aud": "mail.example.org",
          "iss": "https://auth.example.org"}


class Server:
    """The one who made the tokens: says `answer`, and keeps what it was asked."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []

    def __call__(self, request):
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if isinstance(self.answer, bytes) else json.dumps(self.answer).encode()


FOR_US = {"oauth_audience": "mail.example.org"}
OURS = {**FOR_US, "oauth_issuer": "https://auth.example.org"}


def tokens(answer=ACTIVE, now=NOW, **settings):
    server = Server(answer)
    made = Tokens(Settings(**{"oauth_introspection": URL, **FOR_US, **settings}), server, lambda: now)
    return made, server


def refusal(made, token=b"token"):
    with pytest.raises(StoreError) as refused:
        made.check(Secret(token))
    assert b"token" not in str(refused.value).encode().replace(b"the token", b"").replace(b"a token", b"")
    return refused.value.problem


def test_an_active_token(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s:cret\nmore\n")
    made, server = tokens(oauth_client_id="onecopy", oauth_secret_file=secret)
    assert made.remembered(Secret(b"tok/en+1=")) == ""
    assert made.check(Secret(b"tok/en+1=")) == "alice"
    request, = server.requests
    assert request.full_url == URL and request.get_method() == "POST"                       # RFC 7662 §2.1
    assert parse_qs(request.data.decode()) == {"token": ["tok/en+1="], "token_type_hint": ["access_token"]}
    assert request.get_header("Authorization") == "Basic " + base64.b64encode(b"onecopy:s%3Acret").decode()
    assert made.remembered(Secret(b"tok/en+1=")) == "alice" and made.remembered(Secret(b"tok/en+2=")) == ""


def test_how_long_a_token_is_remembered():
    now = [NOW]
    made = Tokens(Settings(oauth_introspection=URL, **FOR_US, remember_time=300), Server(ACTIVE), lambda: now[0])
    made.check(Secret(b"a"))
    now[0] += 99
    assert made.remembered(Secret(b"a")) == "alice"
    now[0] += 2                                         # it has expired before it would have been forgotten
    assert made.remembered(Secret(b"a")) == ""
    made = Tokens(Settings(oauth_introspection=URL, **FOR_US, remember_time=10), Server(ACTIVE), lambda: now[0])
    now[0] = NOW
    made.check(Secret(b"a"))
    now[0] += 11
    assert made.remembered(Secret(b"a")) == ""


@pytest.mark.parametrize("change", [
    {"active": False}, {"active": "true"}, {"active": 1}, {"active": None}, {"exp": NOW - 31}, {"exp": "tomorrow"},
    {"exp": True}, {"nbf": NOW + 31}, {"scope": "calendar"}, {"scope": None}, {"aud": "other.example.org"},
    {"aud": ["x"]},
    {"aud": None}, {"iss": "https://evil.example.org"}, {"iss": None}, {"username": ""}, {"username": 7}])
def test_a_token_that_is_not_good(change):
    made, _ = tokens({**ACTIVE, **change}, oauth_scope="mail", oauth_audience="mail.example.org",
                     oauth_issuer="https://auth.example.org")
    assert refusal(made) is Problem.BAD_LOGIN
    assert made.remembered(Secret(b"token")) == ""


@pytest.mark.parametrize(("change", "name"), [
    ({"exp": NOW - 29}, "alice"), ({"nbf": NOW + 29}, "alice"), ({"aud": ["x", "mail.example.org"]}, "alice"),
    ({"scope": ["calendar", "mail"]}, "alice"),
    ({"username": "", "email": "bob@example.org", "email_verified": True}, "bob@example.org")])
def test_a_token_that_is_good_enough(change, name):
    made, _ = tokens({**ACTIVE, **change}, oauth_scope="mail", oauth_audience="mail.example.org")
    assert made.check(Secret(b"token")) == name


def test_which_claim_is_the_login_name():
    made, _ = tokens({**ACTIVE, "login": "carol"}, oauth_user="login")
    assert made.check(Secret(b"x")) == "carol"
    made, _ = tokens(oauth_user="login")
    assert refusal(made) is Problem.BAD_LOGIN


@pytest.mark.parametrize("answer", [
    urllib.error.URLError("no route"), TimeoutError(), ConnectionResetError(), b"", b"not json", b"[]", b"7",
    urllib.error.HTTPError(URL, 500, "broken", None, None)])        # type: ignore[arg-type]
def test_when_nobody_answers(answer):
    made, _ = tokens(answer)
    assert refusal(made) is Problem.UNAVAILABLE


# Signed ones

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
CLAIMS = {"sub": "alice", "exp": NOW + 100, "aud": ["web", "mail.example.org"],
          "iss": "https://auth.example.org"}


def pem(key):
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def jwk(key, kid, **more):
    algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
    made = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": kid, "use": "sig", **more}


@pytest.fixture
def keys(tmp_path):
    file = tmp_path / "keys"
    file.write_bytes(pem(RSA) + pem(EC))
    return file


def local(file, **settings):
    made = Settings(**{"oauth_keys": file, **OURS, **settings})
    return Tokens(made, Server(AssertionError("not to be asked")), lambda: NOW)


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (RSA, "PS512"), (EC, "ES256")])
def test_a_signed_token(keys, key, algorithm):
    assert local(keys).check(Secret(jwt.encode(CLAIMS, key, algorithm).encode())) == "alice"


def test_a_set_of_keys(tmp_path):
    """RFC 7517; a key's `kid` tells which one has signed."""
    file = tmp_path / "jwks"
    found = [jwk(RSA, "one", alg="RS256"), jwk(EC, "two"), jwk(OTHER, "three", use="enc")]
    file.write_text(json.dumps({"keys": found}))
    made = local(file)
    assert made.check(Secret(jwt.encode(CLAIMS, RSA, "RS256", {"kid": "one"}).encode())) == "alice"
    assert made.check(Secret(jwt.encode(CLAIMS, EC, "ES256").encode())) == "alice"
    for token in (jwt.encode(CLAIMS, RSA, "RS256", {"kid": "two"}), jwt.encode(CLAIMS, RSA, "RS512", {"kid": "one"}),
                  jwt.encode(CLAIMS, OTHER, "RS256"), jwt.encode(CLAIMS, RSA, "RS256", {"kid": "four"})):
        assert refusal(made, token.encode()) is Problem.BAD_LOGIN


def forged():
    """What attackers try (RFC 8725 §2.1)."""
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")
    import hashlib
    import hmac
    claims = part(CLAIMS)
    yield part({"alg": "none"}) + b"." + claims + b"."
    head = part({"alg": "HS256"})                       # the public key as the password
    signature = hmac.new(pem(RSA), head + b"." + claims, hashlib.sha256).digest()
    yield head + b"." + claims + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")
    good = jwt.encode(CLAIMS, RSA, "RS256").encode()
    yield good[:-5] + b"AAAAA"
    head, _, signature = good.split(b".")
    yield b".".join((head, part({**CLAIMS, "sub": "admin"}), signature))
    yield b".".join((part({"alg": "RS256", "jwk": jwk(OTHER, "x")}),
                     *jwt.encode(CLAIMS, OTHER, "RS256").encode().split(b".")[1:]))
    yield jwt.encode(CLAIMS, OTHER, "RS256").encode()
    yield jwt.encode({**CLAIMS, "exp": None}, RSA, "RS256").encode()     # never expires
    yield jwt.encode({key: CLAIMS[key] for key in ("sub", "aud", "iss")}, RSA, "RS256").encode()
    yield jwt.encode(CLAIMS, RSA, "RS256", {"crit": ["b64"], "b64": False}).encode()
    yield jwt.encode(CLAIMS, RSA, "RS256", {"crit": ["http://example.org/new"]}).encode()
    for algorithm in ("HS256", "HS512"):
        yield jwt.encode(CLAIMS, "a password that is long enough for each of these algorithms, and more",
                         algorithm).encode()
    yield jwt.encode({**CLAIMS, "exp": NOW - 60}, RSA, "RS256").encode()
    yield from (b"", b"..", b"a.b.c", b"\xff.\xff.\xff", b"no dots", good[:-2], good + b"A", b"." + good)


@pytest.mark.parametrize("claims", [
    {"aud": None}, {"aud": ""}, {"aud": []}, {"aud": "web"}, {"aud": ["web", "calendar.example.org"]}, {"aud": 7},
    {"aud": "mail.example.org."}, {"aud": {"mail.example.org": 1}}, {"iss": "https://auth.example.org/"}, {"iss": None},
    {"iss": ["https://auth.example.org"]}, {"exp": NOW - 31}, {"nbf": NOW + 31}, {"sub": None}, {"sub": ""}],
    ids=lambda claims: str(claims))
def test_a_token_of_the_right_key_for_another_or_by_another(keys, claims):
    """What an application with tokens of its own users could come with."""
    whole = {key: value for key, value in {**CLAIMS, **claims}.items() if value is not None}
    made = local(keys)
    token = _encoded(whole)
    assert refusal(made, token) is Problem.BAD_LOGIN and made.remembered(Secret(token)) == ""
    assert refusal(local(keys, oauth_audience=""), _encoded(CLAIMS)) is Problem.BAD_LOGIN


def _encoded(claims):
    """Signed with the right key, also where PyJWT would not make such claims."""
    return jwt.api_jws.encode(json.dumps(claims).encode(), RSA, "RS256").encode()


@pytest.mark.parametrize(("verified", "settings", "taken"), [
    (True, {}, True), ("true", {}, True), (False, {}, False), (None, {}, False), ("false", {}, False), (1, {}, False),
    ("yes", {}, False), (None, {"oauth_trust_email": True}, True), (False, {"oauth_trust_email": True}, True)])
@pytest.mark.parametrize("chosen", ["", "email"])
def test_an_address_must_be_verified(keys, verified, settings, taken, chosen):
    """Or whoever gives the provider somebody's address reads that one's mail."""
    claims = {**CLAIMS, "email": "alice@example.org", **({} if verified is None else {"email_verified": verified})}
    made = local(keys, oauth_user=chosen, **settings)
    if taken:
        assert made.check(Secret(_encoded(claims))) == "alice@example.org"
    else:
        assert refusal(made, _encoded(claims)) is Problem.BAD_LOGIN
    if not chosen:                          # another claim counts before it
        assert made.check(Secret(_encoded({**claims, "username": "bob"}))) == "bob"


@pytest.mark.parametrize("token", list(forged()))
def test_a_forged_token(keys, token):
    assert refusal(local(keys), token) is Problem.BAD_LOGIN


def test_a_signed_token_cut_off_at_every_octet(keys):
    good = jwt.encode(CLAIMS, EC, "ES256").encode()
    made = local(keys)
    for end in range(len(good)):
        assert refusal(made, good[:end]) is Problem.BAD_LOGIN


def test_the_keys_are_read_again_when_they_change(keys):
    made = local(keys)
    token = Secret(jwt.encode(CLAIMS, OTHER, "RS256").encode())
    with pytest.raises(StoreError):
        made.check(token)
    keys.write_bytes(pem(OTHER))
    assert made.check(token) == "alice"


@pytest.mark.parametrize("content", [b"", b"nothing", b"{}", b'{"keys": []}', b'{"keys": [{}]}', b'{"keys": 7}',
                                     b"\xff", b'{"keys": [{"kty": "RSA"}]}', b"-----END PUBLIC KEY-----"])
def test_a_file_without_keys(tmp_path, content):
    file = tmp_path / "keys"
    file.write_bytes(content)
    token = jwt.encode(CLAIMS, RSA, "RS256").encode()
    assert refusal(local(file), token) is Problem.UNAVAILABLE
    assert refusal(local(tmp_path / "missing"), token) is Problem.UNAVAILABLE


def test_other_tokens_are_asked_about(keys):
    server = Server({**ACTIVE, "username": "bob"})
    made = Tokens(Settings(oauth_keys=keys, oauth_introspection=URL, **OURS), server, lambda: NOW)
    assert made.check(Secret(b"opaque")) == "bob"
    assert made.check(Secret(jwt.encode(CLAIMS, OTHER, "RS256").encode())) == "bob"
    assert made.check(Secret(jwt.encode(CLAIMS, RSA, "RS256").encode())) == "alice"


def test_the_settings():
    assert not Settings().oauth and not Settings().oauth_lacks
    assert Settings(oauth_introspection=URL, **FOR_US).oauth and Settings(oauth_keys=Path("keys"), **OURS).oauth
    for lacking, option in (({"oauth_introspection": URL}, "login.oauth_audience"),
                            ({"oauth_keys": Path("keys"), **FOR_US}, "login.oauth_issuer"),
                            ({"oauth_keys": Path("keys"), "oauth_issuer": "x"}, "login.oauth_audience")):
        assert not Settings(**lacking).oauth and Settings(**lacking).oauth_lacks == option
    for wrong in ("ftp://example.org", "example.org", "http://"):
        with pytest.raises(ValueError):
            Settings(oauth_introspection=wrong)
    for wrong in ({"mechanisms": ("CRAM-MD5",)}, {"access": "imap"}, {"proxy_networks": ("example.org",)}):
        with pytest.raises(ValueError):
            evolve(Settings(), **wrong)


# Over HTTPS

class Answers(BaseHTTPRequestHandler):
    """Says that the token is active, or where else to ask."""

    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.heard.append(form["token"][0])
        said = json.dumps({"active": True, "username": "alice", "aud": "mail.example.org"}).encode()
        self.send_response(302 if self.path == "/moved" else 200)
        self.send_header("Location", f"https://127.0.0.1:{self.server.server_port}/introspect")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def do_GET(self):
        self.server.heard.append("asked elsewhere")
        self.send_error(404)

    def log_message(self, *_):
        """Nothing."""


def test_over_https(tmp_path):
    authority, other = Authority(tmp_path, "authority"), Authority(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server())
    web = HTTPServer(("127.0.0.1", 0), Answers)
    web.heard = []
    web.socket = context.wrap_socket(web.socket, server_side=True)
    thread = Thread(target=web.serve_forever)
    thread.start()
    try:
        url = f"https://127.0.0.1:{web.server_port}/introspect"
        settings = Settings(oauth_introspection=url, oauth_ca=authority.file, **FOR_US)
        assert Tokens(settings).check(Secret(b"one")) == "alice" and web.heard == ["one"]
        for wrong in (evolve(settings, oauth_ca=other.file), evolve(settings, oauth_ca=tmp_path / "missing"),
                      evolve(settings, oauth_introspection=url.replace("/introspect", "/moved"))):
            assert refusal(Tokens(wrong)) is Problem.UNAVAILABLE
        assert web.heard == ["one", "token"]            # nobody else has got it, nor the same one twice
    finally:
        web.shutdown()
        thread.join()
        web.server_close()
