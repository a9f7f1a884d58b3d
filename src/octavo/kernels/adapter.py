"""`Adapter`: a low-rank change of some weights, applied to the rows of the requests that ask for it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from octavo.kernels.program import Linear, Program
from octavo.kernels.weight import Weight

MAX_RANK = 256
NO_ADAPTER = -1
"""In place of a slot: the request has none."""

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class LowRankPair:
    """What is added to the product with one weight: ``(x @ a.T) @ b.T * scale``."""

    a: Float32
    """[rank, columns of the weight]"""
    b: Float32
    """[rows of the weight, rank]"""
    scale: float

    @property
    def rank(self) -> int:
        """Width of the detour."""
        return len(self.a)

    @property
    def num_bytes(self) -> int:
        """Size of both matrices."""
        return self.a.nbytes + self.b.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """Pairs by the weight whose product they change; the weights are parts of a program's linears.

    Both interpreters keep adapters in numbered slots (`Interpreter.set_adapter`). A row gets what its own
    adapter adds after the linear is complete, bias and residual included; rows without one are as if there
    were no adapters.
    """

    pairs: Mapping[Weight, LowRankPair]

    @property
    def num_bytes(self) -> int:
        """Size of all matrices."""
        return sum(pair.num_bytes for pair in self.pairs.values())


class PlacedPair(NamedTuple):
    """A pair, and where in a program its weight is."""

    linear: int
    """Number among the program's linears."""
    part: int
    """Of that linear."""
    pair: LowRankPair


def placed_pairs(program: Program, adapter: Adapter) -> Iterator[PlacedPair]:
    """The pairs of an adapter by the place of their weights, in the order of the program.

    Raises:
        ValueError: a weight is no part of a linear, or a matrix has not the shape that its weight needs.
    """
    linears = [op for op in program.ops if isinstance(op, Linear)]
    missing = set(adapter.pairs)
    for number, op in enumerate(linears):
        for part, weight in enumerate(op.parts):
            if weight in adapter.pairs:
                missing.discard(weight)
                pair = adapter.pairs[weight]
                _check_shapes(weight, pair)
                yield PlacedPair(number, part, pair)
    if missing:
        raise ValueError(f"weight {missing.pop().name} is no part of a linear of the program")


def _check_shapes(weight: Weight, pair: LowRankPair) -> None:
    rows, columns = weight.shape
    if not 1 <= pair.rank <= MAX_RANK:
        raise ValueError(f"the adapter of {weight.name} has rank {pair.rank}, it must be 1 … {MAX_RANK}")
    if pair.a.shape != (pair.rank, columns) or pair.b.shape != (rows, pair.rank):
        raise ValueError(
            f"the adapter of {weight.name} {weight.shape} needs matrices {(pair.rank, columns)} and "
            f"{(rows, pair.rank)}, got {pair.a.shape} and {pair.b.shape}"
        )
