"""Every error over a socket: the OpenAI API's shape, the field and the limit named, nothing else affected."""

import json

import pytest
from async_harness import endless, spell
from server_harness import serving

from octavo.errors import (
    ContextLengthError,
    DrainingError,
    EngineDeadError,
    EngineError,
    InvalidRequestError,
    InvariantError,
    QueueFullError,
    QueueShareError,
    QueueTimeoutError,
    UnsupportedFeatureError,
)
from octavo.server.config import ServerConfig
from octavo.server.errors import as_api_error
from octavo.server.protocol.chat import ChatCompletionRequest
from octavo.server.protocol.completion import CompletionRequest
from octavo.server.protocol.error import ErrorResponse
from octavo.server.protocol.token import TokenizeRequest

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "x"}]


def checked(response):
    """The error of a response, whose shape is the one shape."""
    return ErrorResponse.model_validate(response.json(), strict=True, extra="forbid").error


def nested(depth):
    value = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def tool(schema):
    return {"type": "function", "function": {"name": "f", "parameters": schema}}


DEEP = nested(400)
WRONG = [
    (COMPLETIONS, {}, "prompt"),
    (COMPLETIONS, {"prompt": ""}, "prompt"),
    (COMPLETIONS, {"prompt": []}, "prompt"),
    (COMPLETIONS, {"prompt": [[]]}, "prompt"),
    (COMPLETIONS, {"prompt": {"a": 1}}, "prompt"),
    (COMPLETIONS, {"prompt": ["a", 1]}, "prompt"),
    (COMPLETIONS, {"prompt": [1.5]}, "prompt"),
    (COMPLETIONS, {"prompt": [-1]}, "prompt_token_ids"),
    (COMPLETIONS, {"prompt": [10**400]}, "prompt_token_ids"),
    (COMPLETIONS, {"prompt": "x" * 200}, "prompt"),
    (COMPLETIONS, {"prompt": "x", "temperature": "hot"}, "temperature"),
    (COMPLETIONS, {"prompt": "x", "temperature": -1}, "temperature"),
    (COMPLETIONS, {"prompt": "x", "temperature": 10**400}, "temperature"),
    (COMPLETIONS, {"prompt": "x", "temperature": float("nan")}, "temperature"),
    (COMPLETIONS, {"prompt": "x", "temperature": float("inf")}, "temperature"),
    (COMPLETIONS, {"prompt": "x", "top_p": 0}, "top_p"),
    (COMPLETIONS, {"prompt": "x", "top_k": -2}, "top_k"),
    (COMPLETIONS, {"prompt": "x", "min_p": 2}, "min_p"),
    (COMPLETIONS, {"prompt": "x", "n": 0}, "n"),
    (COMPLETIONS, {"prompt": "x", "n": 129}, "n"),
    (COMPLETIONS, {"prompt": ["x"] * 9, "n": 128}, "n"),
    (COMPLETIONS, {"prompt": ["x"] * 1025}, "prompt"),
    (COMPLETIONS, {"prompt": "x", "n": True}, "n"),
    (COMPLETIONS, {"prompt": "x", "max_tokens": -5}, "max_tokens"),
    (COMPLETIONS, {"prompt": "x", "max_tokens": 10**400}, "max_tokens"),
    (COMPLETIONS, {"prompt": "x", "top_k": 10**400}, "top_k"),
    (COMPLETIONS, {"prompt": "x", "max_tokens": 3, "min_tokens": 4}, "min_tokens"),
    (COMPLETIONS, {"prompt": "x", "seed": 2**64}, "seed"),
    (COMPLETIONS, {"prompt": "x", "seed": "abc"}, "seed"),
    (COMPLETIONS, {"prompt": "x", "stop": ["a"] * 65}, "stop"),
    (COMPLETIONS, {"prompt": "x", "stop": [""]}, "stop"),
    (COMPLETIONS, {"prompt": "x", "stop": [1]}, "stop"),
    (COMPLETIONS, {"prompt": "x", "stop_token_ids": [9999]}, "stop_token_ids"),
    (COMPLETIONS, {"prompt": "x", "logit_bias": {"9999": 1}}, "logit_bias"),
    (COMPLETIONS, {"prompt": "x", "logit_bias": {"a": 1}}, "logit_bias"),
    (COMPLETIONS, {"prompt": "x", "logit_bias": {"1": 101}}, "logit_bias"),
    (COMPLETIONS, {"prompt": "x", "logit_bias": [1]}, "logit_bias"),
    (COMPLETIONS, {"prompt": "x", "logprobs": 21}, "logprobs"),
    (COMPLETIONS, {"prompt": "x", "prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    (COMPLETIONS, {"prompt": "x", "presence_penalty": 3}, "presence_penalty"),
    (COMPLETIONS, {"prompt": "x", "frequency_penalty": -3}, "frequency_penalty"),
    (COMPLETIONS, {"prompt": "x", "repetition_penalty": 0}, "repetition_penalty"),
    (COMPLETIONS, {"prompt": "x", "cache_salt": ""}, "cache_salt"),
    (COMPLETIONS, {"prompt": "x", "cache_salt": "a\n"}, "cache_salt"),
    (COMPLETIONS, {"prompt": "x", "priority": "high"}, "priority"),
    (COMPLETIONS, {"prompt": "x", "stream": "yes"}, "stream"),
    (COMPLETIONS, {"prompt": "x", "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    (COMPLETIONS, {"prompt": "x" * 2000}, "prompt"),
    (COMPLETIONS, {"prompt": [1] * 10_000}, "prompt"),
    (COMPLETIONS, {"prompt": "x", "stop": [1] * 10_000}, "stop"),
    (COMPLETIONS, {"prompt": "x", "cache_receipt": 1}, "cache_receipt"),
    (COMPLETIONS, [], None),
    (COMPLETIONS, "text", None),
    (CHAT, {}, "messages"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": "hello"}, "messages"),
    (CHAT, {"messages": [{"content": "x"}]}, "messages[0].role"),
    (CHAT, {"messages": [{"role": "user"}]}, "messages"),
    (CHAT, {"messages": [{"role": 1, "content": "x"}]}, "messages[0].role"),
    (CHAT, {"messages": [{"role": "user", "content": "x" * 2000}]}, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": [DEEP]}]}, "messages"),
    (CHAT, {"messages": MESSAGES, "tools": [tool(DEEP)]}, "messages"),
    (CHAT, {"messages": MESSAGES, "tools": [tool(nested(900))], "tool_choice": "required"}, "tools"),
    (CHAT, {"messages": MESSAGES, "temperature": DEEP}, "temperature"),
    (CHAT, {"messages": MESSAGES, "top_logprobs": 21, "logprobs": True}, "top_logprobs"),
    (CHAT, {"messages": MESSAGES, "top_logprobs": 2}, "top_logprobs"),
    (CHAT, {"messages": MESSAGES, "logprobs": 2}, "logprobs"),
    (CHAT, {"messages": MESSAGES, "continue_final_message": True}, "continue_final_message"),
    (CHAT, {"messages": MESSAGES, "chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs"),
    ("/tokenize", {}, "prompt"),
    ("/tokenize", {"prompt": "x" * 2000}, "prompt"),
    ("/v1/embeddings", {"input": "x" * 2000}, "input"),
    ("/v1/embeddings", {"input": ["x"] * 1025}, "prompt"),
    ("/tokenize", {"prompt": "x", "messages": MESSAGES}, "prompt"),
    ("/detokenize", {"tokens": [-1]}, "tokens"),
    ("/detokenize", {"tokens": [10**30]}, "tokens"),
    ("/detokenize", {"tokens": "x"}, "tokens"),
]  # fmt: skip


@pytest.fixture(scope="module")
def server():
    with serving(spell("fine")) as served:
        yield served


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body", "param"), WRONG)
def test_wrong_input_is_refused_with_the_field_named(server, path, body, param, stream):
    if stream and isinstance(body, dict):
        body = {"stream": True, **body}
    content = json.dumps(body).encode()  # httpx itself refuses NaN
    response = server.client.post(path, content=content, headers={"Content-Type": "application/json"})
    error = checked(response)
    assert response.status_code == 400, error
    assert error.param == param, error
    assert len(error.message) < 400
    server.until_idle()


@pytest.mark.parametrize(
    ("path", "model", "body"),
    [
        (COMPLETIONS, CompletionRequest, {"prompt": "x"}),
        (CHAT, ChatCompletionRequest, {"messages": MESSAGES}),
        ("/tokenize", TokenizeRequest, {"prompt": "x"}),
    ],
)
def test_null_is_as_good_as_left_out(server, path, model, body):
    nulls = {name: None for name in model.model_fields if name not in body}
    response = server.post(path, **nulls, **body)
    assert response.status_code == 200, response.text
    assert "x-octavo-warning" not in response.headers


def test_the_others_are_not_affected(server):
    assert server.complete().json()["choices"][0]["text"] == "fine"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"prompt": "\\ud800"}', "lone surrogate"),
        (b"[" * 100_000, "parsing the body"),
        (b'{"prompt": "x", "seed": ' + b"9" * 5000 + b"}", "parsing the body"),
        (b"", "a JSON object is missing"),
    ],
    ids=["unclosed", "no UTF-8", "half a surrogate pair", "deeply nested", "a very long number", "empty"],
)
def test_bodies_that_are_no_json_for_us_are_refused(server, content, words):
    response = server.client.post(COMPLETIONS, content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert words in checked(response).message


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1/models/other", 404, "model_not_found"),
        ("GET", COMPLETIONS, 405, "method_not_allowed"),
        ("DELETE", "/health", 405, "method_not_allowed"),
    ],
)
def test_unknown_places_and_methods(server, method, path, status, code):
    response = server.client.request(method, path)
    assert (response.status_code, checked(response).code) == (status, code)


def test_an_unknown_model_is_not_found(server):
    response = server.complete(model="gpt-4")
    assert response.status_code == 404
    assert checked(response).param == "model"
    assert "byte-model, alias" in checked(response).message
    assert server.complete(model="alias").status_code == 200


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_other_media_types_are_refused(server, content_type):
    headers = {} if content_type is None else {"Content-Type": content_type}
    response = server.client.post(COMPLETIONS, content=b'{"prompt": "x"}', headers=headers)
    assert (response.status_code, checked(response).code) == (415, "unsupported_media_type")


def test_a_body_that_is_too_large_is_refused_before_it_is_read():
    with serving(endless, config=ServerConfig(max_body_bytes=100)) as server:
        response = server.complete("x" * 100)
        assert (response.status_code, checked(response).code) == (413, "request_too_large")
        assert "100" in checked(response).message

        def chunks():
            for _ in range(50):
                yield b" " * 50

        response = server.client.post(
            COMPLETIONS, content=chunks(), headers={"Content-Type": "application/json"}
        )
        assert (response.status_code, checked(response).code) == (413, "request_too_large")
        assert server.complete("x").status_code == 200


def test_a_prompt_that_is_too_long_is_refused_in_words_that_clients_look_for():
    with serving(endless) as server:
        response = server.complete("x" * 5000)
        assert (response.status_code, checked(response).code) == (400, "context_length_exceeded")
        assert "this model's maximum context length is" in checked(response).message


def test_a_server_may_refuse_what_others_cut():
    with serving(endless, config=ServerConfig(refuse_overlong=True)) as server:
        response = server.complete("x" * 100, max_tokens=101)
        assert (response.status_code, checked(response).code) == (400, "context_length_exceeded")
        assert checked(response).param == "max_tokens"
        assert server.complete("x" * 100, max_tokens=100).json()["usage"]["total_tokens"] == 200


def test_what_does_not_fit_is_cut():
    with serving(endless) as server:
        answer = server.complete("x" * 100, max_tokens=1000).json()
        assert answer["usage"]["total_tokens"] == 200
        assert answer["choices"][0]["finish_reason"] == "length"


def test_unknown_fields_cause_a_warning():
    with serving(spell("fine")) as server:
        response = server.complete(**{"best": 1, "stream_options": {"x": 1}, "a\nb": 2, "ü": 3})
        assert response.status_code == 200
        told = response.headers["x-octavo-warning"]
        assert told == "unknown fields ignored: a\\nb, best, \\xfc, stream_options.x"


def test_a_strict_server_refuses_unknown_fields():
    with serving(spell("fine"), config=ServerConfig(strict=True)) as server:
        response = server.complete(nonsense=1)
        assert (response.status_code, checked(response).param) == (400, "nonsense")
        assert server.complete(temperature=0.5).status_code == 200


def test_a_row_that_fails_fails_its_request_alone(server):
    with serving(spell("fine"), runner_options={"request_errors": {}}) as served:
        served.fake.runner._request_errors = _FirstOnly()
        failed, fine = served.complete(), served.complete()
        assert failed.status_code == 500
        assert checked(failed).code == "generation_failed"
        assert "NaN" in checked(failed).message
        assert fine.json()["choices"][0]["text"] == "fine"
        served.until_idle()


def test_a_constraint_that_cannot_be_met_is_the_fault_of_its_request():
    with serving(spell("fine"), runner_options={"request_errors": {}}) as served:
        served.fake.runner._request_errors = _FirstOnly("structured_outputs: it cannot be met")
        response = served.complete()
    assert (response.status_code, checked(response).param) == (400, "structured_outputs")


class _FirstOnly(dict):
    """Fails the first row that is sampled, whatever its request is called."""

    used = False

    def __init__(self, error="NaN in the logits"):
        super().__init__()
        self.error = error

    def __contains__(self, request_id):
        return not self.used

    def pop(self, request_id, default=None):
        self.used = True
        return self.error


@pytest.mark.parametrize(
    ("error", "status", "type_"),
    [
        (InvalidRequestError("x", param="n"), 400, "invalid_request_error"),
        (ContextLengthError("x"), 400, "invalid_request_error"),
        (UnsupportedFeatureError("x"), 400, "invalid_request_error"),
        (QueueFullError("x"), 503, "service_unavailable_error"),
        (QueueShareError("x"), 429, "rate_limit_error"),
        (QueueTimeoutError("x"), 503, "service_unavailable_error"),
        (DrainingError("x"), 503, "service_unavailable_error"),
        (EngineDeadError("x"), 503, "service_unavailable_error"),
        (EngineError("x"), 500, "server_error"),
        (InvariantError("secret"), 500, "server_error"),
        (ValueError("secret"), 500, "server_error"),
    ],
)
def test_every_error_has_a_status(error, status, type_):
    told = as_api_error(error)
    assert (told.status, told.type) == (status, type_)
    assert ("Retry-After" in told.headers) == (status in (429, 503))
    assert "secret" not in told.message
