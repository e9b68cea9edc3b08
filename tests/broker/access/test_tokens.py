"""Keys and tokens: which ones the endpoint accepts, and that it never reveals a secret. SPEC section 1.5."""

from __future__ import annotations

import json
import logging
import re
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from jwt.algorithms import HMACAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.utils import base64url_encode

from ingeborg.broker.access.claims import CLAIM, PERMISSIONS, TokenError
from ingeborg.broker.access.tokens import KEYS_MAX, LEEWAY_S, Keys, make_token, new_keys, read_keys
from ingeborg.broker.command.config import ConfigError
from ingeborg.broker.core.connections.grants import Grant

NOW = 1_800_000_000.0
SECRET = b"0123456789abcdef0123456789abcdef"
RSA = rsa.generate_private_key(65_537, 2_048)
ED = ed25519.Ed25519PrivateKey.generate()


def jwk(key: Any, **fields: Any) -> dict[str, Any]:
    if isinstance(key, bytes):
        made = HMACAlgorithm.to_jwk(key, as_dict=True)
    elif isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey):
        made = RSAAlgorithm.to_jwk(key, as_dict=True)
    else:
        made = OKPAlgorithm.to_jwk(key, as_dict=True)
    made.pop("key_ops", None)
    return {**made, **fields}


def write(path: Path, *keys: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"keys": keys}), encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(
        tmp_path / "keys.json",
        jwk(SECRET, kid="mac", alg="HS256"),
        jwk(RSA.public_key(), kid="rsa", alg="RS256"),
        jwk(ED.public_key(), kid="ed"),
    )


@pytest.fixture
def keys(file: Path) -> Keys:
    return Keys(file, clock=lambda: NOW)


def token(key: Any = SECRET, algorithm: str = "HS256", kid: str | None = "mac", **claims: Any) -> str:
    body = {"sub": "anna", "exp": NOW + 60, **claims}
    return jwt.encode(
        {name: value for name, value in body.items() if value is not None},
        key,
        algorithm=algorithm,
        headers=None if kid is None else {"kid": kid},
    )


def permitting(claim: Any) -> str:
    """Return a good token with this `ingeborg` claim."""
    claims: dict[str, Any] = {CLAIM: claim}
    return token(**claims)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (SECRET, "HS256", "mac"),
        (RSA, "RS256", "rsa"),
        (ED, "EdDSA", "ed"),
        (SECRET, "HS256", None),
        (ED, "EdDSA", None),
    ],
)
def test_a_token_of_each_algorithm_says_what_it_permits(keys: Keys, key: Any, algorithm: str, kid: str | None) -> None:
    made = token(
        key,
        algorithm,
        kid,
        **{CLAIM: {"publish": ["news/"], "subscribe": ["", "x"], "broadcast": True, "inspect": True}},
    )
    assert keys.grant(made) == Grant("anna", ("news/",), ("", "x"), True, NOW + 60 + LEEWAY_S, True)


def test_what_a_token_does_not_name_it_does_not_permit(keys: Keys) -> None:
    assert keys.grant(token()) == Grant("anna", (), (), False, NOW + 60 + LEEWAY_S)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("", "not a JWT"),
        ("a.b.c", "not a JWT"),
        ("x" * 9_000, "too long"),
        (base64url_encode(b"[" * 5_000).decode() + ".e30.", "not a JWT"),
        (base64url_encode(b'{"alg": ["HS256"]}').decode() + ".e30.", "algorithm"),
        (base64url_encode(b'{"alg": "HS256", "kid": {}}').decode() + ".e30.", "not a JWT"),
        (token(kid="other"), "this endpoint has no key"),
        (token(2 * SECRET, "HS512"), "algorithm"),
        (jwt.encode({"sub": "anna", "exp": NOW + 60}, "", algorithm="none"), "algorithm"),
        (token(SECRET, "HS256", "rsa"), "this endpoint has no key"),  # the public RSA key used as a secret
        (token(b"another secret of thirty-two bytes"), "signature"),
        (token()[:-4] + "AAAA", "signature"),
        (token(sub=None), "sub"),
        (token(sub=""), "sub"),
        (token(sub=7), "ubject"),
        (token(exp=None), "exp"),
        (token(exp=NOW - LEEWAY_S), "expired"),
        (token(exp=float("inf")), "Unix times"),
        (token(exp="tomorrow"), "Unix times"),
        (token(exp=True), "Unix times"),
        (token(nbf=NOW + LEEWAY_S + 1), "not valid yet"),
        (permitting([]), "object"),
        (permitting({"publsh": ["a"]}), "not 'publsh'"),
        (permitting({"publish": "a"}), "list"),
        (permitting({"subscribe": [1]}), "list"),
        (permitting({"subscribe_topics": "order/4"}), "list of topic names"),
        (permitting({"publish_topics": [["order/4"]]}), "list of topic names"),
        (permitting({"subscribe": {"exact": ["order/4"]}}), "list of topic prefixes"),
        (permitting({"publish": ["user/{sub}"]}), "^ingeborg.publish: a prefix that ends in {sub} .*; write {sub}/"),
        (permitting({"subscribe": ["a", "{sub}"]}), "^ingeborg.subscribe: a prefix that ends in {sub} "),
        (permitting({"subscribe_topics": ["{sub}{sub}"]}), "^ingeborg.subscribe_topics: two {sub} in a row "),
        (permitting({"broadcast": 1}), "true or false"),
        (permitting({"inspect": "yes"}), "true or false"),
    ],
)
def test_what_is_not_accepted(keys: Keys, made: str, why: str) -> None:
    with pytest.raises(TokenError, match=why) as refusal:
        keys.grant(made)
    assert not made or made[:20] not in str(refusal.value)


