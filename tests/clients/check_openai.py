"""The openai package: models, chat, completions, embeddings, tools, structured output, errors, streams."""

import asyncio
import json

import openai
from checking import BASE_URL, LONG_PROMPT, MODEL, WEATHER_SCHEMA, WEATHER_TOOL, run_checks
from pydantic import BaseModel

client = openai.OpenAI(base_url=f"{BASE_URL}/v1", api_key="none", max_retries=0)
MESSAGES = [{"role": "user", "content": "Name three colours."}]
GREEDY = {"model": MODEL, "temperature": 0, "max_tokens": 24}


def chat(**options):
    return client.chat.completions.create(**{"messages": MESSAGES, **GREEDY, **options})


def raises(kind, call, **attributes):
    try:
        call()
    except kind as error:
        caught = error
    else:
        raise AssertionError(f"no {kind.__name__}")
    for name, value in attributes.items():
        assert getattr(caught, name) == value, (name, getattr(caught, name), caught)


def models():
    card, *_ = client.models.list().data
    assert card.id == MODEL
    assert card.max_model_len > 0
    assert client.models.retrieve(MODEL).id == MODEL
    raises(openai.NotFoundError, lambda: client.models.retrieve("nobody"), status_code=404)


def chat_answers():
    answer = chat()
    [choice] = answer.choices
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert chat(max_tokens=openai.NOT_GIVEN, max_completion_tokens=3).usage.completion_tokens == 3


