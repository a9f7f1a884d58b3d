"""The ops once more, as loops over Python floats, written from the formulas: no array code is shared."""

import math
from collections.abc import Sequence


def rms_norm(x: Sequence[float], weight: Sequence[float], eps: float) -> list[float]:
    mean_square = math.fsum(value * value for value in x) / len(x)
    return [value / math.sqrt(mean_square + eps) * factor for value, factor in zip(x, weight, strict=True)]


def linear(x: Sequence[float], weight: Sequence[Sequence[float]]) -> list[float]:
    return [dot(x, row) for row in weight]


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def silu(x: float) -> float:
    return x / (1 + math.exp(-x))


def gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def soft_cap(x: float, cap: float | None) -> float:
    return x if cap is None else cap * math.tanh(x / cap)


def rotate(head: Sequence[float], angles: Sequence[float], *, interleaved: bool) -> list[float]:
    """Pair i turned by ``angles[i]``, as a complex number; what belongs to no pair is kept."""
    rotated = list(head)
    for i, angle in enumerate(angles):
        first, second = (2 * i, 2 * i + 1) if interleaved else (i, i + len(angles))
        turned = complex(head[first], head[second]) * complex(math.cos(angle), math.sin(angle))
        rotated[first], rotated[second] = turned.real, turned.imag
    return rotated


def attention(
    query: Sequence[float],
    keys: Sequence[Sequence[float]],
    values: Sequence[Sequence[float]],
    *,
    scale: float,
    cap: float | None = None,
) -> list[float]:
    """One query over the keys and values that it sees."""
    weights = [math.exp(soft_cap(scale * dot(query, key), cap)) for key in keys]
    total = math.fsum(weights)
    return [dot(weights, column) / total for column in zip(*values, strict=True)]
