"""The ops that need nothing but their rows, as formulas over numpy arrays of either float width."""

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.kernels.program import Activation

Rows = npt.NDArray[Any]
"""[num_rows, width], float32 or float64."""


def rms_norm(rows: Rows, weight: Rows, eps: float) -> Rows:
    """``x / sqrt(mean(x²) + eps) * weight`` over the last axis; ``weight``: [width]."""
    mean_square = np.mean(rows * rows, axis=-1, keepdims=True)
    normalized: Rows = rows / np.sqrt(mean_square + eps) * weight
    return normalized


def gated_activation(gate_up: Rows, activation: Activation) -> Rows:
    """``activation(gate) * up`` of rows [gate | up]: [num_rows, width / 2]."""
    gate, up = np.split(gate_up, 2, axis=1)
    activated = silu(gate) if activation is Activation.SILU else gelu_tanh(gate)
    product: Rows = activated * up
    return product


def silu(x: Rows) -> Rows:
    """``x · sigmoid(x)``."""
    activated: Rows = x / (1 + np.exp(-x))
    return activated


def gelu_tanh(x: Rows) -> Rows:
    """The tanh approximation of ``x · Φ(x)``."""
    inner = 0.7978845608 * (x + 0.044715 * x * x * x)
    activated: Rows = 0.5 * x * (1 + np.tanh(inner))
    return activated


def soft_cap(values: Rows, cap: float | None) -> Rows:
    """``cap · tanh(values / cap)``: smoothly into (-cap, cap); unchanged without a cap."""
    if cap is None:
        return values
    capped: Rows = cap * np.tanh(values / cap)
    return capped