def test_single_topics_stand_beside_prefixes(keys: Keys) -> None:
    grant = keys.grant(
        permitting({"publish": ["a/"], "publish_topics": ["b", "c", "b"], "subscribe_topics": ["order/4"]})
    )
    assert (grant.publish, grant.publish_topics) == (("a/",), frozenset({"b", "c"}))
    assert (grant.subscribe, grant.subscribe_topics) == ((), frozenset({"order/4"}))


def test_the_client_s_own_id_is_filled_when_the_token_is_read(file: Path, keys: Keys) -> None:
    own: dict[str, Any] = {"subscribe": ["user/{sub}/"], "publish_topics": ["user/{sub}/inbox", "{sub}"]}
    made = [permitting(own), make_token(file, "anna", **own, clock=lambda: NOW)]
    for grant in map(keys.grant, made):
        assert grant.subscribe == ("user/anna/",)
        assert grant.publish_topics == {"user/anna/inbox", "anna"}
        assert grant.own is None
    gateway = keys.grant(make_token(file, "gw-*", **own, clock=lambda: NOW))
    assert gateway.own is not None
    assert (gateway.subscribe, gateway.publish_topics) == ((), frozenset())


@pytest.mark.parametrize(
    ("permission", "entry", "why"),
    [
        ("publish", "user/{sub}", "a prefix that ends in {sub} "),
        ("subscribe", "{sub}", "a prefix that ends in {sub} "),
        ("subscribe", "{sub}{sub}/", "two {sub} in a row "),
        ("publish_topics", "{sub}{sub}", "two {sub} in a row "),
        ("presence", "room/{sub}", "a prefix that ends in {sub} "),
        ("presence_topics", "{sub}{sub}", "two {sub} in a row "),
    ],
)
def test_no_token_is_made_whose_entries_an_endpoint_would_not_accept(
    file: Path, permission: str, entry: str, why: str
) -> None:
    permissions: dict[str, Any] = {permission: [entry]}
    with pytest.raises(ConfigError, match=f"ingeborg.{permission}: {re.escape(why)}"):
        make_token(file, "anna", **permissions)


