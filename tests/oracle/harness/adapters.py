"""Random adapters, and ops whose rows belong to requests with and without them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from harness.op_cases import OpCase
from harness.steps import Part, make_step
from octavo.kernels.adapter import Adapter, LowRankPair
from octavo.kernels.program import Linear
from octavo.kernels.weight import Weight


def random_pair(rng: np.random.Generator, weight: Weight, rank: int) -> LowRankPair:
    """Matrices whose product is about as large as the weight."""
    rows, columns = weight.shape
    a = rng.normal(0, columns**-0.5, (rank, columns)).astype(np.float32)
    b = rng.normal(0, rank**-0.5, (rows, rank)).astype(np.float32)
    return LowRankPair(a, b, float(np.float32(rng.uniform(0.25, 2))))


def random_adapter(
    rng: np.random.Generator, case: OpCase, *, ranks: Sequence[int], share: float = 0.7
) -> Adapter:
    """Pairs of random ranks for about a ``share`` of all parts, at least one."""
    parts = [part for op in case.program.ops if isinstance(op, Linear) for part in op.parts]
    chosen = [part for part in parts if rng.random() < share] or parts[:1]
    return Adapter({part: random_pair(rng, part, int(rng.choice(ranks))) for part in chosen})


def with_adapters(
    case: OpCase, adapters: Mapping[int, Adapter], *, lengths: Sequence[int], slots: Sequence[int]
) -> OpCase:
    """The same rows, as those of requests of these lengths with the adapters in these slots."""
    step = make_step([Part(0, length) for length in lengths], np.zeros((len(lengths), max(lengths))))
    step = replace(step, adapter_slots=np.array(slots, np.int32), logit_rows=case.step.logit_rows)
    return replace(case, step=step, adapters=adapters)
