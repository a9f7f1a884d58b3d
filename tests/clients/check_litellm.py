"""litellm, as an OpenAI server and as hosted vLLM: chat, streams, tools, completions, embeddings, errors."""

import asyncio
import json
import os
from importlib.metadata import version

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it is fetched

import litellm
from checking import BASE_URL, MODEL, WEATHER_TOOL, run_checks

MESSAGES = [{"role": "user", "content": "Name three colours."}]
AT = {"api_base": f"{BASE_URL}/v1", "api_key": "none", "num_retries": 0}


def ask(provider="openai", **options):
    options = {"messages": MESSAGES, "temperature": 0, "max_tokens": 24, **options}
    return litellm.completion(model=f"{provider}/{MODEL}", **AT, **options)


def chat():
    texts = {ask(provider).choices[0].message.content for provider in ("openai", "hosted_vllm")}
    assert len(texts) == 1
    assert texts != {""}
    assert ask().usage.prompt_tokens_details.cached_tokens is not None


def stream():
    chunks = list(ask("hosted_vllm", stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == ask().choices[0].message.content
    assert litellm.stream_chunk_builder(chunks).usage.completion_tokens > 0


def tools():
    choice = {"type": "function", "function": {"name": "get_weather"}}
    answer = ask("hosted_vllm", tools=[WEATHER_TOOL], tool_choice=choice, max_tokens=100)
    [call] = answer.choices[0].message.tool_calls
    assert set(json.loads(call.function.arguments)) == {"city", "days"}
    chunks = list(ask("hosted_vllm", tools=[WEATHER_TOOL], tool_choice=choice, max_tokens=100, stream=True))
    [streamed] = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    assert streamed.function.arguments == call.function.arguments


def text_completion():
    answer = litellm.text_completion(
        model=f"text-completion-openai/{MODEL}", prompt="The sky is", temperature=0, max_tokens=6, **AT
    )
    assert answer.choices[0].text


def embeddings():
    data = litellm.embedding(model=f"openai/{MODEL}", input=["one", "two"], **AT).data
    assert len(data) == 2
    assert len(data[0]["embedding"]) > 100


def errors():
    for options, kind in (
        ({"temperature": -1}, litellm.BadRequestError),
        ({"messages": [{"role": "user", "content": "word " * 50_000}]}, litellm.ContextWindowExceededError),
    ):
        try:
            ask(**options)
        except kind:
            continue
        raise AssertionError(f"no {kind.__name__}")


def several_at_once():
    async def all_of_them():
        asked = (
            litellm.acompletion(
                model=f"openai/{MODEL}", messages=MESSAGES, temperature=0, max_tokens=24, **AT
            )
            for _ in range(8)
        )
        return await asyncio.gather(*asked)

    assert len({answer.choices[0].message.content for answer in asyncio.run(all_of_them())}) == 1


if __name__ == "__main__":
    run_checks(
        f"litellm {version('litellm')}",
        chat, stream, tools, text_completion, embeddings, errors, several_at_once,
    )  # fmt: skip
