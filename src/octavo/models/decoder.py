"""`DecoderBuilder`: the parts that decoder-only transformers share, appended to a `Program`."""

from octavo.kernels.program import Activation, Buffer, Program
from octavo.kernels.weight import Weight
from octavo.models.spec import ModelSpec
from octavo.models.weights import Weights


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

    def norm(self, x: Buffer, layer: int, role: str) -> Buffer:
        """Root-mean-square norm of a layer."""
        weight = self._weights.vector(f"blk.{layer}.{role}.weight", x.width)
        return self._program.rms_norm(x, weight, eps=self._spec.rms_norm_eps)

    def linear(self, x: Buffer, layer: int, role: str, *, add_to: Buffer) -> Buffer:
        """A product that goes into the residual stream."""
        weight = self._weights.matrix(f"blk.{layer}.{role}.weight", add_to.width, x.width)
        return self._program.linear(x, weight, add_to=add_to)

    def attend(self, h: Buffer, layer: int) -> Buffer:
        """Attention of ``h`` without the product behind it: [num_heads * head_dim]."""
        spec, attention = self._spec, self._spec.layers[layer]
        queries = self._program.rope_and_write_kv(
            self._program.linear(h, *self._qkv(h, layer)),
            layer=layer,
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            rope=attention.rope,
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

    def gated_mlp(self, h: Buffer, layer: int, *, activation: Activation = Activation.SILU) -> Buffer:
        """The gated MLP without the product behind it: [intermediate_size]."""
        rows = self._spec.intermediate_size
        gate_up = [
            self._weights.matrix(f"blk.{layer}.{role}.weight", rows, h.width)
            for role in ("ffn_gate", "ffn_up")
        ]
        return self._program.gated_activation(self._program.linear(h, *gate_up), activation=activation)

    def finish(self, x: Buffer) -> Program:
        """The last norm and the output head; the program is complete."""
        spec = self._spec
        norm = self._weights.vector("output_norm.weight", spec.hidden_size)
        head = self._embedding
        if not spec.tied_head:
            head = self._weights.matrix("output.weight", spec.vocab_size, spec.hidden_size)
        x = self._program.rms_norm(x, norm, eps=spec.rms_norm_eps)
        self._program.logits(x, head, soft_cap=spec.logit_soft_cap)
        return self._program

    def _qkv(self, h: Buffer, layer: int) -> list[Weight]:
        q_width, kv_width = (n * self._spec.head_dim for n in (self._spec.num_heads, self._spec.num_kv_heads))
        return [
            self._weights.matrix(f"blk.{layer}.{role}.weight", width, h.width)
            for role, width in (("attn_q", q_width), ("attn_k", kv_width), ("attn_v", kv_width))
        ]
