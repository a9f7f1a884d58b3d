"""A scheduler over a real cache and a runner that computes tokens as a function of the prefix.

`ScriptedRunner` stores "K/V" where the block tables say: the value at a position is a hash of the value
before it and the token there. A sampled token is a function of the last value read back from storage. So a
request gets the tokens of `expected_tokens` exactly if every block it reads holds its own prefix:
block tables, copies, sharing, eviction and preemption are all checked by comparing tokens. Failing
requests write NaN, which spreads to whoever reads it and shows, as in a model, when a token is sampled.
"""

from collections.abc import Callable, Collection, Sequence

from octavo.config import SchedulerConfig
from octavo.kv.hashing import BlockHasher, model_root
from octavo.kv.invariants import check_invariants
from octavo.kv.manager import KVCacheManager
from octavo.sampling_params import SamplingParams
from octavo.sched.output import RequestResult, RunnerOutput, ScheduledRequest, SchedulerOutput
from octavo.sched.request import Request
from octavo.sched.scheduler import Scheduler
from octavo.sched.update import RequestUpdate

VOCAB_SIZE = 50_000
ROOT = model_root("test", kv_dtype="float16", kv_layout="test", rope_parameters={})
_START = 17
_NEVER_COMPUTED = -1
_NAN = -2


def _next_value(value: int, token_id: int) -> int:
    return (value * 1_000_003 + token_id * 7919 + 12_345) % 2_147_483_647


def _sample(value: int, choice_index: int) -> int:
    return (value + 31 * choice_index) % VOCAB_SIZE


def expected_tokens(prompt: Sequence[int], num_tokens: int, *, choice_index: int = 0) -> list[int]:
    """What an undisturbed request generates."""
    value = _START
    for token_id in prompt:
        value = _next_value(value, token_id)
    tokens = []
    for _ in range(num_tokens):
        tokens.append(_sample(value, choice_index))
        value = _next_value(value, tokens[-1])
    return tokens


class _Row:
    def __init__(self, scheduled: ScheduledRequest) -> None:
        self.choice_index = scheduled.new_request.choice_index
        self.block_table: list[int] = []


