"""Whose a token is: as the one who made it says (RFC 7662), or as a JWT says that one of the configured keys has signed
(RFC 7519, RFC 9068). Both wait, and are for a thread.

A token is good for whom it was made: it must name this server (aud), or any application that somebody has logged in to
could come with the token that it got. The algorithm is one of public keys, whatever the token says (RFC 8725 §3).
"""

import base64
import hashlib
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field

from mboxlist import privatefiles
from store.accounts import clienttls
from store.accounts.loginsettings import Settings
from store.errors import Problem, StoreError
from store.values import Secret

NAMES = ("username", "preferred_username", "email", "sub")
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LONGEST = 64 << 10          # octets of an answer
LEEWAY = 30                 # seconds that clocks may differ
MOST = 10_000               # tokens that are remembered
MOST_KEYS = 100

Claims = Mapping[str, Any]


@define(eq=False)
class Tokens:
    """Checks tokens. Those found good are remembered as keyed digests for a while, and never longer than they hold."""

    settings: Settings
    _ask: "Callable[[urllib.request.Request], bytes] | None" = None
    now: Callable[[], float] = time.time
    _key: bytes = field(factory=lambda: os.urandom(32), init=False)
    _good: OrderedDict[bytes, tuple[float, str]] = field(factory=OrderedDict, init=False)
    _keys: "tuple[Any, ...] | None" = field(default=None, init=False)

    def remembered(self, token: Secret) -> str:
        """The login name, if this token was found good a short while ago; else ""."""
        until, name = self._good.get(self._digest(token), (0.0, ""))
        return name if until > self.now() else ""

    def check(self, token: Secret) -> str:
        """The login name of the one to whom the token was given. Raises StoreError BAD_LOGIN, UNAVAILABLE."""
        claims = self._from_keys(token)
        if claims is None:
            claims = self._from_server(token)
        self._look_at(claims)
        name = self._login_name(claims)
        self._remember(token, name, claims.get("exp"))
        return name

    def _look_at(self, claims: Claims) -> None:
        settings, now = self.settings, self.now()
        until, since = claims.get("exp"), claims.get("nbf")
        if until is not None and not (_is_time(until) and until > now - LEEWAY):
            raise _bad("the token has expired")
        if since is not None and not (_is_time(since) and since <= now + LEEWAY):
            raise _bad("the token is not valid yet")
        if settings.oauth_issuer and claims.get("iss") != settings.oauth_issuer:
            raise _bad("somebody else has made the token (login.oauth_issuer)")
        audience = claims.get("aud")
        named = (audience,) if isinstance(audience, str) else tuple(audience) if isinstance(audience, list) else ()
        if not settings.oauth_audience or settings.oauth_audience not in named:
            raise _bad("the token is for somebody else (login.oauth_audience)" if named else
                       "the token does not say for whom it is (login.oauth_audience)")
        scope = claims.get("scope", "")
        allowed = scope.split() if isinstance(scope, str) else scope if isinstance(scope, list) else ()
        if not set(settings.oauth_scope.split()) <= {str(each) for each in allowed}:
            raise _bad("the token does not allow this")

    def _login_name(self, claims: Claims) -> str:
        """Whoever it was given to. An address that nobody has verified anybody may have given. Raises StoreError
        BAD_LOGIN."""
        wanted = (self.settings.oauth_user,) if self.settings.oauth_user else NAMES
        claim = next((name for name in wanted if isinstance(claims.get(name), str) and claims[name]), "")
        if not claim:
            raise _bad("the token does not say whose it is")
        verified = claims.get("email_verified")
        if claim == "email" and not self.settings.oauth_trust_email and not (verified is True or verified == "true"):
            raise _bad("the address in the token is not verified (login.oauth_trust_email)")
        return str(claims[claim])

    def _remember(self, token: Secret, name: str, until: object) -> None:
        end = self.now() + self.settings.remember_time
        if _is_time(until):
            end = min(end, float(until))        # type: ignore[arg-type]
        digest = self._digest(token)
        self._good[digest] = end, name
        self._good.move_to_end(digest)
        if len(self._good) > MOST:
            self._good.popitem(last=False)

    def _digest(self, token: Secret) -> bytes:
        return hashlib.blake2b(token.reveal(), key=self._key, digest_size=32).digest()

    # The one who made it is asked

    def _from_server(self, token: Secret) -> Claims:
        url = self.settings.oauth_introspection
        if not url:
            raise _bad("the token is no JWT that one of the keys has signed")
        form = urllib.parse.urlencode({"token": token.reveal().decode("ascii"), "token_type_hint": "access_token"})
        request = urllib.request.Request(url, form.encode(), {
            "Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json", **self._credentials()})
        try:
            answer = json.loads((self._ask or self._fetch)(request))
        except (OSError, ValueError) as error:          # also urllib's own
            raise StoreError(Problem.UNAVAILABLE, detail=f"asking about a token: {type(error).__name__}") from None
        if not isinstance(answer, dict):
            raise StoreError(Problem.UNAVAILABLE, detail="asking about a token: the answer is no object")
        if answer.get("active") is not True:            # RFC 7662 §2.2
            raise _bad("the token is not active")
        return answer

    def _credentials(self) -> Mapping[str, str]:
        """RFC 6749 §2.3.1"""
        if not self.settings.oauth_client_id:
            return {}
        secret = ""
        if self.settings.oauth_secret_file is not None:
            secret = (_read(self.settings.oauth_secret_file).splitlines() or [""])[0]
        pair = ":".join(urllib.parse.quote_plus(part) for part in (self.settings.oauth_client_id, secret))
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}

    def _fetch(self, request: urllib.request.Request) -> bytes:
        context = None
        if request.type == "https":
            context = clienttls.context(self.settings.oauth_ca)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect(),
                                             urllib.request.HTTPSHandler(context=context))
        with opener.open(request, timeout=self.settings.oauth_time) as answer:
            data: bytes = answer.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise ValueError("the answer is too long")
        return data

    # It is signed

    def _from_keys(self, token: Secret) -> Claims | None:
        """What the token says; None if that is for another to tell. Raises StoreError BAD_LOGIN."""
        if self.settings.oauth_keys is None or token.reveal().count(b".") != 2:
            return None
        import jwt  # here: it loads much, and most servers have no use for it
        try:
            header = jwt.get_unverified_header(token.reveal())
        except jwt.PyJWTError:
            return None
        if "crit" in header:                            # RFC 7515 §4.1.11: none is understood
            raise _bad("the token wants what is not known here")
        kid = header.get("kid")
        keys = [key for key in self._public_keys() if kid is None or key.key_id in (None, kid)]
        for key in keys:
            try:
                claims: Claims = jwt.decode(token.reveal(), key.key, algorithms=[*_algorithms(key)], options={
                    "verify_aud": False, "verify_iss": False, "verify_exp": False, "verify_nbf": False,
                    "verify_iat": False, "verify_sub": False, "verify_jti": False})     # `_look_at` does
            except (jwt.PyJWTError, TypeError, ValueError):
                continue
            if claims.get("exp") is None:
                raise _bad("the token never expires")
            return claims
        if self.settings.oauth_introspection:
            return None
        raise _bad("none of the keys has signed the token")

    def _public_keys(self) -> "tuple[Any, ...]":
        """The keys, read again when the file has changed."""
        file = self.settings.oauth_keys
        assert file is not None
        try:
            status = file.stat()
        except OSError as error:
            raise StoreError(Problem.UNAVAILABLE, detail=f"{file}: {error.strerror}") from None
        version = (status.st_mtime_ns, status.st_size, status.st_ino)
        if self._keys is None or self._keys[0] != version:
            self._keys = (version, read_keys(file))
        found: tuple[Any, ...] = self._keys[1]
        return found


