"""API keys: who may ask, and that no key sees another's prefixes."""

import pytest
from async_harness import endless, spell
from server_harness import serving

from octavo.errors import ConfigError
from octavo.server.auth import ANYBODY, KeyRing
from octavo.server.config import ServerConfig

TWO_KEYS = ServerConfig(api_key=("ann", "bob"))
PROMPT = "a long prompt with several blocks"


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def guarded():
    with serving(endless, config=TWO_KEYS) as server:
        yield server


@pytest.mark.parametrize("value", [None, "Bearer eve", "Bearer", "Bearer ann,bob", "Basic ann", "ann"])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/models", "/tokenize", "/reset_prefix_cache", "/x"])
def test_nothing_without_a_valid_key(guarded, value, path):
    method = "GET" if path == "/v1/models" else "POST"
    headers = {} if value is None else {"Authorization": value}
    response = guarded.client.request(method, path, headers=headers, content=b"no JSON at all")
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/health", "/ready", "/version", "/openapi.json", "/docs"])
def test_probes_and_documentation_need_no_key(guarded, path):
    assert guarded.client.get(path).status_code == 200


def num_cached(server, key, **body):
    response = server.client.post(
        "/v1/completions", json={"prompt": PROMPT, "max_tokens": 1, **body}, headers=bearer(key)
    )
    return response.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_keys_share_prefixes_with_themselves_only():
    with serving(spell("x"), config=TWO_KEYS) as server:
        assert num_cached(server, "ann") == 0
        assert num_cached(server, "bob") == 0
        assert num_cached(server, "ann") == num_cached(server, "bob") == 32


def test_a_salt_keeps_apart_within_a_key_and_reaches_no_other():
    with serving(spell("x"), config=TWO_KEYS) as server:
        assert num_cached(server, "ann", cache_salt="s") == 0
        assert num_cached(server, "ann") == 0
        assert num_cached(server, "bob", cache_salt="s") == 0
        assert num_cached(server, "ann", cache_salt="s") == 32


def test_salts_are_told_apart_whatever_a_client_sends():
    keys = KeyRing(("ann", "bob"), b"secret")
    ann, bob = keys.tenant("Bearer ann"), keys.tenant("Bearer bob")
    asked = [None, "s", f"{ann.salt}", f"{bob.salt}/s", f"{ann.salt}/s", "/", "s/s"]
    salts = [tenant.cache_salt(each) for tenant in (ann, bob) for each in asked]
    assert len(set(salts)) == len(salts)
    assert ann.cache_salt("") == "", "the engine refuses an empty salt"


def test_salts_depend_on_the_secret_and_are_stable_with_it():
    def salt(secret):
        return KeyRing(("ann",), secret).tenant("bearer ann").salt

    assert salt(b"one") == salt(b"one")
    assert len({salt(b"one"), salt(b"two"), salt(None), salt(None)}) == 4


def test_names_of_tenants_do_not_say_their_keys():
    tenant = KeyRing(("ann",), b"secret").tenant("Bearer ann")
    assert "ann" not in tenant.name
    assert tenant.salt not in tenant.name


def test_without_keys_everybody_may_ask_and_shares():
    assert KeyRing(()).tenant(None) is ANYBODY
    assert ANYBODY.cache_salt(None) is None
    assert ANYBODY.cache_salt("s") == "s"


@pytest.mark.parametrize("key", ["", "two words", "new\nline", "ключ"])
def test_keys_that_no_client_could_send_are_refused(key):
    with pytest.raises(ConfigError, match="api_key"):
        ServerConfig(api_key=(key,))


def test_a_configuration_does_not_show_its_secrets():
    shown = repr(ServerConfig(api_key=("key-of-ann",), cache_salt_secret="secret of salts"))
    assert "key-of-ann" not in shown
    assert "secret of salts" not in shown


def test_browsers_may_call_from_the_origins_that_are_named():
    config = ServerConfig(api_key=("ann",), cors_origin=("https://a.example",))
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    ours, other = {"Origin": "https://a.example"}, {"Origin": "https://b.example"}
    with serving(spell("x"), config=config) as server:
        allowed = server.client.options("/v1/completions", headers={**ours, **asked})
        refused = server.client.options("/v1/completions", headers={**other, **asked})
        assert allowed.headers["access-control-allow-origin"] == "https://a.example"
        assert "access-control-allow-origin" not in refused.headers
        answer = server.client.post(
            "/v1/completions", json={"prompt": "x"}, headers={**ours, **bearer("ann")}
        )
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
