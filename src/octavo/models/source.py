"""`ModelSource`: what a model is read from, whatever the format of its files.

GGUF's names are the vocabulary: a source of another format hands out its metadata under GGUF's keys
(``llama.block_count``) and its tensors under GGUF's names (``blk.0.attn_q.weight``), so that each
architecture is described once. What such a source has to bring into GGUF's form besides names:

- vectors (norms, biases) are F32, and a norm's weight is the factor itself (Gemma's files hold it minus 1);
- ``octavo.rope_style`` is "half_split" if the rows of queries and keys lie as in Hugging Face files;
- the rope section has GGUF's keys; what GGUF has as tensors may be ``rope.scaling.type`` "llama3" with
  ``low_freq_factor`` and ``high_freq_factor``, or arrays ``short_factors`` and ``long_factors``
  (`octavo.models.huggingface_rope` makes them of a ``config.json``);
- the experts of a layer are one tensor ``blk.0.ffn_gate_exps.weight`` [experts, rows, columns], or one each:
  ``blk.0.ffn_gate.7.weight`` [rows, columns].
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from octavo.kernels.weight import Weight
from octavo.models.gguf_metadata import Metadata


class TensorShape(Protocol):
    """One line of a source's directory of tensors."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, columns), (columns,), or (experts, rows, columns)."""
        ...


class ModelSource(Protocol):
    """An open model."""

    @property
    def path(self) -> Path:
        """Where it lies; messages begin with it."""
        ...

    @property
    def files(self) -> Sequence[Path]:
        """The files that weights are read from."""
        ...

    @property
    def metadata(self) -> Metadata:
        """Numbers and names by GGUF's keys."""
        ...

    @property
    def tensors(self) -> Mapping[str, TensorShape]:
        """All tensors by GGUF's names."""
        ...

    def weight(self, name: str) -> Weight:
        """One tensor; `ModelLoadError` if it is not there or of a type that is not supported."""
        ...

    def fingerprint(self) -> bytes:
        """32 bytes that differ between models whose K/V must not be mixed."""
        ...
