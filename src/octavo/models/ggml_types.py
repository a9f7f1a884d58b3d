"""The tensor types that GGUF files name by number, and the sizes of those that Octavo can run."""

from typing import NamedTuple

from octavo.kernels.weight import Quantization


class BlockLayout(NamedTuple):
    """How a type is stored: ``num_bytes`` hold ``num_elements`` consecutive elements of a row."""

    quantization: Quantization
    num_elements: int
    num_bytes: int


SUPPORTED: dict[int, BlockLayout] = {
    0: BlockLayout(Quantization.F32, 1, 4),
    1: BlockLayout(Quantization.F16, 1, 2),
    2: BlockLayout(Quantization.Q4_0, 32, 18),
    3: BlockLayout(Quantization.Q4_1, 32, 20),
    6: BlockLayout(Quantization.Q5_0, 32, 22),
    7: BlockLayout(Quantization.Q5_1, 32, 24),
    8: BlockLayout(Quantization.Q8_0, 32, 34),
    12: BlockLayout(Quantization.Q4_K, 256, 144),
    13: BlockLayout(Quantization.Q5_K, 256, 176),
    14: BlockLayout(Quantization.Q6_K, 256, 210),
    30: BlockLayout(Quantization.BF16, 1, 2),
}

_UNSUPPORTED: dict[int, str] = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


def type_name(type_id: int) -> str:
    """The name of a tensor type, or its number if nobody has named it."""
    if layout := SUPPORTED.get(type_id):
        return layout.quantization
    return _UNSUPPORTED.get(type_id, f"number {type_id}")
