"""Copies before the step, results in plain data, a bad row alone: an interpreter takes notes."""

import numpy as np
import pytest

from octavo.errors import InvariantError, StepError
from octavo.kernels.interpreter import SampledStep
from octavo.kernels.native_library import load_library
from octavo.kernels.native_pool import NativePool
from octavo.kernels.native_sampler import NativeSampler
from octavo.kernels.reference_sampling import ReferenceSampler
from octavo.kv.block import BlockCopy
from octavo.kv.spec import KVCacheSpec
from octavo.runner.model_runner import ModelRunner
from octavo.runner.prompt_logprobs import MAX_LOGIT_ROWS
from octavo.runner.sampling_rows import SamplingRows
from octavo.sampling_params import SamplingParams
from octavo.sched.output import NewRequest, ScheduledRequest, SchedulerOutput

VOCAB_SIZE = 40


class NotingKVStore:
    spec = KVCacheSpec(block_size=8, num_layers=1, num_kv_heads=1, head_dim=8, dtype="float32")
    num_blocks = 16

    def __init__(self, events):
        self._events = events

    def copy_blocks(self, copies):
        self._events.append(("copy", list(copies)))


class NotingInterpreter:
    """The logits at a row favour (token + position) mod vocabulary; rows of ``bad`` tokens are NaN."""

    def __init__(self, bad=()):
        self.events = []
        self.kv_store = NotingKVStore(self.events)
        self.bad = set(bad)
        self.error = None
        self.num_closed = 0
        self.sampler = ReferenceSampler()

    def run_and_sample(self, step, sampling_input):
        logits = self.run(step)
        return SampledStep(self.sampler.sample(logits, sampling_input), logits)

    def run(self, step):
        if self.error is not None:
            raise self.error
        self.step = step
        self.events.append(("run", step.token_ids.tolist()))
        return self._rows(step.logit_rows)

    def logits(self, rows):
        self.events.append(("logits", rows.tolist()))
        return self._rows(rows)

    def close(self):
        self.num_closed += 1

    def _rows(self, rows):
        logits = np.zeros((len(rows), VOCAB_SIZE), np.float32)
        for i, row in enumerate(rows):
            token, position = int(self.step.token_ids[row]), int(self.step.positions[row])
            logits[i, (token + position) % VOCAB_SIZE] = 5.0
            if token in self.bad:
                logits[i, 0] = np.nan
        return logits


def make_runner(interpreter, sampler=None):
    interpreter.sampler = sampler or interpreter.sampler
    return ModelRunner(
        interpreter,
        max_num_seqs=8,
        max_num_batched_tokens=256,
        max_model_len=128,
        sampling_rows=SamplingRows(8, VOCAB_SIZE, frozenset({0})),
    )


def make_native_sampler():
    library = load_library()
    pool = NativePool(1, library=library)
    return NativeSampler(library=library, pool=pool, isa="generic")


