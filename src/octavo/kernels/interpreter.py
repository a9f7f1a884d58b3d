"""`Interpreter`, `KVStore`, `StepInput`: what runs a `Program`, whatever runs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from octavo.kernels.adapter import Adapter
from octavo.kernels.arrays import FloatArray, IntArray
from octavo.kernels.program import Buffer
from octavo.kernels.sampling import Sampler, SamplingInput, SamplingOutput
from octavo.kv.spec import KVCacheSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInput:
    """One step's rows. Request i owns rows ``query_start_loc[i] … query_start_loc[i + 1] - 1``.

    The row at ``positions[row]`` writes K/V to slot
    ``block_tables[i, position // block_size] * block_size + position % block_size``.
    All arrays are int32 and C-contiguous; they may be views of larger persistent arrays.
    """

    token_ids: IntArray
    """[num_tokens]"""
    positions: IntArray
    """[num_tokens]; within a request consecutive."""
    query_start_loc: IntArray
    """[num_requests + 1]"""
    seq_lens: IntArray
    """[num_requests]; tokens with K/V in the cache once the step is done."""
    block_tables: IntArray
    """[num_requests, max_blocks_per_request]; entries beyond a request's blocks are never read."""
    logit_rows: IntArray
    """[num_logit_rows]; the rows whose logits are wanted."""
    only_logit_rows: bool = False
    """Of all other rows nothing but K and V is wanted. Then logit rows are in order, and consecutive within a
    request."""
    adapter_slots: IntArray | None = None
    """[num_requests]; the slot of each request's adapter, -1 for none. ``None``: nobody has one."""


class KVStore(Protocol):
    """The memory of the paged cache; its layout belongs to the interpreter."""

    spec: KVCacheSpec
    num_blocks: int
    """Usable blocks; one more, with id ``num_blocks``, is the null block."""

    @property
    def num_bytes(self) -> int:
        """Size of the whole store."""
        ...

    def block(self, layer: int, block_id: int) -> npt.NDArray[np.generic]:
        """A copy of one block, [2, block_size, num_kv_heads, head_dim]; 0 is K, 1 is V."""
        ...

    def write_block(self, layer: int, block_id: int, content: npt.NDArray[np.generic]) -> None:
        """Overwrite one block from the logical shape (tests, and tiers later)."""
        ...

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy block ``src`` to ``dst`` in every layer, for each (src, dst) in order."""
        ...


class SampledStep(NamedTuple):
    """What a step computed and what was sampled from it, valid until the interpreter's next call."""

    output: SamplingOutput
    """For each logit row."""
    logits: FloatArray
    """[num_logit_rows, vocab_size]; for whoever asks why a row failed. If none did they may be gone."""


class Interpreter(Protocol):
    """Runs one `Program` over one `KVStore`."""

    @property
    def sampler(self) -> Sampler:
        """Samples from logits, or tells log-probabilities, as `run_and_sample` does."""
        ...

    @property
    def kv_store(self) -> KVStore:
        """The paged cache that `run` reads and writes."""
        ...

    def run(self, step: StepInput) -> FloatArray:
        """Run every op for the rows of ``step``.

        Returns:
            Logits [num_logit_rows, vocab_size], float32, valid until the next call of this interpreter.
            Without a head the array is empty.
        """
        ...

    def run_and_sample(self, step: StepInput, sampling_input: SamplingInput) -> SampledStep:
        """`run`, and a token for each of its logit rows.

        If the step wants only its logit rows, the next one may have begun when this returns: the rows and
        logits of this one are then gone, see `logits` and `read`.

        Raises:
            ValueError: an array for sampling has another shape than the number of logit rows asks for.
        """
        ...

    def logits(self, rows: IntArray) -> FloatArray:
        """The head alone, for other rows of the step that ran last; same validity as `run`'s result.

        Raises:
            EngineError: the step wanted only its logit rows, or the next one has begun: there are no others.
        """
        ...

    def set_adapter(self, slot: int, adapter: Adapter | None) -> None:
        """Put an adapter in a slot that steps may name, or empty the slot.

        Raises:
            EngineError: there is not enough memory, or the adapter does not fit the program.
        """
        ...

    def read(self, buffer: Buffer) -> FloatArray:
        """A copy of a buffer's rows after the last run [num_tokens, width].

        For tests: a buffer that a later op's output took the storage of no longer holds its own rows, and one
        that only logit rows went on in begins with those.

        Raises:
            EngineError: the next step has begun, see `run_and_sample`.
        """
        ...

    def write(self, buffer: Buffer, rows: FloatArray) -> None:
        """Fill an `Input` buffer before a run (tests)."""
        ...

    def close(self) -> None:
        """Give back memory and threads; calling it again does nothing."""
        ...
