"""`Weights`: the tensors of one model by name, each with the shape that the model gives it."""

import math
from collections.abc import Mapping

import numpy as np

from octavo.errors import ModelLoadError
from octavo.kernels.weight import Quantization, Weight
from octavo.models.quoting import quote
from octavo.models.source import ModelSource


class Weights:
    """Hands out tensors, and knows afterwards which ones nobody asked for."""

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        self._taken: dict[str, Weight] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._source.tensors

    def matrix(self, name: str, num_rows: int, num_columns: int) -> Weight:
        """A weight [num_rows, num_columns]; one row makes one output feature.

        Raises:
            ModelLoadError: it is missing, of another shape, or of an unsupported type.
        """
        return self._take(name, (num_rows, num_columns))

    def vector(self, name: str, length: int) -> Weight:
        """A float32 weight [length].

        Raises:
            ModelLoadError: it is missing, of another shape, or not stored as F32.
        """
        weight = self._take(name, (length,))
        if weight.quantization is not Quantization.F32:
            raise ModelLoadError(
                f"{self._source.path}: tensor {quote(name)} must be F32, found {weight.quantization}"
            )
        return weight

    def joined_vector(self, lengths: Mapping[str, int]) -> Weight:
        """Several vectors as one, a copy; ``lengths`` by name.

        Raises:
            ModelLoadError: as for `vector`.
        """
        raw = np.concatenate([self.vector(name, length).raw for name, length in lengths.items()])
        return Weight("+".join(lengths), (sum(lengths.values()),), Quantization.F32, raw)

    def experts(self, layer: int, role: str, shape: tuple[int, int, int]) -> tuple[Weight, ...]:
        """One weight [rows, columns] for each expert, of ``shape`` (experts, rows, columns).

        Raises:
            ModelLoadError: as for `matrix`.
        """
        num_experts, num_rows, num_columns = shape
        name = f"blk.{layer}.{role}_exps.weight"
        if name not in self:
            singles = (f"blk.{layer}.{role}.{expert}.weight" for expert in range(num_experts))
            return tuple(self.matrix(single, num_rows, num_columns) for single in singles)
        stacked = self._take(name, shape)
        return tuple(
            Weight(f"{name}[{expert}]", (num_rows, num_columns), stacked.quantization, raw)
            for expert, raw in enumerate(np.split(stacked.raw, num_experts))
        )

    @property
    def num_parameters(self) -> int:
        """Numbers in all tensors handed out; a tensor used twice counts once."""
        return sum(math.prod(self._source.tensors[name].shape) for name in self._taken)

    @property
    def num_bytes(self) -> int:
        """Stored size of all tensors handed out."""
        return sum(weight.raw.nbytes for weight in self._taken.values())

    def check_all_used(self) -> None:
        """Refuse a file with tensors that the program does not use: its results would be wrong.

        Raises:
            ModelLoadError: a tensor was never asked for.
        """
        unused = [name for name in self._source.tensors if name not in self._taken]
        if unused:
            others = f" (and {len(unused) - 1} more)" if len(unused) > 1 else ""
            raise ModelLoadError(
                f"{self._source.path}: tensor {quote(unused[0])}{others} belongs to a variant of the model"
                " that is not supported"
            )

    def _take(self, name: str, shape: tuple[int, ...]) -> Weight:
        if name not in self._taken:
            self._taken[name] = self._source.weight(name)
        weight = self._taken[name]
        if weight.shape != shape:
            raise ModelLoadError(
                f"{self._source.path}: tensor {quote(name)} must have shape {shape}, found {weight.shape}"
            )
        return weight


def split_rows(weight: Weight, num_rows: int) -> list[Weight]:
    """A matrix as matrices of ``num_rows`` rows each, which are views of it."""
    parts = np.split(weight.raw, weight.shape[0] // num_rows)
    return [
        Weight(f"{weight.name}[{number}]", (num_rows, weight.shape[1]), weight.quantization, raw)
        for number, raw in enumerate(parts)
    ]
