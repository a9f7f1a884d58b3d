"""`RequestOutput.cache_receipt`: what was reused, and why no more."""

import pytest
from engine_fakes import make_engine, run_to_end

from octavo.kv.receipt import CacheReceipt, MissReason
from octavo.sampling_params import SamplingParams

PROMPT = list(range(18))  # four blocks of four, and two tokens more


@pytest.fixture
def fake():
    return make_engine(lambda request_id, position: 100 + position, num_blocks=16)


def receipt(fake, prompt=PROMPT, *, name="r", salt=None, **params):
    fake.engine.add_request(name, prompt, SamplingParams(max_tokens=1, **params), cache_salt=salt)
    return run_to_end(fake.engine)[name].cache_receipt


def test_a_cold_prompt_was_never_cached_and_a_warm_one_lacks_its_last_tokens(fake):
    assert receipt(fake) == CacheReceipt(0, 0, 5, 0, MissReason.NEVER_CACHED)
    assert receipt(fake) == CacheReceipt(4, 0, 1, 16, MissReason.LAST_TOKEN)
    assert receipt(fake, PROMPT[:16]) == CacheReceipt(3, 0, 1, 12, MissReason.LAST_TOKEN)
    assert receipt(fake, [*PROMPT[:8], *range(50, 60)]) == CacheReceipt(2, 0, 3, 8, MissReason.NEVER_CACHED)


def test_what_was_evicted_is_told_apart_from_what_was_never_there(fake):
    receipt(fake)
    receipt(fake, list(range(100, 156)))  # takes 14 of 16 blocks
    told = receipt(fake)
    assert told.first_miss_reason is MissReason.EVICTED
    assert told.num_reused_blocks + told.num_computed_blocks == 5
    assert told.first_miss_position == 4 * told.num_reused_blocks
    assert fake.engine.reset_prefix_cache()
    assert receipt(fake).first_miss_reason is MissReason.NEVER_CACHED


def test_a_salt_tells_nothing_of_what_others_have_cached(fake):
    receipt(fake)
    assert receipt(fake, salt="a") == CacheReceipt(0, 0, 5, 0, MissReason.SALT)
    assert receipt(fake, salt="a") == CacheReceipt(4, 0, 1, 16, MissReason.LAST_TOKEN)
    assert receipt(fake, salt="b") == receipt(fake, list(range(60, 78)), salt="b")


def test_prompt_logprobs_look_nothing_up(fake):
    receipt(fake)
    assert receipt(fake, prompt_logprobs=1).first_miss_reason is MissReason.NOT_LOOKED_UP