@pytest.mark.parametrize(
    ("client", "options", "why"),
    [
        ("", {}, "CLIENT has to be a client id of 1 to 128 bytes"),
        ("é" * 65, {}, "CLIENT has to be a client id"),
        ("a" * 129 + "*", {}, "CLIENT has to be a client id"),
        ("\udcff", {}, "CLIENT has to be a client id"),
        ("anna", {"lifetime_s": 10**13}, "it would expire in 316,881 years"),
        ("anna", {"subscribe_topics": [f"topic {number}" for number in range(1000)]}, "more than 8192"),
        ("anna", {"jti": "j" * 129}, "jti has to be a string of 1 to 128 bytes"),
    ],
)
def test_no_token_is_made_that_no_endpoint_would_accept(
    file: Path, client: str, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        make_token(file, client, **options)


def test_every_token_that_is_made_is_accepted(file: Path, keys: Keys) -> None:
    for client in ("a", "é" * 64, "a" * 128 + "*", "*"):
        assert keys.grant(make_token(file, client, lifetime_s=10**11, clock=lambda: NOW)).client == client


def test_a_token_made_without_single_topics_is_one_of_before(file: Path, keys: Keys) -> None:
    """Earlier endpoints refuse a claim with single topics, and accept all others."""
    made = [make_token(file, "anna", subscribe=["order/"]), make_token(file, "anna", subscribe_topics=["order/4"])]
    claims = [jwt.decode(each, options={"verify_signature": False})[CLAIM] for each in made]
    assert claims[0] == {"publish": [], "subscribe": ["order/"], "broadcast": False, "inspect": False}
    assert claims[1] == {**claims[0], "subscribe": [], "subscribe_topics": ["order/4"]}


def test_a_token_may_permit_to_ask_who_has_subscribed(file: Path, keys: Keys) -> None:
    grant = keys.grant(make_token(file, "anna", presence=["room/"], presence_topics=["hall"], clock=lambda: NOW))
    assert grant.presence == ("room/",)
    assert grant.presence_topics == {"hall"}


@pytest.mark.parametrize("topic", ["", "a\nb", "x" * 1025, "\ud800"])
def test_a_token_names_no_topic_that_cannot_be(file: Path, topic: str) -> None:
    with pytest.raises(ConfigError, match=r"^topic '.*': "):
        make_token(file, "anna", publish_topics=[topic])


@pytest.mark.parametrize(
    "claims",
    [
        {"iat": "tomorrow"},
        {"iat": True},
        {"iat": -1},
        {"iat": 1e300},
        {"iat": None, "aud": ["others"], "iss": "x"},
        {"aud": {}, "azp": "x", "scope": "all"},
    ],
)
def test_other_claims_are_not_looked_at(keys: Keys, claims: dict[str, Any]) -> None:
    body = {"sub": "anna", "exp": NOW + 60, **claims}
    assert keys.grant(jwt.encode(body, SECRET, algorithm="HS256", headers={"kid": "mac"})) == keys.grant(token())


@pytest.mark.parametrize("iat", [0, NOW - 60, NOW + 86_400, NOW + 0.5])
def test_when_it_was_issued_is_known_and_no_reason_to_refuse_it(keys: Keys, iat: float) -> None:
    body = {"sub": "anna", "exp": NOW + 60, "iat": iat}
    grant = keys.grant(jwt.encode(body, SECRET, algorithm="HS256", headers={"kid": "mac"}))
    assert grant == keys.grant(token())._replace(issued_at=iat)


def test_its_id_is_known_and_one_that_could_not_be_revoked_is_not_accepted(keys: Keys) -> None:
    def grant(jti: Any) -> Grant:
        body = {"sub": "anna", "exp": NOW + 60, "jti": jti}
        return keys.grant(jwt.encode(body, SECRET, algorithm="HS256", headers={"kid": "mac"}))

    for jti in ("x", "é" * 64):
        assert grant(jti).jti == jti
    for none in (7, None, "", "x" * 129, "é" * 65, ["x"], True):
        with pytest.raises(TokenError, match="jti has to be a string of 1 to 128 bytes"):
            grant(none)


def test_a_token_that_is_made_can_be_revoked_by_an_id_of_its_own(file: Path) -> None:
    made = [make_token(file, "anna", clock=lambda: NOW) for _ in range(2)]
    grants = [Keys(file, clock=lambda: NOW).grant(each) for each in made]
    assert len({grant.jti for grant in grants}) == 2
    assert {grant.issued_at for grant in grants} == {NOW}
    given = Keys(file, clock=lambda: NOW).grant(make_token(file, "anna", jti="mine", revoke=True, clock=lambda: NOW))
    assert (given.jti, given.revoke) == ("mine", True)
    for bad in ("", "x" * 129):
        with pytest.raises(ConfigError, match="jti has to be a string of 1 to 128 bytes"):
            make_token(file, "anna", jti=bad)


def test_the_specification_names_every_permission() -> None:
    spec = (Path(__file__).parents[3] / "protocol" / "SPEC.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| `ingeborg` \| (.*) \|$", spec, re.MULTILINE)
    assert set(re.findall(r"`([a-z_]+)`", row)) == set(PERMISSIONS)
    (row,) = re.findall(r"^\| others \| (.*) \|$", spec, re.MULTILINE)
    assert set(re.findall(r"`([a-z_]+)`", row)) == {"iss", "aud"}
    assert LEEWAY_S == 10
    assert "before which the token is not valid, with ten seconds of leeway" in spec


def test_clocks_may_differ_a_little(keys: Keys) -> None:
    assert keys.grant(token(exp=NOW - LEEWAY_S + 1, nbf=NOW + LEEWAY_S)).expires_at == NOW + 1


def test_without_a_kid_all_keys_of_the_algorithm_are_tried(tmp_path: Path) -> None:
    old = b"an older secret of thirty-two bytes"
    keys = Keys(write(tmp_path / "keys", jwk(SECRET), jwk(old)), clock=lambda: NOW)
    assert keys.grant(token(old, kid=None)) == keys.grant(token(SECRET, kid=None))


def test_keys_are_rotated_without_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    new = b"a newer secret of thirty-two bytes!"
    path = write(tmp_path / "keys", jwk(SECRET, kid="old"))
    keys = Keys(path, clock=lambda: NOW, monotonic=lambda: now)
    made = {"old": token(SECRET, kid="old"), "new": token(new, kid="new")}
    keys.grant(made["old"])

    write(path, jwk(SECRET, kid="old"), jwk(new, kid="new"))
    now += 2.0
    keys.grant(made["old"])
    keys.grant(made["new"])

    path.write_text("half a file", encoding="utf-8")
    now += 2.0
    with caplog.at_level(logging.ERROR):
        keys.grant(made["new"])
    assert "keeps the keys that it has" in caplog.text
    path.unlink()
    now += 2.0
    keys.grant(made["new"])

    write(path, jwk(new, kid="new"))
    now += 2.0
    keys.grant(made["new"])
    with pytest.raises(TokenError, match="this endpoint has no key"):
        keys.grant(made["old"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "JSON"),
        ("[]", "JWK set"),
        ('{"keys": []}', "JWK set"),
        ('{"keys": [1]}', "key 1"),
        ('{"keys": [{"kty": "oct"}]}', "key 1"),
        (json.dumps({"keys": [jwk(SECRET), jwk(b"too short")]}), "key 2 has to have at least 32 bytes"),
        (json.dumps({"keys": [jwk(SECRET, alg="HS512")]}), "HS512"),
        (json.dumps({"keys": [jwk(SECRET, kid="a"), jwk(ED, kid="a")]}), "same kid"),
        (json.dumps({"keys": [jwk(SECRET)] * (KEYS_MAX + 1)}), "1 to 16"),
    ],
)
def test_a_file_that_cannot_be_used_says_why_and_shows_no_key(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=why) as error:
        Keys(path)
    assert jwk(SECRET)["k"] not in str(error.value)


