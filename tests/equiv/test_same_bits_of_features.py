"""Texts with a shape, and embeddings, are the same bits whatever else happens."""

import math

import pytest
from same_bits import GREEDY, SAMPLED, TEXTS, bits_of

from octavo.engine.probe import PROBE_ID
from octavo.errors import StepError
from octavo.kernels.interpreter import SampledStep
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import SamplingParams
from octavo.structured_outputs import StructuredOutputsParams


@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_a_text_with_a_shape_is_the_same_in_any_company_and_after_any_preemption(session, temperature):
    """Where it is in its grammar is found again from its tokens."""
    shape = StructuredOutputsParams(
        json={"type": "array", "items": {"enum": ["a cat", "the", 7]}, "minItems": 4}
    )
    params = SamplingParams(
        temperature=temperature,
        seed=3,
        max_tokens=24,
        logprobs=3,
        repetition_penalty=1.1,
        structured_outputs=shape,
    )
    expected = session().bits(TEXTS[1], params)
    s = session(max_num_batched_tokens=16, max_num_seqs=4, block_size=8, num_threads=1)

    def preempt(step):
        if step % 3 == 0:
            s.built.engine.core.scheduler.preempt_all()

    for _ in range(2):  # the second time from the cache
        s.add(TEXTS[0], GREEDY)
        request = s.add(TEXTS[1], params)
        s.add(TEXTS[3], SAMPLED.clone(structured_outputs=StructuredOutputsParams(regex="[0-9 ]+")))
        output = s.finish(preempt)[request]
        assert bits_of(output.outputs[0]) == expected
        assert output.outputs[0].text.startswith("[")
    assert s.built.engine.core.scheduler.stats.num_preemptions > 4


@pytest.mark.parametrize("budget", [1, 7, 64])
def test_an_embedding_is_the_same_in_any_chunks_any_company_and_after_any_preemption(session, budget):
    def embed(s, after_step=lambda step: None):
        s.add(TEXTS[1], GREEDY)
        request = s.add(TEXTS[0], PoolingParams())
        s.add(TEXTS[0], SAMPLED)
        return s.finish(after_step)[request].embedding

    s = session()
    alone = s.run(TEXTS[0], PoolingParams()).embedding
    assert len(set(alone)) > 50
    assert embed(s) == alone
    s = session(
        max_num_batched_tokens=budget, max_num_seqs=4 if budget > 3 else 1, block_size=8, num_threads=1
    )

    def preempt(step):
        if step == 3:
            s.built.engine.core.scheduler.preempt_all()

    assert embed(s, preempt) == alone
    assert s.built.engine.core.scheduler.stats.num_preemptions > 0


class Poisoned:
    """An interpreter whose second row of logits has a NaN from the third step on, of at least three rows."""

    def __init__(self, interpreter):
        self.interpreter, self.num_runs, self.num_poisoned = interpreter, 0, 0

    def __getattr__(self, name):
        return getattr(self.interpreter, name)

    def run_and_sample(self, step, sampling_input):
        logits = self.interpreter.run(step)
        self.num_runs += 1
        if self.num_runs > 2 and len(logits) > 2 and not self.num_poisoned:
            logits[1, 7] = math.nan
            self.num_poisoned += 1
        return SampledStep(self.interpreter.sampler.sample(logits, sampling_input), logits)


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_nan_in_one_row_fails_that_request_alone(session, params):
    alone = [session().bits(text, params) for text in TEXTS[:4]]
    s = session()
    runner = s.built.engine.core.runner
    runner._sampling._interpreter = poisoned = Poisoned(runner._interpreter)
    names = [s.add(text, params) for text in TEXTS[:4]]
    outputs = s.finish()
    choices = [outputs[name].outputs[0] for name in names]
    assert poisoned.num_poisoned == 1
    assert (choices[1].finish_reason, len(choices[1].token_ids)) == ("error", 2)
    assert "non-finite logits at position" in choices[1].error
    assert [bits_of(choices[i]) for i in (0, 2, 3)] == [alone[i] for i in (0, 2, 3)]
    assert s.bits(TEXTS[1], params) == alone[1]  # what it left in the cache is sound


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_request_that_fails_every_step_costs_the_others_no_bit(session, params):
    alone = [session().bits(text, params) for text in TEXTS[:4]]
    embedding = session().run(TEXTS[0], PoolingParams()).embedding
    s = session(block_size=8, max_num_batched_tokens=64)
    runner = s.built.engine.core.runner
    submit = runner.submit
    names = [s.add(text, params) for text in TEXTS[:4]]
    pooled = s.add(TEXTS[0], PoolingParams())
    end = len(s.built.model.tokenizer.encode(TEXTS[1])) + 3  # it fails when it has generated some tokens

    def submit_and_fail(output):
        step = submit(output)  # whatever it has written, nobody may read
        for scheduled in output.scheduled:
            is_culprit = scheduled.request_id == names[1]
            if is_culprit and scheduled.num_computed_tokens + len(scheduled.token_ids) > end:
                raise StepError("poisoned")
        return step

    runner.submit = submit_and_fail
    outputs = s.finish()
    choices = [outputs[name].outputs[0] for name in names]
    assert (choices[1].finish_reason, len(choices[1].token_ids)) == ("error", 4)
    assert "it alone" in choices[1].error
    assert [bits_of(choices[i]) for i in (0, 2, 3)] == [alone[i] for i in (0, 2, 3)]
    assert outputs[pooled].embedding == embedding
    with pytest.raises(KeyError):
        runner._rows[PROBE_ID]
    runner.submit = submit
    assert s.bits(TEXTS[1], params) == alone[1]  # what it left in the cache is sound
