"""A request's tokens and log-probabilities are the same bits whatever else happens.

Everything here compares floats with ``==``: one flipped bit fails. Native kernels only, because numpy's
matrix products depend on the number of rows.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from same_bits import GREEDY, SAMPLED, TEXTS, Bits, Session, SessionFactory, bits_of, prompt_bits_of

from octavo.build import build
from octavo.config import EngineConfig
from octavo.kernels.select import available_isas
from octavo.sampling_params import SamplingParams


@pytest.fixture(scope="module", params=["float16", "int8"])
def kv_dtype(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def session(session: SessionFactory, kv_dtype: str) -> SessionFactory:
    return partial(session, kv_dtype=kv_dtype)


@pytest.fixture(scope="module")
def alone(model_path: Path, kv_dtype: str) -> Iterator[dict[tuple[int, str], Bits]]:
    """What each prompt gives on an engine that has seen nothing else, computed alone and in one piece."""
    options = {"model": str(model_path), "kernels": "native", "num_threads": 2, "max_model_len": 512}
    built = build(EngineConfig.from_options({**options, "kv_dtype": kv_dtype, "kv_cache_memory": "64MiB"}))
    session = Session(built)
    result = {}
    for i, text in enumerate(TEXTS):
        for name, params in (("greedy", GREEDY), ("sampled", SAMPLED)):
            built.engine.reset_prefix_cache()
            result[i, name] = session.bits(text, params)
    yield result
    built.engine.close()


PARAMS = pytest.mark.parametrize(("name", "params"), [("greedy", GREEDY), ("sampled", SAMPLED)])


def test_the_baseline_says_something(alone):
    for name in ("greedy", "sampled"):
        assert len({alone[i, name] for i in range(len(TEXTS))}) == len(TEXTS)
    assert sum(alone[i, "greedy"] != alone[i, "sampled"] for i in range(len(TEXTS))) > len(TEXTS) // 2
    assert all(len(bits.token_ids) == GREEDY.max_tokens for bits in alone.values())


@PARAMS
def test_cold_and_warm_cache(session, alone, name, params):
    s = session()
    for i, text in enumerate(TEXTS[:4]):
        cold = s.run(text, params)
        before = s.built.engine.core.scheduler.stats.prefix_cache.num_hit_tokens
        warm = s.run(text, params)
        assert bits_of(cold.outputs[0]) == bits_of(warm.outputs[0]) == alone[i, name]
        full_blocks = (len(warm.prompt_token_ids) - 1) // 16
        assert warm.num_cached_tokens == full_blocks * 16
        after = s.built.engine.core.scheduler.stats.prefix_cache.num_hit_tokens
        assert after - before == full_blocks * 16


@PARAMS
def test_alone_and_in_a_batch_of_eight(session, alone, name, params):
    s = session()
    names = [s.add(text, params) for text in TEXTS]
    outputs = s.finish()
    for i, request in enumerate(names):
        assert bits_of(outputs[request].outputs[0]) == alone[i, name]


@pytest.mark.parametrize("size", [2, 3, 5, 16, 33, 64])
def test_any_batch_size(session, alone, size):
    s = session(max_num_seqs=64)
    names = [s.add(TEXTS[i % len(TEXTS)], GREEDY if i % 3 else SAMPLED) for i in range(size)]
    outputs = s.finish()
    for i, request in enumerate(names):
        assert bits_of(outputs[request].outputs[0]) == alone[i % len(TEXTS), "greedy" if i % 3 else "sampled"]


def test_with_and_without_shared_passes(session):
    results = []
    for share in (True, False):
        s = session()
        common = TEXTS[5]
        while len(s.built.model.tokenizer.encode(common)) < 280:  # a pass is of 256 tokens
            common += TEXTS[5]
        texts = [common + text for text in TEXTS[2:8]]
        interpreter = s.built.engine.core.runner._interpreter
        interpreter.share_passes(share)
        num_passes = []
        names = [s.add(text, GREEDY) for text in texts]
        outputs = s.finish(lambda step, i=interpreter, n=num_passes: n.append(i.num_shared_passes))
        assert any(num_passes) == share
        results.append([bits_of(outputs[name].outputs[0]) for name in names])
    assert results[0] == results[1]


def test_with_and_without_steps_that_begin_early(session, alone):
    for when in ("always", "never"):
        s = session(num_threads=2)
        interpreter = s.built.engine.core.runner._interpreter
        interpreter.begin_early(when)
        names = [s.add(text, SAMPLED if i % 2 else GREEDY) for i, text in enumerate(TEXTS[:4])]
        outputs = s.finish()
        assert (interpreter.num_early_steps > 0) == (when == "always")
        for i, request in enumerate(names):
            assert bits_of(outputs[request].outputs[0]) == alone[i, "sampled" if i % 2 else "greedy"]


@PARAMS
@pytest.mark.parametrize("budget", [1, 7, 16, 64])
def test_any_chunking(session, alone, budget, name, params):
    s = session(max_num_batched_tokens=budget, max_num_seqs=8)
    assert s.bits(TEXTS[0], params) == alone[0, name]
    names = [s.add(text, params) for text in TEXTS[1:4]]
    outputs = s.finish()
    for i, request in enumerate(names, start=1):
        assert bits_of(outputs[request].outputs[0]) == alone[i, name]


@PARAMS
@pytest.mark.parametrize("block_size", [8, 16, 32])
def test_any_block_size(session, alone, block_size, name, params):
    s = session(block_size=block_size)
    for _ in range(2):  # the second time from the cache
        assert s.bits(TEXTS[0], params) == alone[0, name]


@PARAMS
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_any_number_of_threads(session, alone, num_threads, name, params):
    s = session(num_threads=num_threads)
    names = [s.add(text, params) for text in TEXTS[:3]]
    outputs = s.finish()
    for i, request in enumerate(names):
        assert bits_of(outputs[request].outputs[0]) == alone[i, name]


@PARAMS
def test_any_physical_placement(session, alone, name, params):
    s = session()
    shuffle_free_blocks(s)
    name_of = s.add(TEXTS[0], params)
    s.built.engine.step()
    table = s.built.kv.block_ids(name_of)
    assert table != sorted(table)
    assert bits_of(s.finish()[name_of].outputs[0]) == alone[0, name]


def shuffle_free_blocks(session: Session) -> None:
    """Run crossing requests and end them out of order, so that the free queue is in no order at all."""
    engine = session.built.engine
    names = [session.add(f"{i} {TEXTS[i % 8]}", GREEDY) for i in range(24)]
    for step in range(6):
        engine.step()
        for request in names[step % 3 :: 3][step::2]:
            engine.abort(request)
    session.finish()
    assert engine.reset_prefix_cache()


@PARAMS
def test_preempted_and_resumed(session, alone, tight_num_blocks, name, params):
    s = session(num_blocks=tight_num_blocks, max_model_len=16 * tight_num_blocks, watermark=0.0)
    names = [s.add(text, params) for text in TEXTS]
    outputs = s.finish()
    assert s.built.engine.core.scheduler.stats.num_preemptions > 0
    for i, request in enumerate(names):
        assert bits_of(outputs[request].outputs[0]) == alone[i, name]


@PARAMS
@pytest.mark.parametrize("every", [1, 3])
def test_preempted_over_and_over(session, alone, every, name, params):
    s = session(enable_prefix_caching=every == 3)
    request = s.add(TEXTS[0], params)

    def preempt(step):
        if step % every == 0:
            s.built.engine.core.scheduler.preempt_all()

    output = s.finish(preempt)[request]
    assert s.built.engine.core.scheduler.stats.num_preemptions >= 2
    assert bits_of(output.outputs[0]) == alone[0, name]


def test_n_choices_equal_single_requests(session):
    """Choice 0 is the request alone with that seed; each other one is the same in any company."""
    params = {"temperature": 1.0, "seed": 77, "max_tokens": 8, "ignore_eos": True, "logprobs": 3}
    s = session()
    four = [bits_of(choice) for choice in s.run(TEXTS[1], SamplingParams(n=4, **params)).outputs]
    assert len(set(four)) == 4
    assert s.bits(TEXTS[1], SamplingParams(**params)) == four[0]
    crowded = session(max_num_batched_tokens=16, max_num_seqs=4, block_size=8)
    crowded.add(TEXTS[0], GREEDY)
    request = crowded.add(TEXTS[1], SamplingParams(n=4, **params))
    crowded.add(TEXTS[5], SAMPLED)
    output = crowded.finish()[request]
    assert [bits_of(choice) for choice in output.outputs] == four
    two = s.run(TEXTS[1], SamplingParams(n=2, **params))
    assert [bits_of(choice) for choice in two.outputs] == four[:2]


@pytest.mark.parametrize("budget", [1, 7, 16, 64])
def test_prompt_logprobs_under_any_chunking(session, budget):
    params = SamplingParams(temperature=0.0, max_tokens=2, logprobs=0, prompt_logprobs=3)
    whole = session().run(TEXTS[0], params)
    s = session(max_num_batched_tokens=budget, max_num_seqs=4)
    chunked = s.add(TEXTS[0], params)
    s.add(TEXTS[1], GREEDY)
    output = s.finish()[chunked]
    assert prompt_bits_of(output) == prompt_bits_of(whole)
    assert bits_of(output.outputs[0]) == bits_of(whole.outputs[0])
    assert prompt_bits_of(s.run(TEXTS[0], params)) == prompt_bits_of(whole)


@PARAMS
def test_a_neighbour_aborted_mid_step(session, alone, name, params):
    s = session()
    neighbours = [s.add(text, SAMPLED) for text in TEXTS[3:6]]
    request = s.add(TEXTS[0], params)

    def abort(step):
        if step in (1, 4, 5):
            s.built.engine.abort(neighbours.pop())

    assert bits_of(s.finish(abort)[request].outputs[0]) == alone[0, name]
    assert neighbours == []


def test_a_prefix_shared_with_requests_of_the_same_step(session, alone):
    s = session()
    names = [s.add(TEXTS[0], GREEDY) for _ in range(4)]
    outputs = s.finish()
    assert {bits_of(outputs[request].outputs[0]) for request in names} == {alone[0, "greedy"]}
    assert sum(outputs[request].num_cached_tokens > 0 for request in names) == 3


@pytest.mark.parametrize("options", [{"kv_dtype": "float32"}, *({"isa": isa} for isa in available_isas())])
def test_what_may_have_other_bits_keeps_its_own(session, options):
    """In a crowd, in chunks and from the cache; short, because generic code takes its time."""
    params = replace(SAMPLED, max_tokens=4)
    bits = session(**options).bits(TEXTS[3], params)
    crowded = session(**options, max_num_batched_tokens=7, max_num_seqs=4, block_size=8, num_threads=1)
    for _ in range(2):
        crowded.add(TEXTS[4], params)
        request = crowded.add(TEXTS[3], params)
        assert bits_of(crowded.finish()[request].outputs[0]) == bits


def test_every_kv_dtype_has_bits_of_its_own(session, alone, kv_dtype):
    """Else an option that is not passed on would go unnoticed."""
    others = {"float16", "float32", "int8"} - {kv_dtype}
    bits = {session(kv_dtype=other).bits(TEXTS[0], GREEDY) for other in others}
    assert len(bits | {alone[0, "greedy"]}) == 3
