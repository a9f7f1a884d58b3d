"""Who waits, how long, and for whom: tenants, timeouts and bounds of the queue."""

import pytest
from engine_fakes import make_engine, run_to_end

from octavo.engine.queue_place import QueuePlace
from octavo.errors import QueueFullError, QueueTimeoutError
from octavo.sampling_params import SamplingParams

PROMPT = list(b"a prompt of some length")


def tokens(*token_ids):
    return lambda request_id, position: token_ids[min(position, len(token_ids) - 1)]


def test_a_flood_of_one_tenant_keeps_no_other_waiting():
    fake = make_engine(tokens(ord("a")), max_num_seqs=1)
    for i in range(20):
        fake.engine.add_request(
            f"flood-{i}", PROMPT, SamplingParams(max_tokens=2), place=QueuePlace(tenant="flood")
        )
    for _ in range(3):
        fake.engine.step()
    fake.engine.add_request("other", PROMPT, SamplingParams(max_tokens=2), place=QueuePlace(tenant="other"))
    finished = list(run_to_end(fake.engine))
    assert finished.index("other") <= 3


def test_a_flood_that_waits_for_one_prefix_keeps_no_other_tenant_waiting():
    """All of it is passed over until the prefix is there; that must not count as having been served."""
    fake = make_engine(
        tokens(ord("a")), max_num_seqs=4, max_num_batched_tokens=32, long_prefill_token_threshold=8
    )
    for i in range(20):
        fake.engine.add_request(
            f"flood-{i}", PROMPT, SamplingParams(max_tokens=2), place=QueuePlace(tenant="flood")
        )
    fake.engine.step()
    fake.engine.add_request("other", [1] * 9, SamplingParams(max_tokens=2), place=QueuePlace(tenant="other"))
    others_in_front = [request.request_id for request in fake.scheduler.waiting].index("other")
    assert others_in_front <= 1
    assert len(run_to_end(fake.engine)) == 21


def test_a_request_that_waits_too_long_is_refused_and_one_that_runs_is_not():
    now = [0.0]
    fake = make_engine(tokens(ord("a")), max_num_seqs=1, queue_timeout=5.0, clock=lambda: now[0])
    fake.engine.add_request("running", PROMPT, SamplingParams(max_tokens=50))
    fake.engine.add_request("waiting", PROMPT, SamplingParams(max_tokens=2, n=2))
    fake.engine.step()
    assert fake.engine.patience_s == 5.0
    now[0] = 6.0
    outputs = {output.request_id: output for output in fake.engine.step()}
    assert isinstance(outputs["waiting"].refusal, QueueTimeoutError)
    assert set(run_to_end(fake.engine)) == {"running"}
    assert fake.kv.num_free_blocks == fake.kv.num_blocks


def test_a_paused_engine_wakes_for_who_waited_too_long():
    now = [0.0]
    fake = make_engine(tokens(ord("a")), queue_timeout=5.0, clock=lambda: now[0])
    fake.engine.pause()
    fake.engine.add_request("waiting", PROMPT, SamplingParams())
    assert not fake.engine.has_work
    now[0] = 5.0
    assert (fake.engine.has_work, fake.engine.patience_s) == (True, 0.0)
    [output] = fake.engine.step()
    assert isinstance(output.refusal, QueueTimeoutError)
    assert not fake.engine.has_work


def test_the_queue_is_bounded_in_tokens_and_takes_anything_when_it_is_empty():
    fake = make_engine(tokens(ord("a")), max_waiting_tokens=30)
    fake.engine.add_request("large", [1] * 60, SamplingParams(max_tokens=2))
    with pytest.raises(
        QueueFullError, match="prompts of 60 tokens are waiting and 10 more exceed the limit of 30"
    ):
        fake.engine.add_request("small", [1] * 10, SamplingParams())
    run_to_end(fake.engine)
    fake.engine.add_request("small", [1] * 10, SamplingParams(max_tokens=1))
    assert set(run_to_end(fake.engine)) == {"small"}
