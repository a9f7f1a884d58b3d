"""`Program`: a model as a list of ops over buffers, the only interface between models and kernels.

A model is written once, as Python that appends ops (`octavo.models.llama`). Interpreters run it: numpy
(`octavo.kernels.reference`, obvious and slow: the specification) and native code (`octavo.kernels.native`).
A buffer holds one row of float32 per token of the step. Nothing here depends on the number of rows.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from octavo.kernels.weight import Weight


@dataclass(frozen=True, slots=True)
class Buffer:
    """Rows of ``width`` float32, one per token of the step."""

    index: int
    width: int


class RopeStyle(StrEnum):
    """Which elements of a head rope rotates together."""

    INTERLEAVED = "interleaved"
    """(0, 1), (2, 3), …: how GGUF stores llama-type weights."""
    HALF_SPLIT = "half_split"
    """(0, d/2), (1, d/2 + 1), …: Qwen, Gemma, and Hugging Face files."""


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding of the first ``rotary_dim`` elements of each head.

    ``frequencies[i]`` (float64, ``rotary_dim / 2`` of them) is the angle in radians per position of pair i,
    with any scaling already in it; cosines and sines are multiplied by ``magnitude``.
    """

    style: RopeStyle
    rotary_dim: int
    frequencies: tuple[float, ...]
    magnitude: float = 1.0


NO_ROPE = RopeSpec(RopeStyle.HALF_SPLIT, 0, ())
"""Turns nothing: for layers that know nothing of positions."""


class Activation(StrEnum):
    """The gate's activation in a gated MLP."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True)
class Input:
    """``out`` is filled by the caller before the step (single-op tests)."""

    out: Buffer


@dataclass(frozen=True, slots=True)
class Embed:
    """``out[row] = weight[token_ids[row]] * scale``."""

    out: Buffer
    weight: Weight
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """``out = x / sqrt(mean(x²) + eps) * weight (+ out)``, per row. ``weight``: float32 [width]."""

    out: Buffer
    x: Buffer
    weight: Weight
    eps: float
    accumulate: bool = False


@dataclass(frozen=True, slots=True)
class Linear:
    """``out = concat(x @ part.T for part in parts) (+ bias) (+ add_to)``.

    ``parts`` share their columns and are laid side by side in ``out``, each in its own quantisation.
    With ``add_to`` the result is added to that buffer in place and ``out`` is that buffer. Rows of a request
    with an adapter get what that adds to each part on top (`octavo.kernels.adapter`).
    """

    out: Buffer
    x: Buffer
    parts: tuple[Weight, ...]
    bias: Weight | None = None
    accumulate: bool = False


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Root-mean-square norms of every single head; ``query`` and ``key``: float32 [head_dim]."""

    query: Weight
    key: Weight
    eps: float


@dataclass(frozen=True, slots=True)
class RopeAndWriteKV:
    """Rotate the queries and keys of ``qkv`` and write K and V of each token into its slot of ``layer``.

    ``qkv`` rows are [num_heads * head_dim | num_kv_heads * head_dim | num_kv_heads * head_dim];
    ``out`` receives the rotated queries, [num_heads * head_dim]. With ``norms`` every query and key head
    goes through its norm first.
    """

    out: Buffer
    qkv: Buffer
    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: RopeSpec
    norms: HeadNorms | None = None


@dataclass(frozen=True, slots=True)
class PagedAttention:
    """Causal attention of each query row over K/V read back from the cache through its block table.

    Query head h reads K/V head ``h // (num_heads / num_kv_heads)``. A row at position p sees positions
    ``max(0, p - window + 1) … p`` (all up to p without a window). ``soft_cap`` c turns a score s into
    c·tanh(s/c).
    """

    out: Buffer
    q: Buffer
    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    soft_cap: float | None = None


