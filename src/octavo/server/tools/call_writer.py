"""`CallWriter`: numbers and names the tool calls of one answer."""

import secrets
import string
from collections.abc import Callable, Mapping

from octavo.server.tools.deltas import ToolCallDelta

ParameterSchema = Mapping[str, object]
"""JSON schema of a tool's parameters."""


def openai_call_id() -> str:
    """An id such as OpenAI's."""
    return f"call_{secrets.token_hex(12)}"


def mistral_call_id() -> str:
    """Nine letters and digits: the templates of Mistral's models refuse any other id when it comes back."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))


class CallWriter:
    """Makes the deltas of one answer's calls.

    Attributes:
        tools: the declared tools, by name.
        num_calls: calls begun so far.
    """

    def __init__(
        self, tools: Mapping[str, ParameterSchema], *, new_call_id: Callable[[], str] = openai_call_id
    ) -> None:
        self.tools = tools
        self.num_calls = 0
        self._new_call_id = new_call_id

    def begin(self, name: str, arguments: str = "") -> ToolCallDelta:
        """The first delta of the next call."""
        self.num_calls += 1
        return ToolCallDelta(self.num_calls - 1, arguments, self._new_call_id(), name)

    def more_arguments(self, text: str) -> ToolCallDelta:
        """A further delta of the call begun last."""
        return ToolCallDelta(self.num_calls - 1, text)
