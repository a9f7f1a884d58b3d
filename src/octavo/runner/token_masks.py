"""`TokenMasks`: which tokens may come next, for the requests whose text must have a shape."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from octavo.kernels.arrays import IndexArray, IntArray
from octavo.kernels.sampling import allowed_words
from octavo.sched.output import NewRequest
from octavo.structured_outputs import CONSTRAINT_AT_FAULT, StructuredOutputsParams

ALL_ALLOWED = -1
"""The mask of a request without a constraint."""


class Matcher(Protocol):
    """Where one text is in its grammar. An error stays, and leaves nothing that may follow."""

    def unsafe_compute_mask_ptr(self, trg_pointer: int, trg_byte_size: int) -> None:
        """Write the mask of the tokens that may follow to an address."""
        ...

    def consume_token(self, sampled_token: int) -> bool:
        """Go on by one token."""
        ...

    def is_error(self) -> bool:
        """Whether it ran into a limit."""
        ...

    def get_error(self) -> str:
        """The error, if there is one."""
        ...


class MatcherSource(Protocol):
    """Makes matchers."""

    def matcher(self, params: StructuredOutputsParams, output_token_ids: Sequence[int]) -> Matcher:
        """A matcher for one request, which has generated these tokens already."""
        ...


class AllowedTokens(NamedTuple):
    """Masks of a step, as in `octavo.kernels.sampling.SamplingInput`."""

    rows: IntArray
    tokens: npt.NDArray[np.uint32]


class TokenMasks:
    """The matchers of all rows that have one.

    A mask follows from the constraint and the tokens generated so far and from nothing else, so a request
    that is resumed after a preemption goes on where it was.

    Args:
        vocab_size: number of token ids.
        source: makes matchers; ``None`` if no request may be constrained.
    """

    def __init__(self, vocab_size: int, source: MatcherSource | None) -> None:
        self._num_words = allowed_words(vocab_size)
        self._source = source
        self._matchers: dict[int, Matcher] = {}

    def set(self, row: int, request: NewRequest) -> None:
        """Fill a row."""
        params = request.sampling_params.structured_outputs
        if params is not None and self._source is not None:
            self._matchers[row] = self._source.matcher(params, request.output_token_ids)

    def clear(self, row: int) -> None:
        """Forget a row, if it has a matcher."""
        self._matchers.pop(row, None)

    def advance(self, rows: IndexArray, token_ids: IntArray) -> None:
        """Go on by one sampled token in each row [num_rows]."""
        for row, token_id in zip(rows.tolist(), token_ids.tolist(), strict=True):
            if row in self._matchers:
                self._matchers[row].consume_token(token_id)

    def gather(self, rows: IndexArray) -> AllowedTokens:
        """The masks of some rows [num_rows], in order; where a matcher has an error nothing is allowed."""
        masked = [i for i, row in enumerate(rows.tolist()) if row in self._matchers] if self._matchers else []
        mask_rows: IntArray = np.full(len(rows), ALL_ALLOWED, np.int32)
        mask_rows[masked] = np.arange(len(masked))
        tokens = np.zeros((len(masked), self._num_words), np.uint32)
        for mask, i in zip(tokens, masked, strict=True):
            matcher = self._matchers[int(rows[i])]
            matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
            if matcher.is_error():
                mask[:] = 0
        return AllowedTokens(mask_rows, tokens)

    def problem(self, row: int) -> str | None:
        """Why no token is left for a row that has a constraint; ``None`` if it has none."""
        matcher = self._matchers.get(row)
        if matcher is None:
            return None
        if matcher.is_error():
            reason = " ".join(matcher.get_error().replace("<non-verbose/>", "").split())
            return f"{CONSTRAINT_AT_FAULT}the constraint takes too much work or cannot be met: {reason}"
        return f"{CONSTRAINT_AT_FAULT}the constraint allows no token that min_tokens and logit_bias leave"
