"""`DecoderBuilder`: the parts that decoder-only transformers share, appended to a `Program`."""

from octavo.kernels.dataflow import keep_logit_rows
from octavo.kernels.program import Activation, Buffer, Experts, HeadNorms, Program
from octavo.kernels.weight import Weight
from octavo.models.spec import ModelSpec
from octavo.models.weights import Weights, split_rows


class DecoderBuilder:
    """Writes a program for one model; an architecture says which parts it has, and in which order.

    Roles are the middle of GGUF's tensor names: "attn_q" of layer 3 is ``blk.3.attn_q.weight``. All methods
    raise `ModelLoadError` if a tensor is missing, or of another shape than the model's numbers say.
    """

    def __init__(self, spec: ModelSpec, weights: Weights) -> None:
        self._spec = spec
        self._weights = weights
        self._program = Program()
        self._embedding = weights.matrix("token_embd.weight", spec.vocab_size, spec.hidden_size)

    def embed(self, *, scale: float = 1.0) -> Buffer:
        """The tokens' embeddings: where the residual stream starts."""
        return self._program.embed(self._embedding, scale=scale)

    def norm(self, x: Buffer, layer: int, role: str, *, add_to: Buffer | None = None) -> Buffer:
        """Root-mean-square norm of a layer, which may go into the residual stream ``add_to``."""
        weight = self._vector(layer, role, x.width)
        return self._program.rms_norm(x, weight, eps=self._spec.rms_norm_eps, add_to=add_to)

    def linear(self, x: Buffer, layer: int, role: str, *, add_to: Buffer | None = None) -> Buffer:
        """A product [hidden_size], which may go into the residual stream ``add_to``."""
        weight = self._matrix(layer, role, self._spec.hidden_size, x.width)
        return self._program.linear(x, weight, add_to=add_to)

    def attend(
        self, h: Buffer, layer: int, *, biased: bool = False, fused: bool = False, normed: bool = False
    ) -> Buffer:
        """Attention of ``h`` without the product behind it: [num_heads * head_dim].

        Args:
            h: rows of the residual stream, normed.
            layer: whose attention.
            biased: queries, keys and values have biases.
            fused: their weights are one tensor.
            normed: every head of queries and keys goes through a norm.
        """
        spec, attention = self._spec, self._spec.layers[layer]
        weights = self._fused_qkv(layer) if fused else self._qkv(layer)
        queries = self._program.rope_and_write_kv(
            self._program.linear(h, *weights, bias=self._qkv_bias(layer) if biased else None),
            layer=layer,
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            rope=attention.rope,
            norms=self._head_norms(layer) if normed else None,
        )
        return self._program.paged_attention(
            queries,
            layer=layer,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            scale=spec.attention_scale,
            window=attention.window,
            soft_cap=spec.attention_soft_cap,
        )

    def gated_mlp(
        self, h: Buffer, layer: int, *, activation: Activation = Activation.SILU, fused: bool = False
    ) -> Buffer:
        """The gated MLP without the product behind it: [intermediate_size].

        Args:
            h: rows of the residual stream, normed.
            layer: whose MLP.
            activation: of the gate.
            fused: gate and up are one tensor, "ffn_up".
        """
        rows = self._spec.intermediate_size
        if fused:
            gate_up = split_rows(self._matrix(layer, "ffn_up", 2 * rows, h.width), rows)
        else:
            gate_up = [self._matrix(layer, role, rows, h.width) for role in ("ffn_gate", "ffn_up")]
        return self._program.gated_activation(self._program.linear(h, *gate_up), activation=activation)

    def mixture_of_experts(self, h: Buffer, layer: int, *, add_to: Buffer) -> Buffer:
        """A layer's experts, whose results go into the residual stream."""
        spec = self._spec.experts
        if spec is None:
            raise ValueError(f"{self._spec.architecture} has no experts")
        router = self._matrix(layer, "ffn_gate_inp", spec.num_experts, h.width)
        gate, up, down = (
            self._weights.experts(layer, role, (spec.num_experts, rows, columns))
            for role, rows, columns in (
                ("ffn_gate", spec.intermediate_size, h.width),
                ("ffn_up", spec.intermediate_size, h.width),
                ("ffn_down", h.width, spec.intermediate_size),
            )
        )
        experts = Experts(gate, up, down, spec.top_k, spec.normalized)
        return self._program.mixture_of_experts(h, self._program.linear(h, router), experts, add_to=add_to)

    def finish(self, x: Buffer) -> Program:
        """The last norm and the output head; the program is complete.

        It drops rows that a step wants nothing of once the last layer has their K and V.
        """
        spec = self._spec
        norm = self._weights.vector("output_norm.weight", spec.hidden_size)
        head = self._embedding
        if not spec.tied_head:
            head = self._weights.matrix("output.weight", spec.vocab_size, spec.hidden_size)
        x = self._program.rms_norm(x, norm, eps=spec.rms_norm_eps)
        self._program.logits(x, head, soft_cap=spec.logit_soft_cap)
        keep_logit_rows(self._program)
        return self._program

    def _qkv(self, layer: int) -> list[Weight]:
        hidden = self._spec.hidden_size
        return [self._matrix(layer, role, width, hidden) for role, width in self._qkv_widths()]

    def _fused_qkv(self, layer: int) -> list[Weight]:
        width = sum(width for _, width in self._qkv_widths())
        return [self._matrix(layer, "attn_qkv", width, self._spec.hidden_size)]

    def _qkv_bias(self, layer: int) -> Weight:
        names = {f"blk.{layer}.{role}.bias": width for role, width in self._qkv_widths()}
        return self._weights.joined_vector(names)

    def _qkv_widths(self) -> tuple[tuple[str, int], ...]:
        queries, keys = (
            heads * self._spec.head_dim for heads in (self._spec.num_heads, self._spec.num_kv_heads)
        )
        return ("attn_q", queries), ("attn_k", keys), ("attn_v", keys)

    def _head_norms(self, layer: int) -> HeadNorms:
        query, key = (
            self._vector(layer, role, self._spec.head_dim) for role in ("attn_q_norm", "attn_k_norm")
        )
        return HeadNorms(query, key, self._spec.rms_norm_eps)

    def _matrix(self, layer: int, role: str, num_rows: int, num_columns: int) -> Weight:
        return self._weights.matrix(f"blk.{layer}.{role}.weight", num_rows, num_columns)

    def _vector(self, layer: int, role: str, length: int) -> Weight:
        return self._weights.vector(f"blk.{layer}.{role}.weight", length)
