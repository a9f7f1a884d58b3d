"""LoRA adapters as models of their own, loaded and unloaded over HTTP."""

import pytest
from async_harness import endless
from fake_adapters import FakeLoader
from server_harness import serving

from octavo.engine.adapters import AdapterRegistry
from octavo.lora_request import LoRARequest
from octavo.server.config import ServerConfig


@pytest.fixture
def server():
    with serving(endless, config=ServerConfig(lora_endpoints=True)) as server:
        server.fake.engine.adapters = AdapterRegistry(FakeLoader(), max_loras=2)
        yield server


def load(server, name, path):
    return server.post("/v1/load_lora_adapter", lora_name=name, lora_path=path)


def test_an_adapter_comes_answers_and_goes(server):
    assert load(server, "style", "folder/of/style").json() == {"loaded": ["style"]}
    cards = {card["id"]: card for card in server.client.get("/v1/models").json()["data"]}
    assert list(cards) == ["byte-model", "alias", "style"]
    assert (cards["style"]["parent"], cards["style"]["root"]) == ("byte-model", "style")
    assert cards["alias"]["parent"] is None
    assert server.client.get("/v1/models/style").json() == cards["style"]
    answer = server.complete(model="style", max_tokens=3).json()
    assert (answer["model"], len(answer["choices"])) == ("style", 1)
    assert server.chat(model="style", max_tokens=3).json()["model"] == "style"
    assert server.complete(max_tokens=3).json()["model"] == "byte-model"
    server.until_idle()
    assert server.post("/v1/unload_lora_adapter", lora_name="style").json() == {"loaded": []}
    refused = server.complete(model="style")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")


def test_requests_with_and_without_an_adapter_share_no_prefix(server):
    load(server, "style", "s")
    prompt = "x" * 40
    cached = []
    for model in ("byte-model", "style", "byte-model", "style"):
        usage = server.complete(prompt, model=model, max_tokens=1).json()["usage"]
        cached.append((usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) > 0)
    assert cached == [False, False, True, True]


@pytest.mark.parametrize(
    ("path", "body", "status", "expected"),
    [
        ("load", {"lora_name": "x", "lora_path": "bad"}, 400, "bad: does not fit"),
        ("load", {"lora_name": "alias", "lora_path": "a"}, 400, "'alias' is the model's own name"),
        ("load", {"lora_name": "x", "lora_path": ""}, 400, "lora_path is empty"),
        ("load", {"lora_name": "", "lora_path": "a"}, 400, "lora_name must be 1 to 256"),
        ("load", {"lora_name": "x"}, 400, "lora_path is missing"),
        ("load", {"lora_name": "taken", "lora_path": "b"}, 400, "'taken' was loaded from a, not from b"),
        ("unload", {"lora_name": "x"}, 400, "there is no adapter 'x'; loaded are: 'taken'"),
    ],
)
def test_what_cannot_be_is_one_clear_error(server, path, body, status, expected):
    load(server, "taken", "a")
    response = server.post(f"/v1/{path}_lora_adapter", **body)
    assert response.status_code == status
    assert expected in response.json()["error"]["message"]


def test_too_many_adapters_are_refused_for_now(server):
    for name in ("a", "b", "c"):
        response = load(server, name, name)
    assert response.status_code == 503
    assert "max_loras is 2; unload one" in response.json()["error"]["message"]


def test_clients_load_nothing_unless_the_server_says_so():
    with serving(endless) as server:
        server.fake.engine.adapters = AdapterRegistry(FakeLoader(), max_loras=2)
        server.fake.engine.add_lora(LoRARequest("style", lora_path="s"))
        for path in ("load", "unload"):
            response = server.post(f"/v1/{path}_lora_adapter", lora_name="style", lora_path="s")
            assert response.status_code == 403
            assert "start the server with --lora-endpoints" in response.json()["error"]["message"]
        assert server.complete(model="style", max_tokens=1).status_code == 200
