"""`ToolFamily`: how the models of one family write tool calls, and which family a chat template speaks of."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from octavo.engine.tokenizer import Tokenizer
from octavo.server.tools import deepseek, forced, glm, granite, hermes, llama, mistral, phi4, qwen_coder
from octavo.server.tools.call_writer import CallWriter, mistral_call_id, openai_call_id
from octavo.server.tools.text_reader import Steps, TextReader

ParseAnswer = Callable[[TextReader, CallWriter], Steps[None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFamily:
    """One way to write tool calls."""

    name: str
    signs: tuple[str, ...]
    """A chat template that holds one of these is of this family."""
    parse: ParseAnswer
    markers: tuple[str, ...] = ()
    """What begins a call; some models have tokens of their own for it, which must then not be left out."""
    new_call_id: Callable[[], str] = openai_call_id
    tools_in_system_message: bool = False
    """Whether the template looks for the tools in the first message instead of beside the messages."""

    def is_marked_in(self, tokenizer: Tokenizer) -> bool:
        """Whether a model's vocabulary has special tokens for the markers."""
        encode = partial(tokenizer.encode, add_special_tokens=False, parse_special=True)
        return any(tokenizer.is_special(token_id) for marker in self.markers for token_id in encode(marker))


HERMES = ToolFamily(
    name="hermes", signs=(hermes.OPENING,), parse=hermes.parse_hermes, markers=(hermes.OPENING,)
)

FAMILIES = (
    ToolFamily(
        name="mistral",
        signs=("[TOOL_CALLS]", "[AVAILABLE_TOOLS]"),
        parse=mistral.parse_mistral,
        markers=(mistral.OPENING, "[ARGS]"),
        new_call_id=mistral_call_id,
    ),
    ToolFamily(
        name="deepseek",
        signs=(deepseek.ALL_BEGIN,),
        parse=deepseek.parse_deepseek,
        markers=(deepseek.ALL_BEGIN, deepseek.BEGIN),
    ),
    ToolFamily(
        name="qwen-coder",
        signs=(qwen_coder.FUNCTION,),
        parse=qwen_coder.parse_qwen_coder,
        markers=(qwen_coder.OPENING,),
    ),
    ToolFamily(name="glm", signs=("<arg_key>",), parse=glm.parse_glm, markers=(glm.OPENING, "<arg_key>")),
    HERMES,
    ToolFamily(
        name="phi4",
        signs=("functools", "<|tool|>"),
        parse=phi4.parse_phi4,
        markers=phi4.OPENINGS,
        tools_in_system_message=True,
    ),
    ToolFamily(name="granite", signs=granite.OPENINGS, parse=granite.parse_granite, markers=granite.OPENINGS),
    ToolFamily(
        name="llama",
        signs=(llama.PYTHON_TAG, "Given the following functions, please respond with a JSON"),
        parse=llama.parse_llama,
        markers=(llama.PYTHON_TAG,),
    ),
)
"""In the order in which signs are looked for: templates of earlier ones may hold signs of later ones."""

FORCED = ToolFamily(name="forced", signs=(), parse=forced.parse_forced)
"""For answers that a grammar confines to a list of calls."""


def family_of(template: str) -> ToolFamily | None:
    """The family whose calls a chat template speaks of; ``None`` for one that knows no tools."""
    return next((family for family in FAMILIES if any(sign in template for sign in family.signs)), None)
