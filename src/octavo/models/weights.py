"""`Weights`: the tensors of one model by name, each with the shape that the model gives it."""

from octavo.errors import ModelLoadError
from octavo.kernels.weight import Quantization, Weight
from octavo.models.gguf import GGUFFile
from octavo.models.quoting import quote


class Weights:
    """Hands out tensors, and knows afterwards which ones nobody asked for."""

    def __init__(self, file: GGUFFile) -> None:
        self._file = file
        self._taken: dict[str, Weight] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._file.tensors

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
                f"{self._file.path}: tensor {quote(name)} must be F32, found {weight.quantization}"
            )
        return weight

    @property
    def num_parameters(self) -> int:
        """Numbers in all tensors handed out; a tensor used twice counts once."""
        return sum(self._file.tensors[name].num_elements for name in self._taken)

    @property
    def num_bytes(self) -> int:
        """Stored size of all tensors handed out."""
        return sum(weight.raw.nbytes for weight in self._taken.values())

    def check_all_used(self) -> None:
        """Refuse a file with tensors that the program does not use: its results would be wrong.

        Raises:
            ModelLoadError: a tensor was never asked for.
        """
        unused = [name for name in self._file.tensors if name not in self._taken]
        if unused:
            others = f" (and {len(unused) - 1} more)" if len(unused) > 1 else ""
            raise ModelLoadError(
                f"{self._file.path}: tensor {quote(unused[0])}{others} belongs to a variant of the model that"
                " is not supported"
            )

    def _take(self, name: str, shape: tuple[int, ...]) -> Weight:
        if name not in self._taken:
            self._taken[name] = self._file.weight(name)
        weight = self._taken[name]
        if weight.shape != shape:
            raise ModelLoadError(
                f"{self._file.path}: tensor {quote(name)} must have shape {shape}, found {weight.shape}"
            )
        return weight
