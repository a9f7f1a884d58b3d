"""`ModelRunner`: computes scheduler outputs with a model. Implements `octavo.engine.runner.Runner`."""

from octavo.engine.runner import FinishedStep
from octavo.errors import InvariantError, StepError
from octavo.kernels.adapter import Adapter
from octavo.kernels.interpreter import Interpreter
from octavo.kernels.program import Buffer
from octavo.runner.input_batch import InputBatch
from octavo.runner.pooling import Pooling
from octavo.runner.prompt_logprobs import PromptLogprobs
from octavo.runner.request_rows import RequestRows
from octavo.runner.sampling_rows import SamplingRows
from octavo.runner.step_sampling import StepSampling
from octavo.sched.output import RequestResult, RunnerOutput, SchedulerOutput

_NO_RESULT = RequestResult()


class ModelRunner:
    """Lays a step out as arrays, runs the model over it, samples, and reports in plain data.

    Args:
        interpreter: the model and the KV cache; it samples, too.
        max_num_seqs: most requests at once.
        max_num_batched_tokens: most tokens in a step.
        max_model_len: longest sequence [tokens].
        sampling_rows: the sampling parameters of ``max_num_seqs`` requests.
        hidden_states: the buffer that embeddings are made of; ``None`` if the model has none.
    """

    def __init__(
        self,
        interpreter: Interpreter,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        sampling_rows: SamplingRows,
        hidden_states: Buffer | None = None,
    ) -> None:
        block_size = interpreter.kv_store.spec.block_size
        self._interpreter = interpreter
        self._rows = RequestRows(max_num_seqs, -(-max_model_len // block_size), sampling_rows)
        self._input_batch = InputBatch(self._rows, max_num_batched_tokens, block_size=block_size)
        self._sampling = StepSampling(interpreter, sampling_rows)
        self._prompt_logprobs = PromptLogprobs(interpreter)
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
        laid_out = self._input_batch.fill(output.scheduled)
        layout = laid_out.layout
        results = dict.fromkeys(layout.request_ids, _NO_RESULT)
        if layout.sampled_ids:
            self._sampling.run(laid_out, results)
        else:
            self._interpreter.run(laid_out.step)
        if layout.pooled:
            self._pooling.add_results(layout.shares(layout.pooled, output.scheduled), results)
        # Last, because the head's other rows take the place of the logits that were sampled from.
        if layout.reporting:
            self._prompt_logprobs.add_results(layout.shares(layout.reporting, output.scheduled), results)
        return results
