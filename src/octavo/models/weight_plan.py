"""Which weights `--quantization` changes, and into what."""

from octavo.config import QuantizationName
from octavo.kernels.weight import Quantization

GROUP_SIZE = 32
"""Weights that share a scale."""

_AT_8_BITS = frozenset({"token_embd.weight", "output.weight"})
_AS_STORED = "ffn_gate_inp"
"""The router of a mixture of experts: small, and a wrong expert costs more than its bytes."""


def planned_quantization(name: str, shape: tuple[int, ...], kind: QuantizationName) -> Quantization | None:
    """The format of a tensor; ``None`` if it stays as it is stored.

    Matrices are quantised, in groups of 32 along a row: at 8 bits with a scale, at 4 with a scale and a
    minimum. The embedding table and the output head get 8 bits. Vectors, and matrices whose rows are not
    whole groups, stay.

    Args:
        name: GGUF's.
        shape: (rows, columns), (columns,), or (experts, rows, columns).
        kind: what was asked for.
    """
    if kind == "none" or len(shape) < 2 or shape[-1] % GROUP_SIZE or _AS_STORED in name:
        return None
    return Quantization.Q8_0 if kind == "int8" or name in _AT_8_BITS else Quantization.Q4_1
