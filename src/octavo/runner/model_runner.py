"""`ModelRunner`: computes scheduler outputs with a model. Implements `octavo.engine.runner.Runner`."""

from collections.abc import Sequence

import numpy as np

from octavo.engine.runner import FinishedStep
from octavo.errors import InvariantError, StepError
from octavo.kernels.adapter import Adapter
from octavo.kernels.interpreter import FloatArray, IntArray, Interpreter
from octavo.kernels.program import Buffer
from octavo.kernels.sampling import Sampler, SamplingInput, SamplingOutput
from octavo.runner.input_batch import InputBatch
from octavo.runner.pooling import Pooling
from octavo.runner.prompt_logprobs import NonFiniteLogitsError, PromptLogprobs, token_logprobs
from octavo.runner.request_rows import RequestRows
from octavo.runner.sampling_rows import SamplingRows
from octavo.sched.output import RequestResult, RunnerOutput, ScheduledRequest, SchedulerOutput

_ALL_BANNED = (
    "every token is banned: all of the vocabulary would end the text, and min_tokens is not reached; lower "
    "min_tokens, or leave tokens out of stop_token_ids"
)


class ModelRunner:
    """Lays a step out as arrays, runs the model over it, samples, and reports in plain data.

    Args:
        interpreter: the model and the KV cache.
        sampler: logits to tokens.
        max_num_seqs: most requests at once.
        max_num_batched_tokens: most tokens in a step.
        max_model_len: longest sequence [tokens].
        sampling_rows: the sampling parameters of ``max_num_seqs`` requests.
        hidden_states: the buffer that embeddings are made of; ``None`` if the model has none.
    """

    def __init__(
        self,
        interpreter: Interpreter,
        sampler: Sampler,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        sampling_rows: SamplingRows,
        hidden_states: Buffer | None = None,
    ) -> None:
        block_size = interpreter.kv_store.spec.block_size
        self._interpreter = interpreter
        self._sampler = sampler
        self._sampling_rows = sampling_rows
        self._rows = RequestRows(max_num_seqs, -(-max_model_len // block_size), sampling_rows)
        self._input_batch = InputBatch(self._rows, max_num_batched_tokens, block_size=block_size)
        self._prompt_logprobs = PromptLogprobs(interpreter, sampler)
        self._pooling = Pooling(interpreter, hidden_states)

    @property
    def num_blocks(self) -> int:
        """Usable blocks of the KV cache."""
        return self._interpreter.kv_store.num_blocks

    def submit(self, output: SchedulerOutput) -> FinishedStep:
        """Compute one step; it is finished when this returns.

        Raises:
            StepError: it failed as a whole; nothing it wrote may be trusted.
        """
        try:
            return FinishedStep(RunnerOutput(self._compute(output)))
        except InvariantError:
            raise
        except Exception as error:
            raise StepError(f"step {output.step} failed: {error!r}") from error

    def set_adapter(self, slot: int, adapter: Adapter | None) -> None:
        """Let requests have an adapter under a number, or nothing under it any more."""
        self._interpreter.set_adapter(slot, adapter)

    def close(self) -> None:
        """Give back memory and threads; calling it again does nothing."""
        self._interpreter.close()

    def _compute(self, output: SchedulerOutput) -> dict[str, RequestResult]:
        self._rows.apply(output)
        if output.block_copies:
            self._interpreter.kv_store.copy_blocks(output.block_copies)
        if not output.scheduled:
            return {}
        step = self._input_batch.fill(output.scheduled)
        logits = self._interpreter.run(step)
        results = {request.request_id: RequestResult() for request in output.scheduled}
        sampled = [request for request in output.scheduled if request.samples]
        if sampled:
            positions = step.seq_lens[[request.samples for request in output.scheduled]]
            rows: IntArray = np.array([self._rows[request.request_id].index for request in sampled], np.int32)
            sampling_input = self._sampling_rows.gather(rows, positions)
            sampling = self._sampler.sample(logits, sampling_input)
            self._count_tokens(rows, sampling)
            results.update(self._sampling_results(sampled, sampling))
            for i in np.flatnonzero(sampling.logprobs.failed).tolist():
                error = self._why_failed(sampled[i], logits[i], sampling_input, i)
                results[sampled[i].request_id] = RequestResult(error=error)
        self._add_embeddings(output.scheduled, step.query_start_loc, results)
        # Last, because the head's other rows take the place of the logits that were sampled from.
        self._add_prompt_logprobs(output.scheduled, step.query_start_loc, results)
        return results

    def _count_tokens(self, rows: IntArray, sampling: SamplingOutput) -> None:
        is_token = ~sampling.logprobs.failed
        self._sampling_rows.count(rows[is_token], sampling.token_ids[is_token])

    def _sampling_results(
        self, sampled: Sequence[ScheduledRequest], sampling: SamplingOutput
    ) -> dict[str, RequestResult]:
        """By request id; of a row that failed, nothing means anything."""
        results: dict[str, RequestResult] = {}
        token_ids: list[int] = sampling.token_ids.tolist()
        for i, request in enumerate(sampled):
            num_top = self._rows[request.request_id].sampling_params.logprobs
            logprobs = None if num_top is None else token_logprobs(sampling.logprobs, i, num_top)
            results[request.request_id] = RequestResult(token_ids[i], logprobs)
        return results

    def _why_failed(
        self,
        request: ScheduledRequest,
        logits: FloatArray,  # [vocab_size]
        sampling_input: SamplingInput,
        row: int,
    ) -> str:
        if np.isfinite(logits).all():
            num_banned = sampling_input.banned_starts[row + 1] - sampling_input.banned_starts[row]
            if num_banned == len(logits):
                return _ALL_BANNED
            problem = self._sampling_rows.masks.problem(self._rows[request.request_id].index)
            if problem is not None:
                return problem
        position = request.num_computed_tokens + request.num_scheduled_tokens - 1
        return f"non-finite logits at position {position}"

    def _add_embeddings(
        self,
        scheduled: Sequence[ScheduledRequest],
        query_start_loc: IntArray,  # [num_requests + 1]
        results: dict[str, RequestResult],
    ) -> None:
        shares = zip(scheduled, query_start_loc[:-1].tolist(), strict=True)
        pooled = [
            (request, row, first_row)
            for request, first_row in shares
            if (row := self._rows[request.request_id]).pooling is not None
        ]
        self._pooling.add_results(pooled, results)

    def _add_prompt_logprobs(
        self,
        scheduled: Sequence[ScheduledRequest],
        query_start_loc: IntArray,  # [num_requests + 1]
        results: dict[str, RequestResult],
    ) -> None:
        for request, first_row in zip(scheduled, query_start_loc[:-1].tolist(), strict=True):
            row = self._rows[request.request_id]
            if not row.reports_prompt_logprobs:
                continue
            try:
                self._prompt_logprobs.collect(row, request, first_row)
            except NonFiniteLogitsError as error:
                results[request.request_id] = RequestResult(error=str(error))
                continue
            if request.samples:  # the end of the prompt
                row.reports_prompt_logprobs = False
                result = results[request.request_id]
                results[request.request_id] = result._replace(prompt_logprobs=tuple(row.prompt_logprobs))
