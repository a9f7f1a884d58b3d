"""`AnswerPlan`: what the tools of a chat request mean for its prompt, its sampling, its answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from octavo.diagnostics import shown
from octavo.engine.tokenizer import ChatMessage, Tokenizer
from octavo.errors import InvalidRequestError
from octavo.sampling_params import SamplingParams
from octavo.server.tools.answer_parser import AnswerParser
from octavo.server.tools.call_writer import CallWriter
from octavo.server.tools.families import FORCED, HERMES, ToolFamily, family_of
from octavo.server.tools.forced_call import MAX_CALLS, forced_calls
from octavo.server.tools.messages import messages_for_template, with_tools_in_system_message
from octavo.server.tools.plain_template import tell_of_tools
from octavo.server.tools.reasoning import prompt_opens_reasoning, template_has_reasoning
from octavo.structured_outputs import StructuredOutputsParams


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolRequest:
    """What a chat request says about tools."""

    tools: Sequence[Mapping[str, Any]] = ()
    """In OpenAI's shape, checked."""
    choice: str | None = None
    """"none", "auto", "required", or ``None`` for what is usual."""
    named: str | None = None
    """The function that has to be called."""
    parallel: bool = True
    """Whether there may be several calls."""

    @property
    def schemas(self) -> dict[str, Mapping[str, Any]]:
        """Schemas of the parameters by name; of several tools with one name the last counts."""
        functions = [tool["function"] for tool in self.tools]
        return {function["name"]: function.get("parameters") or {} for function in functions}

    @property
    def is_forced(self) -> bool:
        """Whether a call has to be made."""
        return self.named is not None or self.choice == "required"

    @property
    def is_offered(self) -> bool:
        """Whether the model may call anything."""
        return bool(self.tools) and self.choice != "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerPlan:
    """How one chat request is asked and its answers are read."""

    messages: Sequence[ChatMessage]
    """For the chat template."""
    template_tools: Sequence[Mapping[str, Any]] | None
    """For the chat template, beside the messages."""
    structured_outputs: StructuredOutputsParams | None
    """The constraint that forces a call."""
    keeps_special_tokens: bool
    """Whether special tokens have to stay in the text: calls are marked by some."""
    reader: ToolFamily | None
    """Who reads the calls; ``None`` if there are none to be read."""
    new_call_id: Callable[[], str]
    has_reasoning: bool
    """Whether the model may think aloud before it answers."""
    request: ToolRequest

    @property
    def is_parsed(self) -> bool:
        """Whether answers may hold anything but content."""
        return self.reader is not None or self.has_reasoning

    def applied_to(self, params: SamplingParams) -> SamplingParams:
        """The parameters of the request, with what the tools ask for."""
        changes: dict[str, object] = {}
        if self.structured_outputs is not None:
            changes["structured_outputs"] = self.structured_outputs
        if self.keeps_special_tokens:
            changes["skip_special_tokens"] = False
        return params.clone(**changes) if changes else params

    def new_parser(self, prompt: str) -> AnswerParser:
        """A parser for one of the answers to a prompt, as the chat template has written it."""
        return AnswerParser(
            self.reader.parse if self.reader else None,
            CallWriter(self.request.schemas, new_call_id=self.new_call_id),
            max_calls=None if self.request.parallel else 1,
            has_reasoning=self.has_reasoning,
            reasoning_is_open=self.has_reasoning and prompt_opens_reasoning(prompt),
        )


def plan_answer(
    messages: Sequence[ChatMessage],
    request: ToolRequest,
    tokenizer: Tokenizer,
    *,
    chat_template: str | None = None,
    is_constrained: bool = False,
) -> AnswerPlan:
    """Decide how to ask and how to read.

    Args:
        messages: the conversation.
        request: what it says about tools.
        tokenizer: of the model.
        chat_template: replaces the model's own.
        is_constrained: whether a grammar confines the answer, which then has neither thoughts nor free calls.

    Raises:
        InvalidRequestError: a call is to be made, but of no tool that was given.
    """
    _check(request)
    template = chat_template or tokenizer.chat_template_source or ""
    family = family_of(template)
    asked = _asked(messages_for_template(messages, template), request, family)
    is_free = not (request.is_forced or is_constrained)
    reader = FORCED if request.is_forced else (family or HERMES) if request.is_offered and is_free else None
    return AnswerPlan(
        messages=asked.messages,
        template_tools=asked.tools,
        structured_outputs=_forced_calls(request) if request.is_forced else None,
        keeps_special_tokens=reader is not None and reader.is_marked_in(tokenizer),
        reader=reader,
        new_call_id=(family or HERMES).new_call_id,
        has_reasoning=is_free and template_has_reasoning(template),
        request=request,
    )


class _Asked(NamedTuple):
    messages: Sequence[ChatMessage]
    tools: Sequence[Mapping[str, Any]] | None


def _asked(messages: Sequence[ChatMessage], request: ToolRequest, family: ToolFamily | None) -> _Asked:
    tools = request.tools if request.is_offered else ()
    if family is None:
        return _Asked(tell_of_tools(messages, tools), None)
    if family.tools_in_system_message and tools:
        return _Asked(with_tools_in_system_message(messages, tools), None)
    return _Asked(messages, list(tools) or None)


def _forced_calls(request: ToolRequest) -> StructuredOutputsParams:
    schemas = request.schemas
    try:
        if request.named is None:
            return forced_calls(schemas, max_calls=MAX_CALLS if request.parallel else 1)
        return forced_calls({request.named: schemas[request.named]}, max_calls=1)
    except RecursionError:
        raise InvalidRequestError("a tool's parameters are nested too deeply", param="tools") from None


def _check(request: ToolRequest) -> None:
    if request.is_forced and not request.tools:
        raise InvalidRequestError("tool_choice asks for a call, but there are no tools", param="tool_choice")
    if request.named is not None and request.named not in request.schemas:
        raise InvalidRequestError(
            f"tool_choice names {shown(request.named)}, which is not among the tools: "
            f"{shown(', '.join(request.schemas))}",
            param="tool_choice",
        )