class ScriptedRunner:
    """Keeps rows and block tables by what the scheduler outputs say, and nothing else."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.blocks = [[_NEVER_COMPUTED] * block_size for _ in range(num_blocks)]
        self.rows: dict[str, _Row] = {}
        self.num_computed_tokens = 0
        self.failing_ids: set[str] = set()
        self.forced_tokens: dict[str, list[int]] = {}

    def run(self, output: SchedulerOutput) -> RunnerOutput:
        self._prepare(output)
        for scheduled in output.scheduled:
            self._write(scheduled)
        return RunnerOutput({s.request_id: self._result(s) for s in output.scheduled})

    def run_and_fail(self, output: SchedulerOutput) -> None:
        """The step breaks off after it has written nonsense everywhere it could."""
        self._prepare(output)
        for scheduled in output.scheduled:
            for position in self._positions(scheduled):
                self._store(self.rows[scheduled.request_id], position, _NEVER_COMPUTED)

    def _prepare(self, output: SchedulerOutput) -> None:
        for request_id in output.released_request_ids:
            self.rows.pop(request_id, None)
        for src, dst in output.block_copies:
            self.blocks[dst] = list(self.blocks[src])
        for scheduled in output.scheduled:
            if scheduled.new_request is not None:
                assert scheduled.request_id not in self.rows, "a new request has a row already"
                self.rows[scheduled.request_id] = _Row(scheduled)
            table = self.rows[scheduled.request_id].block_table
            assert scheduled.block_table_start <= len(table)
            table[scheduled.block_table_start :] = scheduled.new_block_ids

    def _positions(self, scheduled: ScheduledRequest) -> range:
        start = scheduled.num_computed_tokens
        return range(start, start + len(scheduled.token_ids))

    def _write(self, scheduled: ScheduledRequest) -> None:
        row = self.rows[scheduled.request_id]
        fails = scheduled.request_id in self.failing_ids
        for position, token_id in zip(self._positions(scheduled), scheduled.token_ids, strict=True):
            before = _START if position == 0 else self._load(row, position - 1)
            assert before != _NEVER_COMPUTED, f"{scheduled.request_id} reads what nobody computed"
            value = _NAN if fails or before == _NAN else _next_value(before, token_id)
            self._store(row, position, value)
        self.num_computed_tokens += len(scheduled.token_ids)

    def _result(self, scheduled: ScheduledRequest) -> RequestResult:
        request_id = scheduled.request_id
        if not scheduled.samples:
            return RequestResult()
        if self.forced_tokens.get(request_id):
            return RequestResult(self.forced_tokens[request_id].pop(0))
        row = self.rows[request_id]
        value = self._load(row, self._positions(scheduled)[-1])
        if value == _NAN:
            return RequestResult(error="NaN in the logits")
        return RequestResult(_sample(value, row.choice_index))

    def _load(self, row: _Row, position: int) -> int:
        return self.blocks[row.block_table[position // self.block_size]][position % self.block_size]

    def _store(self, row: _Row, position: int, value: int) -> None:
        self.blocks[row.block_table[position // self.block_size]][position % self.block_size] = value


class Harness:
    """Scheduler, cache and scripted runner, stepped by hand; every step checks the invariants."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        max_model_len: int = 4096,
        enable_prefix_caching: bool = True,
        watermark: float = 0.0,
        **config,
    ) -> None:
        self.config = SchedulerConfig(**config)
        self.kv = KVCacheManager(
            num_blocks=num_blocks,
            block_size=block_size,
            enable_prefix_caching=enable_prefix_caching,
            watermark=watermark,
            max_model_len=max_model_len,
        )
        self.hasher = BlockHasher(block_size, ROOT) if enable_prefix_caching else None
        self.scheduler = Scheduler(self.config, self.kv, max_model_len=max_model_len)
        self.runner = ScriptedRunner(num_blocks, block_size)
        self.requests: dict[str, Request] = {}
        self.outputs: list[SchedulerOutput] = []
        self.updates: list[RequestUpdate] = []

    def request(
        self,
        request_id: str,
        prompt: Sequence[int],
        *,
        max_tokens: int = 4,
        priority: int = 0,
        arrival_time: float = 0.0,
        eos_token_ids: frozenset[int] = frozenset(),
        **params,
    ) -> Request:
        """A request that is not added yet."""
        request = Request(
            request_id,
            prompt,
            SamplingParams(max_tokens=max_tokens, **params),
            seed=0,
            priority=priority,
            arrival_time=arrival_time,
            eos_token_ids=eos_token_ids,
            block_hasher=self.hasher,
        )
        self.requests[request_id] = request
        return request

    def add(self, request_id: str, prompt: Sequence[int], **arguments) -> Request:
        request = self.request(request_id, prompt, **arguments)
        self.scheduler.add(request)
        return request

    def add_siblings(self, name: str, prompt: Sequence[int], n: int, **arguments) -> list[Request]:
        first = self.request(f"{name}#0", prompt, n=n, **arguments)
        siblings = [first] + [first.sibling(f"{name}#{i}", choice_index=i) for i in range(1, n)]
        self.requests.update((sibling.request_id, sibling) for sibling in siblings)
        self.scheduler.add(*siblings)
        return siblings

    def step(self) -> SchedulerOutput:
        output = self.schedule()
        if output.scheduled:
            self.finish_step(output)
        return output

    def step_until(self, condition: Callable[[], object], *, max_steps: int = 200) -> SchedulerOutput:
        """Step until the condition holds; returns the last step's output."""
        for _ in range(max_steps):
            output = self.step()
            if condition():
                return output
        raise AssertionError(f"the condition does not hold after {max_steps} steps")

    def schedule(self, only: Collection[str] | None = None) -> SchedulerOutput:
        output = self.scheduler.schedule(only)
        self.outputs.append(output)
        self.check(output)
        return output

    def finish_step(self, output: SchedulerOutput) -> list[RequestUpdate]:
        updates = self.scheduler.update(output, self.runner.run(output))
        self.updates += updates
        check_invariants(self.kv)
        return updates

    def fail_step(self, output: SchedulerOutput) -> None:
        self.runner.run_and_fail(output)
        self.scheduler.rollback(output)
        check_invariants(self.kv)

    def run(self, *, max_steps: int = 10_000) -> None:
        """Step until every request has ended; every step must make progress."""
        for _ in range(max_steps):
            if not self.scheduler.has_unfinished_requests:
                return
            assert self.step().scheduled, "a step without progress although work exists"
        raise AssertionError(f"not finished after {max_steps} steps")

    def check(self, output: SchedulerOutput) -> None:
        assert output.num_scheduled_tokens <= self.config.max_num_batched_tokens
        assert self.scheduler.num_running <= self.config.max_num_seqs
        check_invariants(self.kv)

    def check_idle(self) -> None:
        """Everything has ended and nothing is left behind."""
        assert not self.scheduler.has_unfinished_requests
        assert self.scheduler.num_running == self.scheduler.num_waiting == 0
        assert self.kv.num_free_blocks == self.kv.num_blocks
        check_invariants(self.kv)

    def check_tokens(self, request_id: str, *, may_have_failed: bool = False) -> None:
        """The request generated what it would have generated undisturbed, as far as it came."""
        request = self.requests[request_id]
        assert may_have_failed or request.finish_reason != "error"
        assert request.output_token_ids == expected_tokens(
            request.prompt_token_ids, request.num_output_tokens, choice_index=request.choice_index
        )

    @property
    def scheduled_counts(self) -> list[dict[str, int]]:
        """Per step, how many tokens of which request were computed."""
        return [{s.request_id: len(s.token_ids) for s in output.scheduled} for output in self.outputs]

    def running_ids(self) -> list[str]:
        return [r.request_id for r in self.requests.values() if r.status == "running"]
