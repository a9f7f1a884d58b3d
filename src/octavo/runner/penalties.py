"""`PenaltyCounts`: which tokens a request has had, for those requests whose penalties ask for it."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from octavo.kernels.arrays import IntArray

NO_PENALTIES = -1
"""The row of a request without penalties."""


class PenaltyCounts:
    """Two tables with a row per penalised request, made when the first one comes and doubled when full.

    Most requests have no penalties and take no memory here; one that has takes 5 bytes per vocabulary entry.

    Attributes:
        output_counts: int32 [num_rows, vocab_size]; how often each token was generated.
        prompt_tokens: uint8 [num_rows, vocab_size]; 1 where the token is in the prompt.
    """

    def __init__(self, vocab_size: int) -> None:
        self.output_counts: IntArray = np.zeros((0, vocab_size), np.int32)
        self.prompt_tokens: npt.NDArray[np.uint8] = np.zeros((0, vocab_size), np.uint8)
        self._free_rows: list[int] = []

    def acquire(self, prompt_token_ids: Sequence[int], output_token_ids: Sequence[int]) -> int:
        """A row that holds these tokens."""
        if not self._free_rows:
            self._grow()
        row = self._free_rows.pop()
        self.prompt_tokens[row] = 0
        self.prompt_tokens[row, np.asarray(prompt_token_ids, np.int64)] = 1
        outputs = np.asarray(output_token_ids, np.int64)
        self.output_counts[row] = np.bincount(outputs, minlength=self.output_counts.shape[1])
        return row

    def release(self, row: int) -> None:
        """Give a row back; `NO_PENALTIES` is none."""
        if row != NO_PENALTIES:
            self._free_rows.append(row)

    def add(self, rows: IntArray, token_ids: IntArray) -> None:
        """Count one more generated token for each row; entries of `NO_PENALTIES` are passed over.

        Args:
            rows: [num_tokens], each row at most once.
            token_ids: [num_tokens]
        """
        counted = rows != NO_PENALTIES
        self.output_counts[rows[counted], token_ids[counted]] += 1

    def _grow(self) -> None:
        num_rows, vocab_size = self.output_counts.shape
        num_new_rows = max(num_rows, 1)
        # Both first: if memory is short, one of the tables must not be longer than the other for ever.
        output_counts = np.concatenate((self.output_counts, np.zeros((num_new_rows, vocab_size), np.int32)))
        prompt_tokens = np.concatenate((self.prompt_tokens, np.zeros((num_new_rows, vocab_size), np.uint8)))
        self.output_counts, self.prompt_tokens = output_counts, prompt_tokens
        self._free_rows = list(range(num_rows + num_new_rows - 1, num_rows - 1, -1))
