"""The tensor types that GGUF files name by number, and which of them can be run."""

from collections.abc import Mapping
from types import MappingProxyType

from octavo.kernels.weight import Quantization

SUPPORTED: Mapping[int, Quantization] = MappingProxyType(
    {
        0: Quantization.F32,
        1: Quantization.F16,
        2: Quantization.Q4_0,
        3: Quantization.Q4_1,
        6: Quantization.Q5_0,
        7: Quantization.Q5_1,
        8: Quantization.Q8_0,
        10: Quantization.Q2_K,
        11: Quantization.Q3_K,
        12: Quantization.Q4_K,
        13: Quantization.Q5_K,
        14: Quantization.Q6_K,
        20: Quantization.IQ4_NL,
        23: Quantization.IQ4_XS,
        30: Quantization.BF16,
    }
)
"""By GGUF's number. How each is stored is `octavo.kernels.quantization.BLOCK_LAYOUTS`."""

_UNSUPPORTED: dict[int, str] = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


def type_name(type_id: int) -> str:
    """The name of a tensor type, or its number if nobody has named it."""
    return SUPPORTED.get(type_id) or _UNSUPPORTED.get(type_id, f"number {type_id}")
