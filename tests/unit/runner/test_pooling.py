"""`Pooling`: the mean over chunks, in order, and what cannot be pooled; `expose_hidden_states`."""

import numpy as np
import pytest
from tiny_models import make_tiny_llama

from octavo.kernels.hidden_states import expose_hidden_states
from octavo.kernels.program import Logits, Program, RmsNorm
from octavo.kernels.weight import Quantization, Weight
from octavo.models.loaded import load_model
from octavo.pooling_params import PoolingParams
from octavo.runner.pooling import Pooling
from octavo.runner.request_rows import RequestRow
from octavo.runner.step_layout import RequestShare
from octavo.sampling_params import SamplingParams
from octavo.sched.output import ScheduledRequest

BUFFER = object()


class Interpreter:
    def __init__(self, states):
        self.states = np.asarray(states, np.float32)

    def read(self, buffer):
        assert buffer is BUFFER
        return self.states


def pooled_row(num_tokens, **params):
    return RequestRow(0, (1,) * num_tokens, SamplingParams(), False, pooling=PoolingParams(**params))


def share(start, num_tokens):
    return ScheduledRequest("r", start, [1] * num_tokens, 0, (), False)


def pool(states, chunks, row, *, first_row=2):
    """What the steps report that compute these rows in these chunks, behind two rows of others."""
    reports, start = [], 0
    for size in chunks:
        step = np.concatenate(
            [np.full((first_row, 3), 99.0), states[start : start + size], np.full((1, 3), 99.0)]
        )
        results = {}
        Pooling(Interpreter(step), BUFFER).add_results(
            [RequestShare(row, share(start, size), first_row)], results
        )
        reports.append(results.get("r"))
        start += size
    return reports


@pytest.mark.parametrize("chunks", [[6], [1] * 6, [2, 3, 1]])
def test_the_mean_comes_with_the_last_chunk_and_is_the_same_whatever_they_are(chunks):
    states = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32) * np.float32(
        [[1e6], [1], [1e-6]] * 2
    )
    expected = np.zeros(3)
    for state in states.astype(np.float32):
        expected += state
    *early, last = pool(states, chunks, pooled_row(6, normalize=False))
    assert early == [None] * (len(chunks) - 1)
    assert last.embedding == (expected / 6).astype(np.float32).tolist()


def test_a_normalised_embedding_has_length_one_and_a_zero_one_stays_zero():
    [report] = pool(np.array([[3.0, 0, 0], [0, 8, 0]]), [2], pooled_row(2))
    assert report.embedding == pytest.approx([3 / 73**0.5, 8 / 73**0.5, 0])
    [report] = pool(np.zeros((2, 3)), [2], pooled_row(2))
    assert report.embedding == [0.0, 0.0, 0.0]


def test_a_state_that_is_not_finite_fails_the_request():
    [early, last] = pool(np.array([[np.nan, 0, 0], [0, 0, 0]]), [1, 1], pooled_row(2))
    assert early is None
    assert "non-finite" in last.error


def test_a_model_without_a_final_norm_cannot_be_pooled():
    results = {}
    Pooling(Interpreter([[0.0]]), None).add_results([RequestShare(pooled_row(1), share(0, 1), 0)], results)
    assert "no final norm" in results["r"].error


def test_hidden_states_are_the_final_norm_in_a_buffer_that_nobody_reads(tmp_path):
    program = load_model(make_tiny_llama(tmp_path / "tiny.gguf")).program
    exposed, hidden = expose_hidden_states(program)
    norm, copy, head = exposed.ops[-3:]
    assert (norm, head) == tuple(program.ops[-2:])
    assert isinstance(copy, RmsNorm)
    assert (copy.x, copy.weight, copy.out) == (norm.x, norm.weight, hidden)
    assert hidden not in program.buffers


def test_a_program_of_another_shape_is_left_alone():
    weight = Weight("w", (4, 3), Quantization.F32, np.zeros(48, np.uint8))
    program = Program()
    program.logits(program.input(3), weight)
    assert expose_hidden_states(program) == (program, None)
    assert isinstance(program.head, Logits)
    assert expose_hidden_states(Program()).hidden_states is None
