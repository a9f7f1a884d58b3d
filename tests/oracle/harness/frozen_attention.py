"""Attention of one row and head, operation by operation as ADR 0001 and, for int8 caches, 0016 have it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from harness.fused import fma
from octavo.kernels.int8_vectors import Int8Vectors
from octavo.kernels.reference_exp import exp_float32

F32 = np.float32
TILE, PARTITION = 64, 256
WEIGHT_STEPS = F32(255)
SMALLEST_PEAK = F32(1e-30)
LOG2_E = F32(1.44269504088896341)
EXP2_COEFFICIENTS = tuple(map(F32, (5.50089301e-2, 2.42210959e-1, 6.93282927e-1, 1.0)))
"""Of a polynomial in the fraction, the highest power first."""


class Partial(NamedTuple):
    """What is known of a row after some of its tokens."""

    largest: np.float32
    total: np.float32
    output: np.ndarray
    """[head_dim]"""


AddTile = Callable[[Partial, np.ndarray], Partial]
"""Called with what is known so far and the positions of a tile's visible tokens."""


def attention(add_tile: AddTile, head_dim: int, visible: tuple[int, int]) -> np.ndarray:
    """Output [head_dim] of a row that sees the positions from the first to before the second."""
    merged = None
    for start in range(visible[0] // PARTITION * PARTITION, visible[1], PARTITION):
        partial = _partition(add_tile, head_dim, _clip(visible, start, PARTITION))
        merged = partial if merged is None else _merge(merged, partial)
    assert merged is not None
    return merged.output * (F32(1) / merged.total)


def float_tile(query: np.ndarray, keys: np.ndarray, values: np.ndarray, soft_cap: float | None) -> AddTile:
    """Over K and V [seq_len, head_dim] in float32; the query is scaled."""

    def add(known: Partial, tokens: np.ndarray) -> Partial:
        scores = np.zeros(len(tokens), F32)
        for element, column in zip(query, keys[tokens].T, strict=True):
            scores = fma(element, column, scores)
        scores = _capped(scores, soft_cap)
        largest = max(known.largest, scores.max())
        weights, correction = exp_float32(scores - largest), _correction(known.largest, largest)
        output = known.output * correction
        for weight, value in zip(weights, values[tokens], strict=True):
            output = fma(weight, value, output)
        return Partial(largest, fma(known.total, correction, _lane_sum(weights, tokens)), output)

    return add


def int8_tile(query: Int8Vectors, keys: Int8Vectors, values: Int8Vectors, soft_cap: float | None) -> AddTile:
    """Over K and V [seq_len, head_dim] as an int8 cache has them; the query is scaled and rotated."""
    quants = query.quants.astype(np.int64)

    def add(known: Partial, tokens: np.ndarray) -> Partial:
        scores = (keys.quants[tokens] @ quants).astype(F32) * keys.scales[tokens]
        factor = query.scales
        if soft_cap is not None:
            scores, factor = _capped(scores * factor, soft_cap), F32(1)
        largest = max(known.largest, scores.max() * factor)
        exponentials = _exp2_of_falls(fma(scores, factor * LOG2_E, -(largest * LOG2_E)))
        correction = _correction(known.largest, largest)
        total = fma(known.total, correction, _lane_sum(exponentials, tokens))
        products = exponentials * values.scales[tokens]
        peak = max(products.max(), SMALLEST_PEAK)
        weights = np.rint(np.float64(products) * np.float64(WEIGHT_STEPS / peak)).astype(np.int64)
        sums = (weights @ values.quants[tokens]).astype(F32)
        return Partial(largest, total, fma(sums, peak / WEIGHT_STEPS, known.output * correction))

    return add


def _clip(visible: tuple[int, int], start: int, length: int) -> tuple[int, int]:
    return max(visible[0], start), min(visible[1], start + length)


def _partition(add_tile: AddTile, head_dim: int, visible: tuple[int, int]) -> Partial:
    known = Partial(F32(-np.inf), F32(0), np.zeros(head_dim, F32))
    for start in range(visible[0] // TILE * TILE, visible[1], TILE):
        known = add_tile(known, np.arange(*_clip(visible, start, TILE)))
    return known


def _merge(merged: Partial, partial: Partial) -> Partial:
    largest = max(merged.largest, partial.largest)
    a, b = _exp(merged.largest - largest), _exp(partial.largest - largest)
    total = fma(merged.total, a, partial.total * b)
    return Partial(largest, total, fma(merged.output, a, partial.output * b))


def _capped(scores: np.ndarray, soft_cap: float | None) -> np.ndarray:
    if soft_cap is None:
        return scores
    e = exp_float32(F32(2) * (scores / F32(soft_cap)))
    return F32(soft_cap) * (F32(1) - F32(2) / (e + F32(1)))


def _correction(before: np.float32, largest: np.float32) -> np.float32:
    return F32(0) if before == -np.inf else _exp(before - largest)


def _lane_sum(weights: np.ndarray, tokens: np.ndarray) -> np.float32:
    lanes = np.zeros(16, F32)
    for weight, token in zip(weights, tokens, strict=True):
        lanes[token % 16] += weight
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return lanes[0]


def _exp2_of_falls(x: np.ndarray) -> np.ndarray:
    """2**x of the lesser of x and 0, to within 1.1e-4 of it."""
    x = np.clip(x, F32(-126), F32(0))
    whole = np.rint(x)
    power = np.full_like(x, EXP2_COEFFICIENTS[0])
    for coefficient in EXP2_COEFFICIENTS[1:]:
        power = fma(power, x - whole, coefficient)
    return np.ldexp(power, whole.astype(np.int32))


def _exp(x: np.float32) -> np.float32:
    return exp_float32(np.array([x], F32))[0]
