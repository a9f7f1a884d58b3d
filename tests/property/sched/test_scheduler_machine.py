"""Random adds, aborts, preemptions, steps, failed steps, errors and resets."""

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sched_harness import Harness

from octavo.errors import CapacityError, ContextLengthError
from octavo.kv.invariants import check_invariants

BLOCK_SIZE = 4
NUM_BLOCKS = 12


class SchedulerMachine(RuleBasedStateMachine):
    """Few tokens, few blocks and few prompts, so that everything collides with everything."""

    @initialize(
        policy=st.sampled_from(["fcfs", "priority"]),
        caching=st.booleans(),
        chunked=st.booleans(),
        budget=st.sampled_from([3, 8, 48]),
        threshold=st.sampled_from([0, 2]),
        fair_share=st.booleans(),
        watermark=st.sampled_from([0.0, 0.2]),
    )
    def start(self, policy, caching, chunked, budget, threshold, fair_share, watermark):
        self.h = Harness(
            num_blocks=NUM_BLOCKS,
            block_size=BLOCK_SIZE,
            max_model_len=40,
            enable_prefix_caching=caching,
            watermark=watermark,
            scheduling_policy=policy,
            enable_chunked_prefill=chunked,
            max_num_batched_tokens=budget if chunked else 48,
            long_prefill_token_threshold=threshold,
            long_prefill_fair_share=fair_share,
            max_num_seqs=5,
            max_waiting_requests=12,
        )
        self.num_added = 0
        self.ended_early = set()

    @rule(
        family=st.integers(0, 2),
        num_tokens=st.integers(1, 48),
        max_tokens=st.integers(1, 12),
        n=st.sampled_from([1, 1, 1, 2, 3]),
        priority=st.integers(0, 2),
        prompt_logprobs=st.sampled_from([None, None, None, 1]),
    )
    def add(self, family, num_tokens, max_tokens, n, priority, prompt_logprobs):
        self.num_added += 1
        before = dict(self.h.requests)
        prompt = range(family * 1000, family * 1000 + num_tokens)
        parameters = {"max_tokens": max_tokens, "priority": priority, "prompt_logprobs": prompt_logprobs}
        try:
            self.h.add_siblings(f"r{self.num_added}", prompt, n, **parameters)
        except ContextLengthError:
            assert num_tokens >= 40
            self.h.requests = before
        except CapacityError:
            assert self.h.scheduler.num_waiting + n > 12
            self.h.requests = before

    @rule()
    def step(self):
        """Every step makes progress while there is work."""
        has_work = self.h.scheduler.has_unfinished_requests
        assert bool(self.h.step().scheduled) == has_work

    @rule(fate=st.sampled_from(["runs", "fails"]), pick=st.randoms(use_true_random=False))
    def step_with_aborts_under_way(self, fate, pick):
        output = self.h.schedule()
        if not output.scheduled:
            return
        self._abort_some(pick)
        if fate == "runs":
            self.h.finish_step(output)
        else:
            self.h.fail_step(output)

    @rule(pick=st.randoms(use_true_random=False))
    def step_with_an_error(self, pick):
        """NaN shows where a token is sampled; from then on nobody may meet it."""
        output = self.h.schedule()
        sampling = [scheduled.request_id for scheduled in output.scheduled if scheduled.samples]
        if sampling:
            self.h.runner.failing_ids.add(pick.choice(sampling))
        if output.scheduled:
            updates = self.h.finish_step(output)
            self.ended_early.update(update.request_id for update in updates if update.error is not None)
            self.h.runner.failing_ids.clear()

    @rule(pick=st.randoms(use_true_random=False), num_steps=st.integers(1, 3))
    def steps_of_a_few_alone(self, pick, num_steps):
        """Somebody of them gets on in every step, wherever they are in the queue and whoever holds blocks."""
        live = [request_id for request_id, request in self.h.requests.items() if not request.is_finished]
        only = set(pick.sample(live, min(len(live), 2)))
        for _ in range(num_steps):
            output = self.h.schedule(only)
            assert bool(output.scheduled) == bool(only)
            assert {scheduled.request_id for scheduled in output.scheduled} <= only
            assert set(self.h.scheduler.running) <= only
            if output.scheduled:
                self.h.finish_step(output)
            only = {request_id for request_id in only if request_id in self.h.scheduler}

    @rule(pick=st.randoms(use_true_random=False))
    def abort(self, pick):
        self._abort_some(pick)

    def _abort_some(self, pick):
        live = [request_id for request_id, request in self.h.requests.items() if not request.is_finished]
        for request_id in pick.sample(live, min(len(live), pick.randint(0, 2))):
            assert self.h.scheduler.finish(request_id, "abort")
            assert not self.h.scheduler.finish(request_id, "abort")
            self.ended_early.add(request_id)

    @rule()
    def preempt_all(self):
        self.h.scheduler.preempt_all()

    @rule(reset_running=st.booleans())
    def reset(self, reset_running):
        idle = self.h.scheduler.num_running == 0
        assert self.h.scheduler.reset_prefix_cache(reset_running=reset_running) == (idle or reset_running)

    @invariant()
    def holds_together(self):
        if not hasattr(self, "h"):
            return
        check_invariants(self.h.kv, self.h.requests.values())
        by_status = {"waiting": 0, "preempted": 0, "running": 0, "finished": 0}
        for request in self.h.requests.values():
            by_status[request.status] += 1
        assert self.h.scheduler.num_running == by_status["running"]
        assert self.h.scheduler.num_waiting == by_status["waiting"] + by_status["preempted"]
        for request in self.h.requests.values():
            assert (request.finish_reason == "error") <= (request.request_id in self.ended_early)

    def teardown(self):
        if not hasattr(self, "h"):
            return
        num_tokens = sum(r.max_num_tokens for r in self.h.requests.values() if not r.is_finished)
        self.h.run(max_steps=20 + 10 * num_tokens)
        self.h.check_idle()
        for request_id in self.h.requests:
            self.h.check_tokens(request_id, may_have_failed=request_id in self.ended_early)
            expected = {"abort", "error"} if request_id in self.ended_early else {"length"}
            assert self.h.requests[request_id].finish_reason in expected


SchedulerMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestSchedulerMachine = SchedulerMachine.TestCase


def test_twenty_thousand_random_operations():
    """One long life of one scheduler, so that whatever leaks has time to add up."""
    rng = random.Random(20_000)
    machine = SchedulerMachine()
    machine.start(
        policy="fcfs", caching=True, chunked=True, budget=16, threshold=0, fair_share=False, watermark=0.1
    )
    operations = [
        lambda: machine.add(
            family=rng.randrange(3),
            num_tokens=rng.randint(1, 48),
            max_tokens=rng.randint(1, 12),
            n=rng.choice([1, 1, 2]),
            priority=0,
            prompt_logprobs=rng.choice([None, None, 1]),
        ),
        machine.step,
        lambda: machine.step_with_aborts_under_way(rng.choice(["runs", "runs", "fails"]), rng),
        lambda: machine.step_with_an_error(rng),
        lambda: machine.steps_of_a_few_alone(rng, 2),
        lambda: machine.abort(rng),
        machine.preempt_all,
        lambda: machine.reset(rng.random() < 0.3),
    ]
    weights = [20, 50, 8, 2, 2, 3, 1, 1]
    for _ in range(20_000):
        rng.choices(operations, weights)[0]()
        machine.holds_together()
        machine.h.outputs.clear()
        _check_and_drop_ended(machine)
    assert machine.num_added > 1000
    assert machine.h.scheduler.stats.num_preemptions > 100
    machine.teardown()


def _check_and_drop_ended(machine):
    """So that the run does not become quadratic."""
    h = machine.h
    for request_id in [request_id for request_id, request in h.requests.items() if request.is_finished]:
        h.check_tokens(request_id, may_have_failed=request_id in machine.ended_early)
        del h.requests[request_id]


def test_twelve_blocks_serve_two_hundred_mixed_requests():
    rng = random.Random(12)
    for policy in ("fcfs", "priority"):
        h = Harness(
            num_blocks=NUM_BLOCKS,
            block_size=BLOCK_SIZE,
            scheduling_policy=policy,
            max_num_batched_tokens=20,
            max_num_seqs=8,
        )
        for index in range(200):
            family = rng.randrange(3) * 1000
            prompt = [
                *range(family, family + rng.choice([0, 8, 21])),
                *rng.choices(range(50_000), k=rng.randint(1, 16)),
            ]
            h.add(str(index), prompt, max_tokens=rng.randint(1, 10), priority=rng.randrange(3))
        h.run()
        h.check_idle()
        assert h.scheduler.stats.num_preemptions > 0
        for request_id in h.requests:
            h.check_tokens(request_id)
            assert h.requests[request_id].finish_reason == "length"
