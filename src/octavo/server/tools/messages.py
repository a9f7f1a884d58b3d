"""`messages_for_template`: conversations as OpenAI's clients send them, in the form that templates take."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.engine.tokenizer import ChatMessage
from octavo.server.tools.json_call import json_value


def messages_for_template(messages: Sequence[ChatMessage], template: str) -> list[dict[str, Any]]:
    """The conversation with arguments of earlier calls as objects, and no role that the template lacks.

    Args:
        messages: the conversation; what is wrong with it is found out later.
        template: text of the chat template.
    """
    return [_for_template(message, template) for message in messages]


def with_tools_in_system_message(
    messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The conversation with the tools' JSON beside the content of a system message, made up if need be."""
    system, rest = split_system_message(messages)
    functions = [tool.get("function", tool) for tool in tools]
    return [{**system, "tools": json.dumps(functions, ensure_ascii=False)}, *map(dict, rest)]


def split_system_message(messages: Sequence[ChatMessage]) -> tuple[dict[str, Any], list[ChatMessage]]:
    """The system message, made up if there is none, and the others."""
    if messages and messages[0].get("role") == "system":
        return dict(messages[0]), list(messages[1:])
    return {"role": "system", "content": ""}, list(messages)


def _for_template(message: ChatMessage, template: str) -> dict[str, Any]:
    changed = dict(message)
    if changed.get("role") == "developer" and "developer" not in template:
        changed["role"] = "system"
    if isinstance(calls := changed.get("tool_calls"), list):
        changed["tool_calls"] = [_with_arguments(call) for call in calls]
    return changed


def _with_arguments(call: object) -> object:
    """The call with its arguments as an object, which templates write out in their own ways."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    value = json_value(arguments) if isinstance(arguments, str) else None
    if not isinstance(value, dict):
        return call
    return {**call, "function": {**function, "arguments": value}}
