"""Passkeys and security keys (WebAuthn, W3C): how a browser is asked for one, and whether what it sends is right, by
the library webauthn. `rp_id` is the name of the host that the browser shows, `origin` its scheme, name and port. Pure:
who calls keeps the challenge between asking and answer, and takes each one once."""

import json
from collections.abc import Mapping
from typing import Any

import webauthn
from attrs import evolve
from webauthn.helpers import base64url_to_bytes, bytes_to_base64url
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from store.accounts.apppasswords.accessrecord import MOST_KEYS, Access, SecurityKey
from store.errors import Problem, StoreError

LONGEST = 1 << 16           # characters of what a browser sends
_NO_PROOF = (WebAuthnException, ValueError, TypeError, KeyError, RecursionError)    # of JSON and CBOR within each other


def wanted_to_register(access: Access, rp_id: str, challenge: bytes) -> dict[str, Any]:
    """What navigator.credentials.create is given; keys that the user has already are not taken again."""
    made = webauthn.generate_registration_options(
        rp_id=rp_id, rp_name="onecopy", user_name=access.user, challenge=challenge,
        exclude_credentials=_known(access), authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.DISCOURAGED,
            user_verification=UserVerificationRequirement.DISCOURAGED))
    found: dict[str, Any] = json.loads(webauthn.options_to_json(made))
    return found


def registered(access: Access, name: str, sent: str, *, challenge: bytes, rp_id: str, origin: str, now: float
               ) -> Access | None:
    """With the key that the browser has made for this challenge; None for what is none. Raises StoreError LIMIT."""
    if len(access.keys) >= MOST_KEYS:
        raise StoreError(Problem.LIMIT, f"There are {MOST_KEYS} security keys: remove some")
    try:
        found = webauthn.verify_registration_response(
            credential=_parsed(sent), expected_challenge=challenge, expected_rp_id=rp_id, expected_origin=origin)
    except _NO_PROOF:
        return None
    made = SecurityKey(bytes_to_base64url(found.credential_id), name, bytes_to_base64url(found.credential_public_key),
                       int(now), found.sign_count)
    return None if any(each.id == made.id for each in access.keys) else evolve(access, keys=(*access.keys, made))


def wanted_to_log_in(access: Access, rp_id: str, challenge: bytes) -> dict[str, Any]:
    """What navigator.credentials.get is given."""
    made = webauthn.generate_authentication_options(
        rp_id=rp_id, challenge=challenge, allow_credentials=_known(access),
        user_verification=UserVerificationRequirement.DISCOURAGED)      # the password is the other factor
    found: dict[str, Any] = json.loads(webauthn.options_to_json(made))
    return found


def shown(access: Access, sent: str, *, challenge: bytes, rp_id: str, origin: str, now: float) -> Access | None:
    """After a key of the user's has signed the challenge; None for what is no proof. A count of signatures that does
    not grow says that the key has been copied (WebAuthn §6.1.1): that is none."""
    try:
        credential = _parsed(sent)
        key = next(each for each in access.keys if each.id == credential["id"])
        found = webauthn.verify_authentication_response(
            credential=dict(credential), expected_challenge=challenge, expected_rp_id=rp_id, expected_origin=origin,
            credential_public_key=base64url_to_bytes(key.public_key), credential_current_sign_count=key.count)
    except (*_NO_PROOF, StopIteration):
        return None
    used = evolve(key, count=found.new_sign_count, used=int(now))
    return evolve(access, keys=tuple(used if each is key else each for each in access.keys))


def _known(access: Access) -> list[PublicKeyCredentialDescriptor]:
    return [PublicKeyCredentialDescriptor(id=base64url_to_bytes(each.id)) for each in access.keys]


def _parsed(sent: str) -> dict[str, Any]:
    """Raises ValueError."""
    found = json.loads(sent) if len(sent) <= LONGEST else None
    if not isinstance(found, Mapping):
        raise ValueError("no credential")
    return dict(found)