def cached_tokens_are_told():
    messages = [{"role": "user", "content": "First of all: " + LONG_PROMPT}]
    cold, warm = (chat(messages=messages).usage for _ in range(2))
    assert cold.prompt_tokens_details.cached_tokens < 32
    assert warm.prompt_tokens_details.cached_tokens > cold.prompt_tokens_details.cached_tokens
    *_, last = chat(messages=messages, stream=True, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage.prompt_tokens_details == warm.prompt_tokens_details


def a_stream_says_the_same():
    whole = chat(seed=5, temperature=0.8).choices[0]
    chunks = list(chat(seed=5, temperature=0.8, stream=True))
    choices = [chunk.choices[0] for chunk in chunks]
    assert "".join(choice.delta.content or "" for choice in choices) == whole.message.content
    assert choices[-1].finish_reason == whole.finish_reason
    assert choices[0].delta.role == "assistant"


def the_stream_helper_says_the_same():
    with client.chat.completions.stream(messages=MESSAGES, model=MODEL, temperature=0, stop="\n") as stream:
        events = [event.type for event in stream]
        streamed = stream.get_final_completion().choices[0].message.content
    assert "content.done" in events
    assert streamed == chat(stop="\n", max_tokens=500).choices[0].message.content


def several_choices_with_logprobs():
    answer = chat(n=2, temperature=1, seed=3, logprobs=True, top_logprobs=2, max_tokens=5)
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        tokens = choice.logprobs.content
        assert "".join(token.token for token in tokens).startswith(choice.message.content[:1])
        assert all(len(token.top_logprobs) == 2 and token.logprob <= 0 for token in tokens)
    again = chat(n=2, temperature=1, seed=3, logprobs=True, top_logprobs=2, max_tokens=5)
    assert again.choices == answer.choices


def stop_strings_do_not_leak():
    text = chat().choices[0].message.content
    stop = text[5:8]
    assert chat(stop=stop).choices[0].message.content == text[: text.index(stop)]
    streamed = chat(stop=[stop], stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == text[: text.index(stop)]


def completions():
    def create(prompt, **options):
        return client.completions.create(prompt=prompt, **{**GREEDY, "max_tokens": 6, **options}).choices

    one = create("The sky is")[0].text
    assert [choice.text for choice in create(["The sky is", "The sky is"])] == [one, one]
    echoed = create("The sky is", echo=True, logprobs=1)[0]
    assert echoed.text == "The sky is" + one
    assert echoed.logprobs.token_logprobs[0] is None
    assert "".join(echoed.logprobs.tokens) == echoed.text
    raises(openai.BadRequestError, lambda: create("a", suffix="b"), param="suffix")
    raises(openai.BadRequestError, lambda: create("a", best_of=3), param="best_of")
    assert create([[504, 6376, 314]], echo=False)[0].text == create([504, 6376, 314])[0].text


def embeddings():
    def vectors(texts, **options):
        return [item.embedding for item in client.embeddings.create(model=MODEL, input=texts, **options).data]

    by_base64 = vectors(["one", "two"])
    by_float = vectors(["one", "two"], encoding_format="float")
    assert len(by_base64[0]) == len(by_float[0]) > 100
    assert all(abs(a - b) < 1e-6 for a, b in zip(by_base64[0], by_float[0], strict=True))
    assert by_float[0] != by_float[1]


def structured_output():
    class Weather(BaseModel):
        city: str
        days: int

    answer = client.chat.completions.parse(
        messages=MESSAGES, response_format=Weather, **{**GREEDY, "max_tokens": 200}
    )
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(answer.choices[0].message.parsed, Weather)
    json_schema = {"name": "weather", "schema": WEATHER_SCHEMA, "strict": True}
    text = chat(response_format={"type": "json_schema", "json_schema": json_schema}, max_tokens=100)
    assert set(json.loads(text.choices[0].message.content)) == {"city", "days"}


def forced_tools():
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        options = {
            "tools": [WEATHER_TOOL],
            "tool_choice": choice,
            "parallel_tool_calls": False,
            "max_tokens": 100,
        }
        whole = chat(**options).choices[0]
        [call] = whole.message.tool_calls
        assert whole.finish_reason == "tool_calls", whole
        assert call.function.name == "get_weather"
        assert set(json.loads(call.function.arguments)) == {"city", "days"}
        streamed = [chunk.choices[0].delta for chunk in chat(**options, stream=True)]
        deltas = [delta.tool_calls[0] for delta in streamed if delta.tool_calls]
        assert deltas[0].function.name == "get_weather"
        assert deltas[0].id
        assert "".join(delta.function.arguments for delta in deltas) == call.function.arguments
        assert not any(delta.content for delta in streamed)


def results_of_tools_go_back():
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'},
    }
    turns = [{"role": "assistant", "content": None, "tool_calls": [call]},
             {"role": "tool", "tool_call_id": "call_1", "content": "Snow."}]  # fmt: skip
    assert (
        chat(messages=[*MESSAGES, *turns], tools=[WEATHER_TOOL], tool_choice="none")
        .choices[0]
        .message.content
    )


def errors_name_the_field():
    raises(openai.BadRequestError, lambda: chat(temperature=-1), param="temperature")
    raises(openai.BadRequestError, lambda: chat(n=100_000), param="n")
    raises(openai.BadRequestError, lambda: chat(messages=[]), param="messages")
    raises(openai.NotFoundError, lambda: chat(model="nobody"), code="model_not_found")
    raises(openai.BadRequestError, lambda: chat(messages=[{"role": "user", "content": "word " * 50_000}]),
           code="context_length_exceeded")  # fmt: skip
    raises(openai.BadRequestError, lambda: chat(tool_choice="required"), param="tool_choice")


def many_at_once_and_some_cancelled():
    async def one(many, index):
        stream = await many.chat.completions.create(messages=MESSAGES, stream=True, **GREEDY)
        text = ""
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            if index % 2 and text:
                await stream.close()
                return None
        return text

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=f"{BASE_URL}/v1", api_key="none", max_retries=0) as many:
            return await asyncio.gather(*(one(many, index) for index in range(16)))

    texts = [text for text in asyncio.run(all_of_them()) if text is not None]
    assert texts == [chat().choices[0].message.content] * 8


if __name__ == "__main__":
    run_checks(
        f"openai {openai.__version__}",
        models, chat_answers, cached_tokens_are_told, a_stream_says_the_same, the_stream_helper_says_the_same,
        several_choices_with_logprobs, stop_strings_do_not_leak, completions, embeddings, structured_output,
        forced_tools, results_of_tools_go_back, errors_name_the_field, many_at_once_and_some_cancelled,
    )  # fmt: skip
