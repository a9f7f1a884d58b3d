"""``/v1/embeddings`` over a socket, with a real model."""

import base64
import struct

import httpx
import pytest

from octavo.server.protocol.embedding import EmbeddingList, EmbeddingRequest


def embed(server, **body):
    return httpx.post(server[0] + "/v1/embeddings", json=body, timeout=60)


def test_texts_and_tokens_give_the_same_vectors_in_their_order(tiny_server):
    tokens = httpx.post(tiny_server[0] + "/tokenize", json={"prompt": "the cat"}).json()["tokens"]
    texts = EmbeddingList.model_validate(embed(tiny_server, input=["the cat", "a"]).json())
    [alone] = embed(tiny_server, input=tokens).json()["data"]
    assert [item.index for item in texts.data] == [0, 1]
    assert texts.data[0].embedding == alone["embedding"]
    assert texts.data[1].embedding != alone["embedding"]
    assert texts.usage.prompt_tokens == texts.usage.total_tokens > len(tokens)


def test_base64_holds_the_same_numbers(tiny_server):
    [floats] = embed(tiny_server, input="the cat").json()["data"]
    [packed] = embed(tiny_server, input="the cat", encoding_format="base64").json()["data"]
    data = base64.b64decode(packed["embedding"])
    assert list(struct.unpack(f"<{len(data) // 4}f", data)) == floats["embedding"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": ""}, None),
        ({"input": []}, "input"),
        ({"input": [[1], ["x"]]}, "input"),
        ({"input": [10**9]}, None),
        ({"input": "x " * 2000}, None),
        ({"input": "x", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "x", "dimensions": 7}, "dimensions"),
        ({"input": "x", "model": "other"}, "model"),
    ],
)
def test_wrong_input_is_refused(tiny_server, body, param):
    answer = embed(tiny_server, **body)
    assert 400 <= answer.status_code < 500, answer.text
    if param is not None:
        assert answer.json()["error"]["param"] == param


def test_null_is_as_good_as_left_out(tiny_server):
    nulls = {name: None for name in EmbeddingRequest.model_fields if name != "input"}
    assert (
        embed(tiny_server, input="the cat", **nulls).json()["data"]
        == embed(tiny_server, input="the cat").json()["data"]
    )


def test_nothing_is_left(tiny_server):
    _, _, built = tiny_server
    assert embed(tiny_server, input=["a", "b"]).status_code == 200
    assert built.kv.num_free_blocks == built.kv.num_blocks