def test_short_rsa_keys_are_refused(tmp_path: Path) -> None:
    weak = rsa.generate_private_key(65_537, 1_024)
    with pytest.raises(ConfigError, match="2048 bits"):
        read_keys(write(tmp_path / "keys", jwk(weak.public_key())))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Keys(tmp_path / "none")


# Making them


def test_new_keys_are_the_owner_s_only_and_never_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    kid = new_keys(path)
    assert path.stat().st_mode & 0o777 == 0o600
    made = make_token(path, "gw/*", publish=["a"], subscribe=[""], broadcast=True, lifetime_s=60)
    assert jwt.get_unverified_header(made)["kid"] == kid
    grant = Keys(path).grant(made)
    assert grant[:4] == ("gw/*", ("a",), ("",), True)
    assert 50 < grant.expires_at - time.time() <= 60 + LEEWAY_S
    with pytest.raises(ConfigError, match="File exists"):
        new_keys(path)


@pytest.mark.parametrize(("private", "kid"), [(RSA, "rsa"), (ED, "ed")])
def test_private_keys_sign_and_check(tmp_path: Path, private: Any, kid: str) -> None:
    path = write(tmp_path / "keys", jwk(ED.public_key(), kid="public"), jwk(private, kid=kid))
    assert Keys(path).grant(make_token(path, "anna", kid=kid)).client == "anna"
    assert Keys(path).grant(make_token(path, "anna")).client == "anna"  # the first that can sign


def test_public_keys_cannot_sign(tmp_path: Path) -> None:
    path = write(tmp_path / "keys", jwk(RSA.public_key()))
    with pytest.raises(ConfigError, match="no key can sign"):
        make_token(path, "anna")
    with pytest.raises(ConfigError, match="no key with the id x can sign"):
        make_token(path, "anna", kid="x")
