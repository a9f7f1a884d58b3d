"""langchain-openai: chat, streams, batches, tools, structured output, plain completions, embeddings."""

import asyncio
from importlib.metadata import version

from checking import BASE_URL, MODEL, WEATHER_SCHEMA, run_checks
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

COMMON = {"model": MODEL, "base_url": f"{BASE_URL}/v1", "api_key": "none", "max_retries": 0}
chat = ChatOpenAI(temperature=0, max_tokens=40, **COMMON)
QUESTION = [("system", "Be brief."), ("human", "Name three colours.")]

FORECAST = [("human", "Weather in Paris for two days?")]


@tool
def get_weather(city: str, days: int) -> str:
    """Weather forecast for a city."""
    return f"Snow in {city} for {days} days."


def invoke():
    answer = chat.invoke(QUESTION)
    assert answer.content
    usage = answer.usage_metadata
    assert usage["input_tokens"] > 0 < usage["output_tokens"]
    assert "cache_read" in usage["input_token_details"]


def stream():
    chunks = list(chat.stream(QUESTION, stream_usage=True))
    whole = sum(chunks[1:], chunks[0])
    assert whole.content == chat.invoke(QUESTION).content
    assert whole.usage_metadata["output_tokens"] > 0


def batch():
    answers = chat.batch([QUESTION] * 4)
    assert len({answer.content for answer in answers}) == 1
    assert asyncio.run(chat.ainvoke(QUESTION)).content == answers[0].content


def tools():
    calling = chat.bind_tools([get_weather], tool_choice="get_weather").invoke(FORECAST)
    [call] = calling.tool_calls
    assert call["name"] == "get_weather"
    assert set(call["args"]) == {"city", "days"}
    result = get_weather.invoke(call)
    assert chat.invoke([*FORECAST, calling, result]).content
    streamed = chat.bind_tools([get_weather], tool_choice="any").stream(FORECAST)
    whole = sum(streamed, start=next(streamed))
    assert whole.tool_calls[0]["name"] == "get_weather"


def structured_output():
    schema = {"title": "weather", "description": "A forecast", **WEATHER_SCHEMA}
    for method in ("json_schema", "function_calling"):
        answer = chat.with_structured_output(schema, method=method).invoke(FORECAST)
        assert set(answer) == {"city", "days"}, (method, answer)


def plain_completions():
    model = OpenAI(temperature=0, max_tokens=6, **COMMON)
    text = model.invoke("The sky is")
    assert text
    assert "".join(model.stream("The sky is")) == text


def embeddings():
    model = OpenAIEmbeddings(check_embedding_ctx_length=False, **COMMON)
    one, two = model.embed_documents(["one", "two"])
    assert len(one) == len(two) == len(model.embed_query("one"))


if __name__ == "__main__":
    run_checks(
        f"langchain-openai {version('langchain-openai')}",
        invoke, stream, batch, tools, structured_output, plain_completions, embeddings,
    )  # fmt: skip