@dataclass(frozen=True, slots=True)
class GatedActivation:
    """``out = activation(gate) * up`` where ``gate_up`` rows are [gate | up]."""

    out: Buffer
    gate_up: Buffer
    activation: Activation = Activation.SILU


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of one layer, each a gated MLP; expert e has ``gate[e]``, ``up[e]`` and ``down[e]``.

    A row goes through the ``top_k`` experts with the largest router logits (ties: the lower id first),
    weighted by the softmax of the logits: over the chosen experts if ``normalized``, else over all.
    """

    gate: tuple[Weight, ...]
    up: tuple[Weight, ...]
    down: tuple[Weight, ...]
    top_k: int
    normalized: bool = True
    activation: Activation = Activation.SILU


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """``out += Σ weight · down(activation(gate(x)) * up(x))`` over the experts that each row prefers.

    ``router`` rows are logits, one per expert.
    """

    out: Buffer
    x: Buffer
    router: Buffer
    experts: Experts


@dataclass(frozen=True, slots=True)
class KeepLogitRows:
    """``out`` keeps its logit rows, in their order, if the step wants no others; else it keeps them all.

    The ops behind it then have fewer rows: every buffer that they read must have been through this.
    """

    out: Buffer


@dataclass(frozen=True, slots=True)
class Logits:
    """``logits = x[logit_rows] @ weight.T``, only for the rows that need them. Always the last op."""

    x: Buffer
    weight: Weight
    soft_cap: float | None = None


Op = (
    Input
    | Embed
    | RmsNorm
    | Linear
    | RopeAndWriteKV
    | PagedAttention
    | GatedActivation
    | MixtureOfExperts
    | KeepLogitRows
    | Logits
)


@dataclass(slots=True)
class Program:
    """Ops in execution order. The methods append one op each and return its output buffer."""

    ops: list[Op] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)

    def input(self, width: int) -> Buffer:
        """A buffer that the caller fills (tests of single ops)."""
        out = self._buffer(width)
        self.ops.append(Input(out))
        return out

    def embed(self, weight: Weight, *, scale: float = 1.0) -> Buffer:
        """Look up each token's embedding."""
        out = self._buffer(weight.shape[1])
        self.ops.append(Embed(out, weight, scale))
        return out

    def rms_norm(self, x: Buffer, weight: Weight, *, eps: float, add_to: Buffer | None = None) -> Buffer:
        """Root-mean-square norm of each row."""
        _check_norm(weight, x.width)
        _check(add_to is None or add_to.width == x.width, f"cannot add {x.width} columns to another width")
        out = self._buffer(x.width) if add_to is None else add_to
        self.ops.append(RmsNorm(out, x, weight, eps, accumulate=add_to is not None))
        return out

    def linear(
        self, x: Buffer, *parts: Weight, bias: Weight | None = None, add_to: Buffer | None = None
    ) -> Buffer:
        """Multiply by one weight, or by several whose outputs lie side by side."""
        width = sum(part.shape[0] for part in parts)
        for part in parts:
            _check(
                part.shape[1] == x.width,
                f"weight {part.name} takes {part.shape[1]} columns, rows have {x.width}",
            )
        _check(add_to is None or add_to.width == width, f"cannot add {width} columns to another width")
        out = self._buffer(width) if add_to is None else add_to
        self.ops.append(Linear(out, x, parts, bias, accumulate=add_to is not None))
        return out

    def rope_and_write_kv(
        self,
        qkv: Buffer,
        *,
        layer: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        rope: RopeSpec,
        norms: HeadNorms | None = None,
    ) -> Buffer:
        """Rotate queries and keys; K and V go into the paged cache. Returns the queries."""
        _check(
            qkv.width == (num_heads + 2 * num_kv_heads) * head_dim,
            f"qkv rows have {qkv.width} columns",
        )
        if norms is not None:
            _check_norm(norms.query, head_dim)
            _check_norm(norms.key, head_dim)
        out = self._buffer(num_heads * head_dim)
        self.ops.append(RopeAndWriteKV(out, qkv, layer, num_heads, num_kv_heads, head_dim, rope, norms))
        return out

    def paged_attention(
        self,
        q: Buffer,
        *,
        layer: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        window: int | None = None,
        soft_cap: float | None = None,
    ) -> Buffer:
        """Attend over the cache through the block tables."""
        out = self._buffer(q.width)
        num_heads = q.width // head_dim
        _check(
            num_heads % num_kv_heads == 0,
            f"{num_heads} heads cannot share {num_kv_heads} K/V heads",
        )
        self.ops.append(
            PagedAttention(out, q, layer, num_heads, num_kv_heads, head_dim, scale, window, soft_cap)
        )
        return out

    def gated_activation(self, gate_up: Buffer, *, activation: Activation = Activation.SILU) -> Buffer:
        """``activation(gate) * up`` of rows [gate | up]."""
        out = self._buffer(gate_up.width // 2)
        self.ops.append(GatedActivation(out, gate_up, activation))
        return out

    def mixture_of_experts(self, x: Buffer, router: Buffer, experts: Experts, *, add_to: Buffer) -> Buffer:
        """Each row through the experts that its router logits prefer, added to ``add_to`` in place."""
        num_experts = router.width
        _check(
            len(experts.gate) == len(experts.up) == len(experts.down) == num_experts,
            f"{num_experts} router logits need as many experts, got {len(experts.gate)}",
        )
        _check(
            0 < experts.top_k <= num_experts,
            f"a row cannot go through {experts.top_k} of {num_experts} experts",
        )
        _check(add_to.width == x.width, f"cannot add {x.width} columns to another width")
        self.ops.append(MixtureOfExperts(add_to, x, router, experts))
        return add_to

    def logits(self, x: Buffer, weight: Weight, *, soft_cap: float | None = None) -> None:
        """The output head; ends the program."""
        _check(
            weight.shape[1] == x.width,
            f"head {weight.name} takes {weight.shape[1]} columns, rows have {x.width}",
        )
        self.ops.append(Logits(x, weight, soft_cap))

    @property
    def head(self) -> Logits | None:
        """The final `Logits` op, if the program has one."""
        last = self.ops[-1] if self.ops else None
        return last if isinstance(last, Logits) else None

    def _buffer(self, width: int) -> Buffer:
        buffer = Buffer(len(self.buffers), width)
        self.buffers.append(buffer)
        return buffer


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _check_norm(weight: Weight, width: int) -> None:
    _check(weight.shape == (width,), f"norm weight {weight.name} has shape {weight.shape}, rows have {width}")
