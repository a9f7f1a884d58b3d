"""Steps driven from the command line: order of the text, what the cache did, Ctrl-C."""

import itertools
import signal

import pytest

from octavo.cli.streaming import InOrderPrinter, run_requests
from octavo.engine.choice import choice_ids
from octavo.outputs import CompletionOutput, RequestOutput
from octavo.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=32)


def output(request_id: str, *texts: str, finished: bool = False) -> RequestOutput:
    reason = "stop" if finished else None
    choices = [CompletionOutput(index, text, finish_reason=reason) for index, text in enumerate(texts)]
    return RequestOutput(request_id, None, [1], choices, finished=finished)


def test_text_streams_in_order_although_requests_run_side_by_side():
    pieces: list[str] = []
    printer = InOrderPrinter(
        [("a", 0), ("b", 0)], write=pieces.append, begin=lambda index: pieces.append(f"[{index}]")
    )
    printer.update({"b": output("b", "other")})
    printer.update({"a": output("a", "on"), "b": output("b", "others", finished=True)})
    printer.update({"a": output("a", "one", finished=True), "b": output("b", "others", finished=True)})
    assert pieces == ["[0]", "on", "e", "\n", "[1]", "others", "\n"]


def test_continuations_of_one_request_are_printed_one_after_the_other():
    pieces: list[str] = []
    printer = InOrderPrinter([("a", 0), ("a", 1)], write=pieces.append)
    printer.update({"a": output("a", "x", "y", finished=True)})
    assert "".join(pieces) == "x\ny\n"


def test_a_run_reports_outputs_tables_and_time(make_engine):
    engine, kv = make_engine("yes")
    engine.add_request("1", list(range(20)), GREEDY)
    engine.add_request("2", list(range(20)), GREEDY)
    ticks = itertools.count()
    run = run_requests(engine, kv, ["2", "1"], on_update=lambda _: None, clock=lambda: next(ticks))
    assert list(run.outputs) == ["2", "1"]
    assert [o.outputs[0].text for o in run.outputs.values()] == ["yes", "yes"]
    assert run.num_generated_tokens == 8
    first, second = run.cache.block_tables["1"], run.cache.block_tables["2"]
    assert first[:2] == second[:2]
    assert (run.cache.peak_blocks, run.cache.shared_blocks) == (4, 2)
    assert run.outputs["2"].num_cached_tokens == 16
    assert run.timing.seconds_to_first_token > 0
    assert kv.num_free_blocks == kv.num_blocks


def test_unfilled_slots_are_those_of_the_last_blocks(make_engine):
    engine, kv = make_engine("y")
    engine.add_request("1", list(range(20)), GREEDY)
    run = run_requests(engine, kv, ["1"], on_update=lambda _: None)
    assert run.cache.unfilled_slots == 24 - 21


def test_siblings_are_watched_under_their_own_ids(make_engine):
    engine, kv = make_engine("yes")
    engine.add_request("1", list(range(20)), SamplingParams(n=3, temperature=0, max_tokens=8))
    run = run_requests(engine, kv, ["1"], on_update=lambda _: None)
    assert sorted(run.cache.block_tables) == choice_ids("1", 3) == ["1#0", "1#1", "1#2"]


def test_ctrl_c_leaves_nothing_behind(make_engine):
    engine, kv = make_engine("a long answer")
    engine.add_request("1", list(range(20)), GREEDY)
    with pytest.raises(KeyboardInterrupt):
        run_requests(engine, kv, ["1"], on_update=lambda _: signal.raise_signal(signal.SIGINT))
    assert not engine.has_unfinished_requests
    assert kv.num_free_blocks == kv.num_blocks
