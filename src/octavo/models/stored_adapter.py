"""`StoredAdapter`: a LoRA adapter as its files have it, whatever their format, before it meets a model."""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.kernels.weight import Weight


class StoredPair(NamedTuple):
    """The two matrices for one weight of the base."""

    target: str
    """The weight by GGUF's name, such as ``blk.0.attn_q.weight``."""
    stored_name: str
    """What the file calls it, for messages."""
    a: Weight
    """[rank, columns of the weight]"""
    b: Weight
    """[rows of the weight, rank]"""
    scale: float
    """Factor of the product of both."""


class StoredAdapter(NamedTuple):
    """An open adapter. The matrices are views of mapped files, which they keep open."""

    pairs: Sequence[StoredPair]
    has_half_split_heads: bool
    """Whether the rows of queries and keys lie as in Hugging Face files; else as in GGUF's."""
    base: str
    """What the adapter says it was trained on, or nothing; for messages."""
    revision: str
    """Digest of the files: equal only where the numbers are."""
