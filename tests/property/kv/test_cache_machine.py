"""The cache under arbitrary sequences of operations: every invariant after each, every slot's content."""

import random

import pytest
from cache_model import CacheModel
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

MAX_REQUESTS = 6
tokens = st.integers(0, 1)
prompts = st.lists(tokens, min_size=1, max_size=9)
counts = st.integers(1, 9)
picks = st.integers(0, MAX_REQUESTS - 1)
continuations = st.lists(tokens, min_size=1, max_size=4)
mostly_true = st.sampled_from([True, True, True, False])
options = st.fixed_dictionaries(
    {},
    optional={
        "num_lookahead_tokens": st.integers(0, 3),
        "respect_watermark": st.booleans(),
        "reserved_blocks": st.integers(0, 3),
        "whole_sequence": st.booleans(),
    },
)


class CacheMachine(RuleBasedStateMachine):
    """Few blocks and few tokens, so that sharing, eviction and refusal happen all the time."""

    model: CacheModel

    @initialize(num_blocks=st.integers(2, 8), block_size=st.sampled_from([2, 3, 1]), is_caching=mostly_true)
    def start(self, num_blocks, block_size, is_caching):
        self.model = CacheModel(
            num_blocks=num_blocks, block_size=block_size, enable_prefix_caching=is_caching
        )

    def pick(self, number):
        return self.model.requests[number % len(self.model.requests)]

    def has_requests(self):
        return bool(self.model.requests)

    def has_room(self):
        return len(self.model.requests) < MAX_REQUESTS

    @precondition(has_room)
    @rule(token_ids=prompts, salt=st.sampled_from(["", "", "s"]), reads_cache=mostly_true, num_tokens=counts)
    def add_and_schedule(self, token_ids, salt, reads_cache, num_tokens):
        self.model.add(token_ids, salt=salt, skip_prefix_lookup=not reads_cache)
        self.model.schedule(self.model.requests[-1], num_tokens)

    @precondition(has_requests)
    @rule(number=picks, num_tokens=counts, chosen=options)
    def schedule(self, number, num_tokens, chosen):
        self.model.schedule(self.pick(number), num_tokens, **chosen)

    @rule(token_id=tokens, succeeds=mostly_true, copies_were_made=st.booleans())
    def decode(self, token_id, succeeds, copies_were_made):
        self.model.decode(token_id)
        self.model.check()
        self.end_step(succeeds, copies_were_made)

    @rule(succeeds=mostly_true, copies_were_made=st.booleans())
    def end_step(self, succeeds, copies_were_made):
        if succeeds:
            self.model.run_step()
        else:
            self.model.fail_step(copies_were_made=copies_were_made)

    @precondition(lambda self: self.has_requests() and self.has_room())
    @rule(number=picks, num_tokens=st.integers(0, 9), continuation=continuations, num_again=st.integers(0, 3))
    def fork(self, number, num_tokens, continuation, num_again):
        self.model.fork(self.pick(number), num_tokens, continuation, num_again=num_again)

    @precondition(has_requests)
    @rule(number=picks, comes_back=st.booleans())
    def leave(self, number, comes_back):
        if comes_back:
            self.model.preempt(self.pick(number))
        else:
            self.model.finish(self.pick(number))

    @rule(then_resets=st.booleans())
    def withdraw(self, then_resets):
        self.model.withdraw()
        if then_resets:
            self.model.reset()

    @invariant()
    def everything_holds(self):
        if hasattr(self, "model"):
            self.model.check()

    def teardown(self):
        if hasattr(self, "model"):
            self.model.check_everything_is_given_back()


def test_no_sequence_of_operations_breaks_an_invariant():
    run_state_machine_as_test(
        CacheMachine, settings=settings(max_examples=200, stateful_step_count=40, deadline=None)
    )


def random_operation(model: CacheModel, rng: random.Random) -> None:
    """One operation, weighted towards those that keep the pool under pressure."""
    request = rng.choice(model.requests) if model.requests else None
    kind = rng.choices(
        ("add", "schedule", "append", "run", "fork", "finish", "preempt", "withdraw", "fail", "reset"),
        (10, 40, 15, 15, 6, 6, 3, 2, 2, 1),
    )[0]
    if kind == "run":
        model.run_step()
    elif kind == "fail":
        model.fail_step(copies_were_made=rng.random() < 0.5)
    elif kind == "withdraw":
        model.withdraw()
    elif kind == "reset":
        model.reset()
    elif request is None or kind == "add":
        if len(model.requests) < 8:
            prompt = [rng.randrange(2) for _ in range(rng.randint(1, 24))]
            model.add(prompt, salt=rng.choice(["", "", "s"]), skip_prefix_lookup=rng.random() < 0.1)
    elif kind == "schedule":
        model.schedule(request, rng.randint(1, 24), num_lookahead_tokens=rng.choice([0, 0, 0, 5]))
    elif kind == "append":
        model.append(request, rng.randrange(2))
    elif kind == "fork":
        if len(model.requests) < 8:
            continuation = [rng.randrange(2) for _ in range(rng.randint(1, 4))]
            model.fork(request, rng.randint(0, 24), continuation, num_again=rng.choice([0, 0, 1, 5]))
    elif kind == "finish":
        model.finish(request)
    else:
        model.preempt(request)


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_20_000_random_operations_keep_all_invariants(enable_prefix_caching):
    rng = random.Random(20_000)
    model = CacheModel(num_blocks=12, block_size=4, enable_prefix_caching=enable_prefix_caching)
    for _ in range(20_000):
        random_operation(model, rng)
        model.check()
    model.check_everything_is_given_back()
    assert (model.num_hit_tokens > 1000) == enable_prefix_caching
    assert model.num_copies > 50
