"""Models, tokens, health and the cache, over a socket."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from async_harness import PATIENCE_S, LateGate, endless, spell
from engine_fakes import piece
from server_harness import MODEL, connect, serving, wait_until

import octavo
from octavo.server.config import ServerConfig


@pytest.fixture(scope="module")
def server():
    with serving(spell("fine")) as served:
        yield served


def test_models_are_listed_under_all_their_names(server):
    models = server.client.get("/v1/models").json()
    assert [card["id"] for card in models["data"]] == list(MODEL.names)
    assert server.client.get("/v1/models/alias").json() == models["data"][1]
    assert models["data"][0]["max_model_len"] == server.engine.max_num_tokens == 200


def test_tokenize_and_detokenize_are_inverse(server):
    text = "Grüße, 日本\n"
    tokens = server.post("/tokenize", prompt=text, return_token_strs=True).json()
    assert tokens["count"] == len(tokens["tokens"]) == len(text.encode())
    assert tokens["token_strs"][:3] == ["G", "r", "bytes:\\xc3"]
    assert tokens["max_model_len"] == 200
    assert server.post("/detokenize", tokens=tokens["tokens"]).json() == {"prompt": text}
    assert server.post("/detokenize", tokens=[piece("<turn>")]).json() == {"prompt": "<turn>"}


def test_a_conversation_can_end_in_the_middle(server):
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "So"}]
    options = {"add_generation_prompt": False, "continue_final_message": True}
    tokens = server.post("/tokenize", messages=messages, **options).json()["tokens"]
    assert bytes(tokens).endswith(b"assistant: So")


def test_probes(server):
    assert server.client.get("/health").json() == {"status": "ready", "stall": None}
    assert server.client.get("/ready").json() == {"status": "ready"}
    assert server.client.get("/version").json() == {"version": octavo.__version__}


def test_the_schema_names_every_path_and_one_shape_of_errors(server):
    schema = server.client.get("/openapi.json").json()
    assert {"/v1/chat/completions", "/v1/completions", "/v1/models", "/tokenize"} <= set(schema["paths"])
    posts = [operation["post"] for operation in schema["paths"].values() if "post" in operation]
    assert posts
    for operation in posts:
        assert "422" not in operation["responses"]
        assert "ErrorResponse" in str(operation["responses"]["4XX"])


def test_the_prefix_cache_is_forgotten(server):
    prompt = "a prompt that is long enough"

    def num_cached():
        usage = server.complete(prompt, max_tokens=1).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    num_cached()
    assert num_cached() > 0
    assert server.client.post("/reset_prefix_cache").json() == {"reset": True}
    assert num_cached() == 0


def test_the_prefix_cache_stays_while_it_is_in_use():
    gate = LateGate()
    with serving(gate) as server:
        connection = connect(server, "/v1/completions", prompt="x", max_tokens=9)
        assert gate.entered.wait(PATIENCE_S)
        with ThreadPoolExecutor(1) as others:
            refused = others.submit(server.client.post, "/reset_prefix_cache")
            wait_until(lambda: server.engine._thread._calls)
            gate.opened.set()
            assert refused.result(PATIENCE_S).status_code == 409
        connection.close()


@pytest.mark.parametrize(("keys", "status"), [(("ann",), 200), (("ann", "bob"), 403)])
def test_one_key_of_several_cannot_clear_the_cache_of_the_others(keys, status):
    with serving(endless, config=ServerConfig(api_key=keys)) as guarded:
        response = guarded.client.post("/reset_prefix_cache", headers={"Authorization": "Bearer ann"})
    assert response.status_code == status


def test_cached_tokens_are_told_by_both_endpoints_streamed_or_not():
    def cached(usage):
        return usage["prompt_tokens_details"]["cached_tokens"]

    with serving(endless) as server:
        options = {"max_tokens": 2, "stream_options": {"include_usage": True}}
        messages = [{"role": "user", "content": "a prompt of several blocks"}]
        for path, body in (
            ("/v1/completions", {"prompt": "another prompt of several blocks"}),
            ("/v1/chat/completions", {"messages": messages}),
        ):
            cold = server.post(path, max_tokens=2, **body).json()["usage"]
            warm = server.post(path, max_tokens=2, **body).json()["usage"]
            streamed = server.events(path, **options, **body)[-2]["usage"]
            assert cached(cold) == 0
            assert cached(warm) == cached(streamed) > 0
            assert warm == streamed