@define
class PublicKey:
    """One key, its `kid` if it has one, and what it is for if that is said."""

    key: Any
    key_id: str | None = None
    algorithm: str | None = None


def read_keys(file: Path) -> tuple[PublicKey, ...]:
    """A JWK set (RFC 7517 §5), or keys in PEM one after the other. Raises StoreError UNAVAILABLE."""
    import jwt
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    text = _read(file)
    found = []
    try:
        if text.lstrip().startswith("{"):
            for each in json.loads(text)["keys"][:MOST_KEYS]:
                if each.get("use", "sig") == "sig" and each.get("kty") in ("RSA", "EC", "OKP"):
                    found.append(PublicKey(jwt.PyJWK(each).key, each.get("kid"), each.get("alg")))
        else:
            ends = "-----END PUBLIC KEY-----"
            for part in text.split(ends)[:-1][:MOST_KEYS]:
                found.append(PublicKey(load_pem_public_key((part.strip() + "\n" + ends + "\n").encode())))
    except (jwt.PyJWTError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(Problem.UNAVAILABLE, detail=f"{file}: {type(error).__name__}: not the keys of a JWK set, and "
                         "no public keys in PEM") from None
    if not found:
        raise StoreError(Problem.UNAVAILABLE, detail=f"{file}: there is no public key in it")
    return tuple(found)


def _algorithms(key: PublicKey) -> tuple[str, ...]:
    """Only with public keys: a token must not choose to take one for a password (RFC 8725 §2.1)."""
    return tuple(each for each in ALGORITHMS if key.algorithm in (None, each))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token goes nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read(file: Path) -> str:
    try:
        return privatefiles.read_named(file).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(Problem.UNAVAILABLE, detail=f"{file}: {error}") from None


def _bad(detail: str) -> StoreError:
    return StoreError(Problem.BAD_LOGIN, detail=detail)
