"""`NativeSampler`: logits to tokens in native code, one row per piece of work."""

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.kernels.arrays import FloatArray, IntArray
from octavo.kernels.native_library import (
    LogprobsStruct,
    NativeLibrary,
    SamplingStruct,
    address,
    as_int32,
)
from octavo.kernels.native_pool import NativePool
from octavo.kernels.sampling import LogprobsOutput, SamplingInput, SamplingOutput, allowed_words, no_logprobs

_ROW_FIELDS: tuple[tuple[str, type[np.generic]], ...] = (
    ("temperature", np.float32),
    ("top_k", np.int32),
    ("top_p", np.float32),
    ("min_p", np.float32),
    ("seeds", np.uint64),
    ("choice_indices", np.int32),
    ("positions", np.int32),
    ("repetition_penalty", np.float32),
    ("frequency_penalty", np.float32),
    ("presence_penalty", np.float32),
    ("penalty_rows", np.int32),
    ("allowed_rows", np.int32),
)
_PENALTY_FIELDS: tuple[tuple[str, type[np.generic]], ...] = (
    ("output_counts", np.int32),
    ("prompt_tokens", np.uint8),
)
_MASK_FIELDS: tuple[tuple[str, type[np.generic]], ...] = (("allowed_tokens", np.uint32),)
_ENTRY_FIELDS: tuple[tuple[str, type[np.generic]], ...] = (
    ("bias_token_ids", np.int32),
    ("bias_values", np.float32),
    ("banned_token_ids", np.int32),
)


class NativeSampler:
    """Implements `octavo.kernels.sampling.Sampler` on a pool of threads."""

    def __init__(self, *, library: NativeLibrary, pool: NativePool, isa: str) -> None:
        self._library, self._pool = library, pool
        self._isa = isa.encode()
        self._latest: PreparedSampling | None = None

    def sample(self, logits: FloatArray, sampling_input: SamplingInput) -> SamplingOutput:
        """Choose a token for each row of ``logits`` [num_rows, vocab_size], which is not changed.

        Returns:
            Valid until the next call, if that is of the same ``sampling_input``.

        Raises:
            ValueError: an array has another shape than the number of rows asks for.
            EngineError: an index in an array is out of range, or the threads were given back.
        """
        num_rows, vocab_size = logits.shape
        read_logits = _contiguous(logits, np.float32)
        with self._pool as pool:
            prepared = self._latest
            if prepared is None or not prepared.serves(sampling_input, (num_rows, vocab_size)):
                prepared = self._latest = PreparedSampling(sampling_input, (num_rows, vocab_size))
            prepared.struct.logits = address(read_logits)
            self._library.call("octavo_sample", pool.address, self._isa, ctypes.byref(prepared.struct))
            return prepared.output

    def logprobs(self, logits: FloatArray, token_ids: IntArray, num_top: int) -> LogprobsOutput:
        """Log-probabilities of given tokens [num_rows] (prompt log-probabilities).

        Raises:
            ValueError: there is not one token per row.
            EngineError: a token is outside the vocabulary, or the threads were given back.
        """
        logits = _contiguous(logits, np.float32)
        tokens = as_int32(token_ids)
        _check_shape("token_ids", tokens, (len(logits),))
        output = no_logprobs(len(logits), num_top)
        num_rows, vocab_size = logits.shape
        struct = SamplingStruct(
            logits=address(logits),
            num_rows=num_rows,
            vocab_size=vocab_size,
            num_top=num_top,
            token_ids=address(tokens),
            out=_output_struct(output),
        )
        with self._pool as pool:
            self._library.call("octavo_logprobs", pool.address, self._isa, ctypes.byref(struct))
        return output


def _contiguous(array: npt.NDArray[Any], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return as_int32(array) if dtype is np.int32 else np.ascontiguousarray(array, dtype=dtype)


def _check_shape(name: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")


def _check_input(
    sampling_input: SamplingInput, num_rows: int, vocab_size: int
) -> dict[str, npt.NDArray[Any]]:
    """The arrays by field name, in the types that the library reads."""
    arrays = {
        name: _contiguous(getattr(sampling_input, name), dtype)
        for name, dtype in (*_ROW_FIELDS, *_PENALTY_FIELDS, *_MASK_FIELDS, *_ENTRY_FIELDS)
    }
    for name in ("bias_starts", "banned_starts"):
        arrays[name] = as_int32(getattr(sampling_input, name))
        _check_shape(name, arrays[name], (num_rows + 1,))
    for name, _ in _ROW_FIELDS:
        _check_shape(name, arrays[name], (num_rows,))
    num_penalty_rows = len(arrays["output_counts"])
    for name, _ in _PENALTY_FIELDS:
        if num_penalty_rows:
            _check_shape(name, arrays[name], (num_penalty_rows, vocab_size))
    num_words = allowed_words(vocab_size)
    _check_shape("allowed_tokens", arrays["allowed_tokens"], (len(arrays["allowed_tokens"]), num_words))
    _check_shape("bias_values", arrays["bias_values"], arrays["bias_token_ids"].shape)
    return arrays


class PreparedSampling:
    """A `SamplingInput` in the types that the library reads, and room for its answer.

    Made once for arrays that come again, perhaps with other numbers in them.

    Args:
        source: the arrays.
        shape: of the logits: (num_rows, vocab_size).

    Attributes:
        struct: what the library takes, all but the address of the logits.
        output: what it wrote last; where nobody asked for anything, nothing was written.

    Raises:
        ValueError: an array has another shape than the number of rows asks for.
    """

    def __init__(self, source: SamplingInput, shape: tuple[int, int]) -> None:
        num_rows, vocab_size = shape
        self._source, self._shape = source, shape
        self._arrays = _check_input(source, num_rows, vocab_size)
        # A copy would not show what the array holds the next time.
        self._has_copies = any(array is not getattr(source, name) for name, array in self._arrays.items())
        token_ids: IntArray = np.zeros(num_rows, np.int32)
        logprobs = no_logprobs(num_rows, source.num_top_logprobs or 0)
        self.output = SamplingOutput(token_ids, logprobs)
        self.struct = SamplingStruct(
            num_rows=num_rows,
            vocab_size=vocab_size,
            num_top=source.num_top_logprobs or 0,
            num_penalty_rows=len(self._arrays["output_counts"]),
            num_allowed_rows=len(self._arrays["allowed_tokens"]),
            num_biases=len(self._arrays["bias_token_ids"]),
            num_banned=len(self._arrays["banned_token_ids"]),
            **{name: address(array) for name, array in self._arrays.items()},
            token_ids=address(token_ids),
            out=_output_struct(logprobs, only_failed=source.num_top_logprobs is None),
        )

    def serves(self, source: SamplingInput, shape: tuple[int, int]) -> bool:
        """Whether it can be used for these."""
        return source is self._source and shape == self._shape and not self._has_copies


def _output_struct(output: LogprobsOutput, *, only_failed: bool = False) -> LogprobsStruct:
    if only_failed:
        return LogprobsStruct(failed=address(output.failed))
    return LogprobsStruct(
        logprobs=address(output.logprobs),
        ranks=address(output.ranks),
        top_token_ids=address(output.top_token_ids),
        top_logprobs=address(output.top_logprobs),
        failed=address(output.failed),
    )
