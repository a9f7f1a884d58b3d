"""Work without progress is noticed, with its reason, and so is its end."""

import asyncio
import logging
import time
from concurrent.futures import Future

from async_harness import Gate, last_output, run, until
from engine_fakes import make_engine

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.watchdog import StallReason, Watchdog, find_stall
from octavo.sampling_params import SamplingParams
from octavo.sched.pause import PauseMode
from octavo.sched.request import Request

PROMPT = list(range(10, 30))


class Watched:
    """An engine, its clock, and a watchdog that looks when told."""

    def __init__(self, script=lambda request_id, position: ord("a")):
        self.now = 0.0
        self.engine = make_engine(script, clock=lambda: self.now).engine
        self.watchdog = Watchdog(lambda: self.engine.telemetry, 10.0, clock=lambda: self.now)

    def look_after(self, seconds):
        self.now += seconds
        self.watchdog.look()
        return self.watchdog.stall


def test_an_idle_engine_makes_no_alarm():
    watched = Watched()
    watched.engine.telemetry.rest()
    assert watched.look_after(1000.0) is None
    watched.engine.telemetry.wake()
    watched.engine.add_request("a", PROMPT, SamplingParams())
    assert watched.look_after(9.0) is None


def test_a_step_that_hangs(caplog):
    found = []

    def script(request_id, position):
        found.append(watched.look_after(9.0))
        found.append(watched.look_after(2.0))
        return ord("a")

    watched = Watched(script)
    watched.engine.add_request("a", PROMPT, SamplingParams(max_tokens=1))
    with caplog.at_level(logging.WARNING, "octavo.engine.watchdog"):
        watched.engine.step()
        assert watched.look_after(0.0) is None
    assert found[0] is None
    assert found[1] == (StallReason.STEP_HANGS, 11.0, "step 1 is computing 20 tokens of 1 requests")
    assert watched.watchdog.num_stalls == {StallReason.STEP_HANGS: 1}
    assert [record.getMessage() for record in caplog.records] == [
        "no progress for 11 s (step_hangs): step 1 is computing 20 tokens of 1 requests",
        "there is progress again, after a stall (step_hangs)",
    ]


def test_one_stall_is_one_alarm_however_often_it_is_seen(caplog):
    watched = Watched()
    watched.engine.telemetry.wake()
    with caplog.at_level(logging.WARNING, "octavo.engine.watchdog"):
        assert [watched.look_after(6.0) is None for _ in range(4)] == [True, False, False, False]
    assert watched.watchdog.stall.reason is StallReason.THREAD_BUSY
    assert watched.watchdog.num_stalls == {StallReason.THREAD_BUSY: 1}
    assert len(caplog.records) == 1


def test_a_pause_that_holds_work_back():
    watched = Watched()
    watched.engine.add_request("a", PROMPT, SamplingParams())
    watched.engine.pause(PauseMode.ALL)
    watched.engine.telemetry.publish()
    watched.engine.telemetry.rest()
    stall = watched.look_after(11.0)
    assert (stall.reason, stall.detail) == (
        StallReason.PAUSED,
        "1 requests wait: the engine is paused",
    )


def test_a_request_that_waits_for_its_grammar():
    watched = Watched()
    grammar = Future()
    request = Request("a", PROMPT, SamplingParams(), seed=1, prerequisite=grammar)
    watched.engine.core.add(request)
    watched.engine.telemetry.publish()
    watched.engine.telemetry.rest()
    assert not watched.engine.has_work
    stall = watched.look_after(11.0)
    assert (stall.reason, stall.detail.partition(" wait for")[0]) == (StallReason.HELD_BACK, "1 requests")


def test_steps_that_schedule_nothing_say_why():
    watched = Watched()
    telemetry = watched.engine.telemetry
    watched.engine.add_request("a", PROMPT, SamplingParams())
    for _ in range(3):
        watched.now += 5.0
        telemetry.wake()
        telemetry.nothing_scheduled("the next request needs 9 blocks")
    stall = find_stall(telemetry, limit_s=10.0, now=watched.now)
    assert stall == (StallReason.NOTHING_SCHEDULED, 15.0, "the next request needs 9 blocks")


def test_a_watchdog_without_an_engine_sees_nothing():
    watchdog = Watchdog(lambda: None, 1.0)
    watchdog.look()
    assert watchdog.stall is None


def test_an_async_engine_reports_a_step_that_hangs_while_it_hangs():
    async def scenario():
        gate = Gate()
        engine = AsyncEngine(lambda: make_engine(gate, clock=time.monotonic).engine, stall_s=0.01)
        assert (engine.snapshot, engine.stall) == (None, None)
        async with engine:
            task = asyncio.ensure_future(last_output(engine, max_tokens=1))
            await until(lambda: engine.stall and engine.stall.reason is StallReason.STEP_HANGS)
            gate.opened.set()
            await task
            await until(lambda: engine.stall is None)
            assert engine.num_stalls[StallReason.STEP_HANGS] >= 1
            await until(lambda: engine.snapshot.counts.num_generation_tokens == 1)

    run(scenario())
