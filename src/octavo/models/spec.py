"""`ModelSpec`: the numbers of a model that everything above the kernels needs."""

from dataclasses import dataclass
from pathlib import Path

from octavo.kernels.program import RopeSpec
from octavo.models.quoting import one_line

_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """How one layer attends."""

    rope: RopeSpec
    window: int | None = None
    """Tokens the layer looks back, itself included; ``None``: all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsSpec:
    """The mixture of experts that each layer has instead of an MLP."""

    num_experts: int
    top_k: int
    """Experts that a token goes through."""
    intermediate_size: int
    """Width of one expert."""
    normalized: bool
    """Whether the weights of a token's experts add up to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A decoder-only transformer, as its file describes it. All sizes are counts of elements."""

    architecture: str
    """GGUF's name for it, such as "llama"."""
    name: str
    """What the file calls itself, or the file's name; short, and without control characters."""
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    """Width of the gated MLP."""
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    """Longest sequence the model was made for [tokens]."""
    rms_norm_eps: float
    layers: tuple[LayerSpec, ...]
    attention_scale: float
    """Factor of the products of queries and keys."""
    attention_soft_cap: float | None = None
    logit_soft_cap: float | None = None
    experts: ExpertsSpec | None = None
    tied_head: bool
    """Whether the output head is the embedding table."""

    @property
    def num_layers(self) -> int:
        """Layers with attention and an MLP."""
        return len(self.layers)


def model_name(claimed: str | None, path: Path) -> str:
    """What to call a model: a file can claim any name, but terminals and logs show it."""
    return one_line(claimed or "", longest=_LONGEST_NAME) or one_line(path.stem, longest=_LONGEST_NAME)
