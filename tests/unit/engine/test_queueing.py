"""Who waits, how long, and for whom: tenants, timeouts and bounds of the queue."""

import pytest
from engine_fakes import FakeGrammars, make_engine, run_to_end

from octavo.engine.queue_place import QueuePlace
from octavo.errors import ContextLengthError, QueueFullError, QueueShareError, QueueTimeoutError
from octavo.sampling_params import SamplingParams
from octavo.structured_outputs import StructuredOutputsParams

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
    assert fake.engine.telemetry.snapshot.aborted == {"timeout": 1}
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


def test_a_tenant_has_no_more_in_the_queue_than_it_leaves_free():
    fake = make_engine(tokens(ord("a")), max_num_seqs=1, max_waiting_requests=8)

    def add(name, tenant):
        fake.engine.add_request(name, PROMPT, SamplingParams(max_tokens=2), place=QueuePlace(tenant=tenant))

    for i in range(4):
        add(f"flood-{i}", "flood")
    with pytest.raises(QueueShareError, match="4 requests of yours are waiting and 1 more"):
        add("one-more", "flood")
    add("other-0", "other")
    add("other-1", "other")
    for i in range(2):
        add(f"nobody-{i}", "")
    with pytest.raises(QueueFullError):
        add("nobody-2", "")
    assert len(run_to_end(fake.engine)) == 8
    add("again", "flood")
    assert set(run_to_end(fake.engine)) == {"again"}


def test_shares_are_counted_in_tokens_too_and_with_those_held_back():
    grammars = FakeGrammars()
    fake = make_engine(tokens(ord("a")), max_waiting_tokens=100, grammars=grammars)
    held_back = SamplingParams(max_tokens=1, structured_outputs=StructuredOutputsParams(json_object=True))
    place = QueuePlace(tenant="flood")
    fake.engine.add_request("held back", [1] * 30, held_back, place=place)
    fake.engine.add_request("waiting", [1] * 20, SamplingParams(max_tokens=1), place=place)
    with pytest.raises(QueueShareError, match="prompts of 50 tokens of yours are waiting and 20 more"):
        fake.engine.add_request("one more", [1] * 20, SamplingParams(max_tokens=1), place=place)


def test_a_prompt_of_millions_is_refused_by_its_length_alone():
    class Millions(list):
        def __iter__(self):
            raise AssertionError("somebody looked at each of them")

    fake = make_engine(tokens(ord("a")))
    with pytest.raises(ContextLengthError):
        fake.engine.add_request("long", Millions([1] * 1000), SamplingParams())