def fresh(name, prompt, *, start=0, end=None, choice_index=0, output=(), **params):
    """The first share of a request: its prompt from ``start`` to ``end``."""
    params = SamplingParams(**{"temperature": 0.0, **params})
    known = [*prompt, *output]
    end = len(known) if end is None else end
    new = NewRequest(prompt, output, params, 1, choice_index)
    return ScheduledRequest(
        name, start, known[start:end], 0, list(range(-(-end // 8))), end == len(known), new
    )


def more(name, start, token_ids, *, samples=True):
    return ScheduledRequest(name, start, token_ids, 0, (), samples)


def results(runner, *requests, **output):
    return runner.submit(SchedulerOutput(1, requests, **output)).result().results


def test_copies_are_made_before_anything_is_computed():
    interpreter = NotingInterpreter()
    results(make_runner(interpreter), fresh("a", (1, 2)), block_copies=[BlockCopy(3, 5), BlockCopy(5, 6)])
    assert interpreter.events == [("copy", [(3, 5), (5, 6)]), ("run", [1, 2])]


def test_a_token_is_sampled_only_where_the_last_one_was_reached():
    got = results(make_runner(NotingInterpreter()), fresh("a", (1, 2)), fresh("b", tuple(range(9)), end=4))
    assert (got["a"].token_id, got["b"].token_id) == (3, None)
    assert got["a"].logprobs is None


def test_logprobs_come_as_plain_numbers_and_as_many_as_asked_for():
    got = results(
        make_runner(NotingInterpreter()), fresh("a", (1, 2), logprobs=2), fresh("b", (4,), logprobs=0)
    )
    logprobs = got["a"].logprobs
    assert type(logprobs.logprob) is float
    assert (logprobs.rank, logprobs.top_token_ids) == (1, [3, 0])
    assert logprobs.top_logprobs[0] == logprobs.logprob
    assert got["b"].logprobs.top_token_ids == []


def test_a_row_of_nan_fails_its_request_and_no_other():
    runner = make_runner(NotingInterpreter(bad=[7]))
    got = results(runner, fresh("a", (1, 2)), fresh("bad", (5, 7)), fresh("c", (3,)))
    assert got["bad"].error == "non-finite logits at position 1"
    assert got["bad"].token_id is None
    assert (got["a"].token_id, got["c"].token_id) == (3, 3)
    assert got["a"].error is got["c"].error is None


@pytest.mark.parametrize("make_sampler", [ReferenceSampler, make_native_sampler])
def test_a_request_that_bans_every_token_is_told_so(make_sampler):
    runner = make_runner(NotingInterpreter(bad=[7]), make_sampler())
    ends = tuple(range(1, VOCAB_SIZE))  # and 0, which ends a text anyway
    got = results(
        runner,
        fresh("all", (1, 2), stop_token_ids=ends, min_tokens=1),
        fresh("all but 0", (1, 2), stop_token_ids=ends, ignore_eos=True, min_tokens=1),
        fresh("bad", (5, 7)),
    )
    assert got["all"].error.startswith("every token is banned: all of the vocabulary would end the text")
    assert (got["all but 0"].token_id, got["all but 0"].error) == (0, None)
    assert got["bad"].error == "non-finite logits at position 1"


@pytest.mark.parametrize("make_sampler", [ReferenceSampler, make_native_sampler])
def test_a_vocabulary_may_be_smaller_than_the_logprobs_asked_for(make_sampler, monkeypatch):
    monkeypatch.setattr(f"{__name__}.VOCAB_SIZE", 7)
    runner = make_runner(NotingInterpreter(), make_sampler())
    got = results(runner, fresh("a", (1, 2), logprobs=20, prompt_logprobs=20))["a"]
    assert sorted(got.logprobs.top_token_ids) == list(range(7))
    assert sorted(got.prompt_logprobs[0].top_token_ids) == list(range(7))


def test_a_released_row_is_given_to_another_request():
    runner = make_runner(NotingInterpreter())
    results(runner, *(fresh(f"r{i}", (i,)) for i in range(8)))
    got = results(runner, fresh("new", (9,)), more("r3", 1, [4]), released_request_ids=["r0"])
    assert set(got) == {"new", "r3"}
    with pytest.raises(InvariantError):
        results(runner, fresh("one too many", (9,)))


def test_a_step_may_bring_nothing_but_releases():
    runner = make_runner(NotingInterpreter())
    results(runner, fresh("a", (1,)))
    assert results(runner, released_request_ids=["a"]) == {}


def test_an_error_in_the_kernels_is_a_failed_step_and_the_next_one_can_run():
    interpreter = NotingInterpreter()
    runner = make_runner(interpreter)
    interpreter.error = ValueError("out of luck")
    with pytest.raises(StepError, match=r"step 1 failed: ValueError\('out of luck'\)"):
        results(runner, fresh("a", (1,)))
    interpreter.error = None
    assert results(runner, fresh("a", (1,)), released_request_ids=["a"])["a"].token_id == 1


def test_penalties_follow_the_tokens_as_they_come():
    runner = make_runner(NotingInterpreter())
    first = results(runner, fresh("a", (2,), frequency_penalty=2.0))["a"].token_id
    tokens = [first]
    for position in range(1, 5):  # always the same winner, until its penalty is larger than its lead
        request = more("a", position, [(2 - position) % VOCAB_SIZE])
        tokens += [results(runner, request)["a"].token_id]
    assert tokens == [2, 2, 2, 0, 1]


class TestPromptLogprobs:
    prompt = tuple(5 + i % 30 for i in range(3 * MAX_LOGIT_ROWS))

    def report(self, runner, chunk):
        """All prompt log-probabilities, computed in chunks of so many tokens."""
        prompt, reports = self.prompt, []
        for start in range(0, len(prompt), chunk):
            end = min(start + chunk, len(prompt))
            if start == 0:
                request = fresh("a", prompt, end=end, prompt_logprobs=2)
            else:
                request = more("a", start, list(prompt[start:end]), samples=end == len(prompt))
            reports.append(results(runner, fresh(f"b{start}", (1,)), request)["a"].prompt_logprobs)
        return reports

    @pytest.mark.parametrize("chunk", [1, 7, 40, 96])
    def test_they_come_at_once_when_the_prompt_ends_whatever_the_chunks(self, chunk):
        interpreter = NotingInterpreter()
        runner = ModelRunner(
            interpreter,
            max_num_seqs=200,
            max_num_batched_tokens=256,
            max_model_len=128,
            sampling_rows=SamplingRows(200, VOCAB_SIZE, frozenset()),
        )
        *early, last = self.report(runner, chunk)
        assert all(report == () for report in early)
        assert len(last) == len(self.prompt) - 1
        expected = [(token + i) % VOCAB_SIZE for i, token in enumerate(self.prompt[:-1])]
        assert [entry.top_token_ids[0] for entry in last] == expected
        hits = [favoured == token for favoured, token in zip(expected, self.prompt[1:], strict=True)]
        assert [entry.rank == 1 for entry in last] == hits

    def test_few_rows_of_logits_exist_at_once(self):
        interpreter = NotingInterpreter()
        results(make_runner(interpreter), fresh("x", (1, 2)), fresh("a", self.prompt, prompt_logprobs=0))
        sizes = [len(rows) for kind, rows in interpreter.events if kind == "logits"]
        assert sizes == [32, 32, 31]
        assert interpreter.events[1][1][0] == 2  # rows of the step, behind those of the request before

    def test_a_prompt_of_one_token_has_none(self):
        got = results(make_runner(NotingInterpreter()), fresh("a", (1,), prompt_logprobs=1))
        assert got["a"].prompt_logprobs == ()

    def test_only_the_first_of_siblings_reports_and_only_before_its_first_token(self):
        runner = make_runner(NotingInterpreter())
        got = results(
            runner,
            fresh("sibling", (1, 2, 3), choice_index=1, prompt_logprobs=1),
            fresh("resumed", (1, 2, 3), output=(4,), prompt_logprobs=1),
            fresh("first", (1, 2, 3), prompt_logprobs=1),
        )
        assert [len(got[name].prompt_logprobs) for name in ("sibling", "resumed", "first")] == [0, 0, 2]

    def test_nan_in_a_prompt_fails_its_request_and_no_other(self):
        runner = make_runner(NotingInterpreter(bad=[9]))
        got = results(runner, fresh("bad", (1, 9, 3, 4), end=3, prompt_logprobs=1), fresh("a", (1, 9, 3)))
        assert got["bad"].error == "non-finite logits at prompt position 1"
        assert got["a"].token_id == 5


def test_closing_closes_the_interpreter():
    interpreter = NotingInterpreter()
    runner = make_runner(interpreter)
    assert runner.num_blocks == 16
    runner.close()
    assert interpreter.num_closed == 1
