"""`Pooling`: the mean of a request's hidden states, summed up over as many steps as its prompt takes."""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from octavo.kernels.arrays import FloatArray
from octavo.kernels.interpreter import Interpreter
from octavo.kernels.program import Buffer
from octavo.pooling_params import PoolingParams
from octavo.runner.request_rows import RequestRow
from octavo.runner.step_layout import RequestShare
from octavo.sched.output import RequestResult

_NO_HIDDEN_STATES = "this model's program has no final norm, so there is nothing to make an embedding of"


class Pooling:
    """Adds up rows in float64, one after another by position: the sum is the same whatever the chunks are.

    Args:
        interpreter: whose step it was.
        hidden_states: the buffer that holds them; ``None`` if the model has none.
    """

    def __init__(self, interpreter: Interpreter, hidden_states: Buffer | None) -> None:
        self._interpreter = interpreter
        self._hidden_states = hidden_states

    def add_results(
        self,
        pooled: Iterable[RequestShare],
        results: dict[str, RequestResult],
    ) -> None:
        """Take in what the step that ran last has made known.

        Args:
            pooled: the requests that are pooled.
            results: get an embedding for whoever is at the end of its prompt, or an error.
        """
        states = None if self._hidden_states is None else self._interpreter.read(self._hidden_states)
        for row, scheduled, first_row in pooled:
            if states is None:
                results[scheduled.request_id] = RequestResult(error=_NO_HIDDEN_STATES)
                continue
            result = _add(row, states[first_row : first_row + scheduled.num_scheduled_tokens])
            if result is not None:
                results[scheduled.request_id] = result


def _add(row: RequestRow, states: FloatArray) -> RequestResult | None:  # [num_tokens, width]
    total = np.zeros(states.shape[1]) if row.pooled_sum is None else row.pooled_sum
    for state in states:
        total += state
    row.pooled_sum = total
    row.num_pooled_tokens += len(states)
    if row.num_pooled_tokens < len(row.prompt_token_ids) or row.pooling is None:
        return None
    if not np.isfinite(total).all():
        return RequestResult(error="non-finite hidden states, so the embedding means nothing")
    return RequestResult(embedding=_embedding(total / row.num_pooled_tokens, row.pooling))


def _embedding(mean: npt.NDArray[np.float64], params: PoolingParams) -> list[float]:
    if params.normalize:
        length = math.sqrt(math.fsum((mean * mean).tolist()))
        mean = mean / length if length > 0.0 else mean
    embedding: list[float] = mean.astype(np.float32).tolist()
    return embedding
