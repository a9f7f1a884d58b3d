"""A mixture of experts, row by row, for `ReferenceInterpreter`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from octavo.kernels.program import Experts
from octavo.kernels.reference_ops import gated_activation
from octavo.kernels.weight import Weight

Rows = npt.NDArray[Any]


class Choices(NamedTuple):
    """The experts of each row, the most preferred first."""

    expert_ids: npt.NDArray[np.intp]
    """[num_rows, top_k]"""
    weights: Rows
    """[num_rows, top_k]"""


def choose_experts(router: Rows, *, top_k: int, normalized: bool) -> Choices:
    """Which experts rows of router logits [num_rows, num_experts] prefer; ties by ascending id."""
    expert_ids = np.argsort(-router, axis=1, kind="stable")[:, :top_k]
    exponentials = np.exp(router - router.max(axis=1, keepdims=True))
    chosen = np.take_along_axis(exponentials, expert_ids, axis=1)
    totals = (chosen if normalized else exponentials).sum(axis=1, keepdims=True)
    return Choices(expert_ids, chosen / totals)


def mix_experts(
    x: Rows,  # [num_rows, width]
    router: Rows,  # [num_rows, num_experts]
    experts: Experts,
    product: Callable[[Rows, Weight], Rows],
) -> Rows:
    """The weighted sum of what the experts make of each row [num_rows, width].

    ``product(rows, weight)`` multiplies rows with a weight.
    """
    choices = choose_experts(router, top_k=experts.top_k, normalized=experts.normalized)
    total = np.zeros_like(x)
    for rank in range(experts.top_k):
        for expert in np.unique(choices.expert_ids[:, rank]):
            rows = np.flatnonzero(choices.expert_ids[:, rank] == expert)
            gate_up = [product(x[rows], part[expert]) for part in (experts.gate, experts.up)]
            hidden = gated_activation(np.concatenate(gate_up, axis=1), experts.activation)
            total[rows] += choices.weights[rows, rank, None] * product(hidden, experts.down[expert])
    return total
