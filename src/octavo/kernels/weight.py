"""`Weight`: one tensor of a model file, in the quantisation in which it lies there."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt


class Quantization(StrEnum):
    """How the numbers of a tensor are stored; names and block layouts are GGUF's."""

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    Q4_0 = "Q4_0"
    Q4_1 = "Q4_1"
    Q5_0 = "Q5_0"
    Q5_1 = "Q5_1"
    Q8_0 = "Q8_0"
    Q4_K = "Q4_K"
    Q5_K = "Q5_K"
    Q6_K = "Q6_K"
    Q2_K = "Q2_K"
    Q3_K = "Q3_K"
    IQ4_NL = "IQ4_NL"
    IQ4_XS = "IQ4_XS"


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A tensor of ``shape`` (rows, columns), or (columns,) for a vector; a row is one output feature.

    ``raw`` holds the stored bytes of all rows, one row after another, as uint8. It may be a view of
    a memory-mapped file, and is never written. Two uses of one tensor (a tied head) share one object.
    """

    name: str
    shape: tuple[int, ...]
    quantization: Quantization
    raw: npt.NDArray[np.uint8]
