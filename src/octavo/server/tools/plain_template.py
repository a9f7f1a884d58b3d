"""Tools for models whose chat template knows none: told in the system message, called as Hermes does.

Small models rarely call well by themselves; a call that ``tool_choice`` forces is right in form all the same.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.engine.tokenizer import ChatMessage
from octavo.server.tools.hermes import CLOSING, OPENING
from octavo.server.tools.messages import split_system_message

_HOW_TO_CALL = f"""\
You can call tools. A call is a JSON object with the tool's name and its arguments, between two marks:
{OPENING}
{{"name": "the tool", "arguments": {{"a parameter": "its value"}}}}
{CLOSING}
What a tool returns comes between <tool_response> and </tool_response>. The tools are:"""


def tell_of_tools(
    messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The conversation with the tools, if there are any, and with earlier calls and results, as mere text."""
    turns = [_as_text(message) for message in messages]
    if not tools:
        return turns
    system, rest = split_system_message(turns)
    lines = [_HOW_TO_CALL, *(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)]
    return [{**system, "content": _followed_by(system.get("content"), "\n".join(lines))}, *map(dict, rest)]


def _as_text(message: ChatMessage) -> dict[str, Any]:
    if message.get("role") == "tool":
        text = _followed_by(message.get("content"), "</tool_response>", "\n")
        return {"role": "user", "content": _followed_by("<tool_response>", text, "\n")}
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return dict(message)
    texts = [f"{OPENING}\n{json.dumps(_call(call), ensure_ascii=False)}\n{CLOSING}" for call in calls]
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**kept, "content": _followed_by(message.get("content"), "\n".join(texts))}


def _call(call: object) -> object:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    return {"name": function.get("name"), "arguments": function.get("arguments")}


def _followed_by(content: object, text: object, separator: str = "\n\n") -> object:
    """Content, which may be text, parts or nothing, and more text behind it."""
    if isinstance(content, list) or isinstance(text, list):
        return [*_parts(content), *_parts(text)]
    return f"{content}{separator}{text}" if content else text


def _parts(content: object) -> list[Any]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []
