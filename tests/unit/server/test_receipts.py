"""Cache receipts over HTTP: asked for by a field, told with the usage, the same streamed and whole."""

import pytest
from async_harness import endless
from server_harness import serving

from octavo.server.config import ServerConfig

PROMPT = list(range(65, 83))  # four blocks of four, and two tokens more
COLD = {
    "reused_blocks": 0,
    "copied_blocks": 0,
    "computed_blocks": 5,
    "first_miss_position": 0,
    "first_miss_reason": "never_cached",
}
WARM = {
    "reused_blocks": 4,
    "copied_blocks": 0,
    "computed_blocks": 1,
    "first_miss_position": 16,
    "first_miss_reason": "last_token",
}


@pytest.fixture
def server():
    with serving(endless) as served:
        yield served


def details(usage):
    return usage["prompt_tokens_details"]


def test_a_receipt_comes_with_the_usage(server):
    def receipts():
        answer = server.complete(PROMPT, max_tokens=1, cache_receipt=True).json()
        return details(answer["usage"])["cache_receipts"]

    assert receipts() == [COLD]
    assert receipts() == [WARM]


def test_a_stream_that_tells_receipts_ends_with_the_usage(server):
    server.complete(PROMPT, max_tokens=1)
    events = server.events("/v1/completions", prompt=PROMPT, max_tokens=2, cache_receipt=True)
    assert details(events[-2]["usage"]) == {"cached_tokens": 16, "cache_receipts": [WARM]}


def test_a_chat_has_one_streamed_or_whole(server):
    whole = server.chat("a prompt of several blocks", max_tokens=1, cache_receipt=True).json()["usage"]
    messages = [{"role": "user", "content": "a prompt of several blocks"}]
    events = server.events("/v1/chat/completions", messages=messages, max_tokens=1, cache_receipt=True)
    [cold], [warm] = details(whole)["cache_receipts"], details(events[-2]["usage"])["cache_receipts"]
    assert (cold["first_miss_reason"], warm["first_miss_reason"]) == ("never_cached", "last_token")
    assert cold["computed_blocks"] == warm["reused_blocks"] + warm["computed_blocks"]


def test_several_prompts_have_one_each_in_order(server):
    server.complete(PROMPT, max_tokens=1)
    other = list(range(97, 115))
    usage = server.complete([other, PROMPT], max_tokens=1, n=2, cache_receipt=True).json()["usage"]
    assert details(usage)["cache_receipts"] == [COLD, WARM]


@pytest.mark.parametrize("asked", [{}, {"cache_receipt": False}, {"cache_receipt": None}])
def test_who_asks_for_none_gets_none(server, asked):
    assert details(server.complete(max_tokens=1, **asked).json()["usage"]) == {"cached_tokens": 0}
    assert all(
        event == "[DONE]" or "usage" not in event
        for event in server.events("/v1/completions", prompt="x", max_tokens=1, **asked)
    )


def test_a_key_learns_nothing_of_what_another_has_cached():
    with serving(endless, config=ServerConfig(api_key=("ann", "bob"))) as guarded:

        def receipt(key):
            response = guarded.client.post(
                "/v1/completions",
                json={"prompt": PROMPT, "max_tokens": 1, "cache_receipt": True},
                headers={"Authorization": f"Bearer {key}"},
            )
            return details(response.json()["usage"])["cache_receipts"][0]

        assert receipt("ann")["first_miss_reason"] == "salt"
        assert receipt("bob") == {**COLD, "first_miss_reason": "salt"}
        assert receipt("ann") == WARM
