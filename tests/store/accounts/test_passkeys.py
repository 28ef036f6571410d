"""Security keys: what one has signed for this page and this challenge is taken, and nothing else."""

import json

import pytest
from attrs import evolve

from store.accounts.apppasswords import passkeys
from store.accounts.apppasswords.accessrecord import MOST_KEYS, Access
from store.errors import Problem, StoreError
from tests.support.clients.securitykey import PRESENT, SecurityKey

HERE = {"rp_id": "mail.example.org", "origin": "https://mail.example.org:8443"}
NOW = 1_800_000_000
NOTHING = Access("alice")
ONE, TWO = b"1" * 32, b"2" * 32


@pytest.fixture
def key():
    return SecurityKey(HERE["origin"])


def register(key, access=NOTHING, challenge=ONE, **where):
    sent = key.create(passkeys.wanted_to_register(access, HERE["rp_id"], ONE))
    return passkeys.registered(access, "blue", sent, challenge=challenge, now=NOW, **{**HERE, **where})


def show(key, access, challenge=TWO, sent=None, **where):
    sent = sent or key.get(passkeys.wanted_to_log_in(access, HERE["rp_id"], TWO))
    return passkeys.shown(access, sent, challenge=challenge, now=NOW + 9, **{**HERE, **where})


def test_a_key_is_registered_and_then_opens(key):
    access = register(key)
    assert access.has_second_factor and (access.keys[0].name, access.keys[0].created) == ("blue", NOW)
    assert Access.from_bytes(access.to_bytes()) == access
    wanted = passkeys.wanted_to_log_in(access, HERE["rp_id"], TWO)
    assert [each["id"] for each in wanted["allowCredentials"]] == [access.keys[0].id]
    after = show(key, access)
    assert (after.keys[0].count, after.keys[0].used) == (1, NOW + 9)


@pytest.mark.parametrize("wrong", [{"challenge": b"3" * 32}, {"rp_id": "evil.example"},
                                   {"origin": "https://mail.example.org"}, {"origin": "http://mail.example.org:8443"}])
def test_what_was_for_another_challenge_or_page_is_none(key, wrong):
    """Phishing: a page of others cannot pass on what a key has signed for it."""
    assert register(key, **wrong) is None
    access = register(key)
    assert show(key, access, **wrong) is None


def test_another_key_is_none(key):
    access, other = register(key), SecurityKey(HERE["origin"])
    assert show(other, access) is None
    other.id = key.id                       # with the name of the right one
    assert show(other, access) is None


def test_a_key_that_was_copied_is_found(key):
    access = show(key, show(key, register(key)))
    key.count = 0
    assert show(key, access) is None
    key.count = 1
    assert show(key, access) is None        # 2 has been seen
    assert show(key, access) is not None


def test_a_proof_is_taken_once(key):
    access = register(key)
    sent = key.get(passkeys.wanted_to_log_in(access, HERE["rp_id"], TWO))
    after = show(key, access, sent=sent)
    assert after is not None and show(key, after, sent=sent) is None


def test_nobody_has_touched_it(key):
    access = register(key)
    key.flags = 0
    assert register(key) is None and show(key, access) is None
    key.flags = PRESENT
    assert show(key, access) is not None


def test_the_same_key_is_not_registered_twice_and_there_is_a_limit(key):
    access = register(key)
    wanted = passkeys.wanted_to_register(access, HERE["rp_id"], ONE)
    assert [each["id"] for each in wanted["excludeCredentials"]] == [access.keys[0].id]
    assert register(key, access) is None
    full = evolve(access, keys=tuple(evolve(access.keys[0], id=f"{number:043}") for number in range(MOST_KEYS)))
    with pytest.raises(StoreError) as refused:
        register(SecurityKey(HERE["origin"]), full)
    assert refused.value.problem is Problem.LIMIT


def test_junk_is_none(key):
    access = register(key)
    good = json.loads(key.get(passkeys.wanted_to_log_in(access, HERE["rp_id"], TWO)))
    texts = ["", "x", "[]", "null", "1", "{}", '{"id": 1}', "[" * 50_000, "x" * 100_000]
    for name in ("clientDataJSON", "authenticatorData", "signature"):
        for value in (None, "", 1, "AA", "x" * 1000):
            texts.append(json.dumps({**good, "response": {**good["response"], name: value}}))
    for sent in texts:
        assert show(key, access, sent=sent or " ") is None, sent[:100]
        assert passkeys.registered(access, "x", sent, challenge=ONE, now=NOW, **HERE) is None, sent[:100]
