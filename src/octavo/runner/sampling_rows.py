"""`SamplingRows`: the sampling parameters of all requests as arrays, a row each, gathered for every step."""

import numpy as np
import numpy.typing as npt

from octavo.kernels.arrays import FloatArray, IndexArray, IntArray
from octavo.kernels.sampling import SamplingInput
from octavo.runner.penalties import NO_PENALTIES, PenaltyCounts
from octavo.runner.token_masks import MatcherSource, TokenMasks
from octavo.sampling_params import SamplingParams
from octavo.sched.output import NewRequest

_LARGEST, _SMALLEST = 1e30, 1e-30
"""Where parameters without a bound of their own are cut, well inside float32."""

_LAST_POSITION = 2**31 - 1
"""No sequence gets that far, whatever its ``min_tokens``."""

_NO_IDS: IntArray = np.empty(0, np.int32)
_NO_IDS.setflags(write=False)


class SamplingRows:
    """Rows 0 … max_num_seqs - 1; a row means something between `set` and `clear`.

    Args:
        max_num_seqs: number of rows.
        vocab_size: number of token ids.
        eos_token_ids: tokens that end a text, banned before ``min_tokens``.
        matchers: makes the matchers of requests whose text must have a shape.
    """

    def __init__(
        self,
        max_num_seqs: int,
        vocab_size: int,
        eos_token_ids: frozenset[int],
        matchers: MatcherSource | None = None,
    ) -> None:
        self.penalties = PenaltyCounts(vocab_size)
        self.masks = TokenMasks(vocab_size, matchers)
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._floats = {name: np.zeros(max_num_seqs, np.float32) for name in _FLOAT_PARAMS}
        self._top_k: IntArray = np.zeros(max_num_seqs, np.int32)
        self._seeds: npt.NDArray[np.uint64] = np.zeros(max_num_seqs, np.uint64)
        self._choice_indices: IntArray = np.zeros(max_num_seqs, np.int32)
        self._penalty_rows: IntArray = np.full(max_num_seqs, NO_PENALTIES, np.int32)
        self._num_top_logprobs: IntArray = np.zeros(max_num_seqs, np.int32)  # -1: no log-probabilities
        self._end_tokens_banned_below: IntArray = np.zeros(max_num_seqs, np.int32)
        self._end_token_ids: list[IntArray] = [_NO_IDS] * max_num_seqs
        self._bias_token_ids: list[IntArray] = [_NO_IDS] * max_num_seqs
        self._bias_values: list[FloatArray] = [_NO_IDS.astype(np.float32)] * max_num_seqs
        self._remembering: set[int] = set()
        self._latest: tuple[bytes, SamplingInput] | None = None

    def set(self, row: int, request: NewRequest) -> None:
        """Fill a row."""
        self._latest = None
        params = request.sampling_params
        for name, column in self._floats.items():
            column[row] = _clipped(getattr(params, name))
        self._floats["temperature"][row] *= not params.is_greedy
        self._top_k[row] = min(max(params.top_k, 0), self._vocab_size)
        self._seeds[row] = request.seed
        self._choice_indices[row] = request.choice_index
        self._num_top_logprobs[row] = (
            -1 if params.logprobs is None else min(params.logprobs, self._vocab_size)
        )
        self._set_end_tokens(row, params, len(request.prompt_token_ids))
        self.masks.set(row, request)
        self._bias_token_ids[row] = np.fromiter(params.logit_bias.keys(), np.int32)
        self._bias_values[row] = np.fromiter(params.logit_bias.values(), np.float32)
        if params.has_penalties or params.structured_outputs is not None:
            self._remembering.add(row)
        if params.has_penalties:
            self._penalty_rows[row] = self.penalties.acquire(
                request.prompt_token_ids, request.output_token_ids
            )

    def clear(self, row: int) -> None:
        """Give back what the row holds beside its place in the arrays."""
        self._latest = None
        self._remembering.discard(row)
        self.masks.clear(row)
        self.penalties.release(int(self._penalty_rows[row]))
        self._penalty_rows[row] = NO_PENALTIES

    @property
    def remembers_tokens(self) -> bool:
        """Whether any row has penalties or a constraint, and so must be told its tokens, see `count`."""
        return bool(self._remembering)

    def count(self, rows: IndexArray, token_ids: IntArray) -> None:
        """Remember the tokens just sampled, where penalties or a constraint ask for it.

        Args:
            rows: [num_rows]
            token_ids: [num_rows]
        """
        self.penalties.add(self._penalty_rows[rows], token_ids)
        self.masks.advance(rows, token_ids)

    def gather(self, rows: IndexArray, positions: IntArray) -> SamplingInput:
        """The parameters of some rows, in that order; the same arrays again while the rows stay the same.

        Args:
            rows: [num_rows]
            positions: [num_rows]; the position that each sampled token will have in its sequence.
        """
        key = rows.tobytes()
        if self._latest is not None and self._latest[0] == key:
            self._latest[1].positions[:] = positions
            return self._latest[1]
        gathered = self._gather(rows, positions.copy())
        # What is banned and what a mask allows changes from token to token.
        is_constant = not len(gathered.banned_token_ids) and not len(gathered.allowed_tokens)
        self._latest = (key, gathered) if is_constant else None
        return gathered

    def _gather(self, rows: IndexArray, positions: IntArray) -> SamplingInput:
        bias_starts, bias_token_ids = _concatenate([self._bias_token_ids[row] for row in rows])
        bias_values = [self._bias_values[row] for row in rows]
        bans = positions < self._end_tokens_banned_below[rows]
        banned_starts, banned_token_ids = _concatenate(
            [self._end_token_ids[row] if banned else _NO_IDS for row, banned in zip(rows, bans, strict=True)]
        )
        allowed = self.masks.gather(rows)
        num_top_logprobs = int(self._num_top_logprobs[rows].max())
        return SamplingInput(
            **{name: column[rows] for name, column in self._floats.items()},
            top_k=self._top_k[rows],
            seeds=self._seeds[rows],
            choice_indices=self._choice_indices[rows],
            positions=positions,
            penalty_rows=self._penalty_rows[rows],
            output_counts=self.penalties.output_counts,
            prompt_tokens=self.penalties.prompt_tokens,
            bias_starts=bias_starts,
            bias_token_ids=bias_token_ids,
            bias_values=np.concatenate(bias_values),
            banned_starts=banned_starts,
            banned_token_ids=banned_token_ids,
            allowed_rows=allowed.rows,
            allowed_tokens=allowed.tokens,
            num_top_logprobs=None if num_top_logprobs < 0 else num_top_logprobs,
        )

    def _set_end_tokens(self, row: int, params: SamplingParams, num_prompt_tokens: int) -> None:
        """Stop tokens are banned at positions before the first that may hold one."""
        end_token_ids = set(params.stop_token_ids) | (set() if params.ignore_eos else self._eos_token_ids)
        self._end_token_ids[row] = np.array(sorted(end_token_ids), np.int32)
        self._end_tokens_banned_below[row] = min(num_prompt_tokens + params.min_tokens, _LAST_POSITION)


_FLOAT_PARAMS = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
)


def _clipped(value: float) -> float:
    """``value`` where float32 can hold it and its reciprocal; zero and negative numbers as they are."""
    return max(min(value, _LARGEST), _SMALLEST) if value > 0.0 else value


def _concatenate(parts: list[IntArray]) -> tuple[IntArray, IntArray]:
    """All parts behind each other, and where each starts [len(parts) + 1]."""
    starts = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    return starts, np.concatenate(parts)
