"""Which adapters there are, who holds them, and what is refused."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from async_harness import PATIENCE_S, endless, last_of, last_output, run, start_one, until
from engine_fakes import make_engine
from fake_adapters import FakeLoader

from octavo.engine.adapters import AdapterRegistry
from octavo.engine.async_engine import AsyncEngine
from octavo.errors import AdapterError, CapacityError, InvalidRequestError
from octavo.lora_request import LoRARequest
from octavo.sampling_params import SamplingParams
from octavo.sched.pause import PauseMode


def lora(name, path=""):
    return LoRARequest(name, 1, path)


@pytest.fixture
def loader():
    return FakeLoader()


@pytest.fixture
def registry(loader):
    return AdapterRegistry(loader, max_loras=2)


def add(registry, name, path):
    return registry.add(lora(name, path), registry.read(path))


def test_adapters_get_the_lowest_free_slot(registry, loader):
    assert add(registry, "a", "1")
    assert add(registry, "b", "2")
    registry.remove("a")
    assert add(registry, "c", "3")
    assert loader.installed == {0: "revision of 3", 1: "revision of 2"}
    assert [(adapter.name, adapter.slot) for adapter in registry.loaded.values()] == [("b", 1), ("c", 0)]


def test_adapters_are_read_one_at_a_time(registry, loader):
    """Each may take what memory is free, so two at once would take it twice."""
    begun, may_end, events = threading.Event(), threading.Event(), []

    def read(path):
        events.append(f"begin {path}")
        begun.set()
        assert may_end.wait(PATIENCE_S)
        events.append(f"end {path}")

    loader.read = read
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(registry.read, "1")
        assert begun.wait(PATIENCE_S)
        second = threads.submit(registry.read, "2")
        assert events == ["begin 1"]
        may_end.set()
        first.result(PATIENCE_S)
        second.result(PATIENCE_S)
    assert events == ["begin 1", "end 1", "begin 2", "end 2"]


def test_the_same_adapter_again_is_no_new_one(registry, loader):
    weights = registry.read("1")
    assert registry.add(lora("a", "1"), weights)
    assert not registry.add(lora("a", "1"), weights)
    assert registry.holds(lora("a"))
    assert registry.holds(lora("a", "1"))
    assert list(loader.installed) == [0]


def test_a_name_stands_for_one_place(registry):
    add(registry, "a", "1")
    with pytest.raises(AdapterError, match="the adapter 'a' was loaded from 1, not from 2; unload it first"):
        registry.holds(lora("a", "2"))


def test_no_more_than_max_loras(registry, loader):
    add(registry, "a", "1")
    add(registry, "b", "2")
    with pytest.raises(CapacityError, match="2 adapters are loaded, and max_loras is 2; unload one"):
        registry.read("3")
    assert loader.num_read == 2  # refused before anything is read


def test_an_unknown_adapter_is_named_beside_those_there_are(registry):
    with pytest.raises(AdapterError, match="there is no adapter 'x'; loaded are: none"):
        registry.get("x")
    add(registry, "a", "1")
    with pytest.raises(AdapterError, match="there is no adapter 'x'; loaded are: 'a'"):
        registry.holds(lora("x"))
    with pytest.raises(AdapterError, match="there is no adapter 'x'"):
        registry.remove("x")


def test_an_adapter_in_use_stays(registry, loader):
    add(registry, "a", "1")
    adapter = registry.get("a")
    registry.hold("r1", adapter)
    registry.hold("r2", adapter)
    registry.hold("r3", None)
    registry.release(["r1", "r3"])
    with pytest.raises(CapacityError, match=r"the adapter 'a' is in use \(requests: 1\); try again"):
        registry.remove("a")
    registry.release(["r2"])
    registry.remove("a")
    assert loader.installed == {0: None}


def test_an_engine_without_adapters_says_so():
    with pytest.raises(AdapterError, match="this engine has no adapters"):
        AdapterRegistry().read("1")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("",), "lora_name must be 1 to 256 printable characters, got ''"),
        (("a\n",), "printable"),
        (("x" * 257,), "1 to 256"),
        ((7,), "lora_name must be"),
        (("a", "1"), "lora_int_id must be an integer, got '1'"),
        (("a", 1, None), "lora_path must be a string, got None"),
    ],
)
def test_a_request_for_an_adapter_is_checked(arguments, expected):
    with pytest.raises(InvalidRequestError, match=expected):
        LoRARequest(*arguments)


def engine_with_adapters():
    fake = make_engine(endless, max_num_batched_tokens=64, max_model_len=150)
    fake.engine.adapters = AdapterRegistry(FakeLoader(), max_loras=2)
    return fake.engine


def test_requests_are_told_their_slot_and_their_blocks_kept_apart():
    engine = engine_with_adapters()
    engine.add_lora(lora("a", "1"))
    engine.add_lora(lora("b", "2"))
    prompt, params = list(range(40)), SamplingParams(max_tokens=1)
    found = {}
    for name, adapter in [("1", None), ("2", "a"), ("3", "b"), ("4", "a"), ("5", None), ("6", "b")]:
        engine.add_request(name, prompt, params, adapter=adapter)
        (output,) = engine.step()
        found[name] = output.num_cached_tokens > 0
    assert found == {"1": False, "2": False, "3": False, "4": True, "5": True, "6": True}


def test_the_same_name_with_other_weights_shares_nothing():
    engine = engine_with_adapters()
    prompt, params = list(range(40)), SamplingParams(max_tokens=1)
    for name, path, is_found in [("1", "x", False), ("2", "y", False), ("3", "x", True)]:
        engine.add_lora(lora("a", path))
        engine.add_request(name, prompt, params, adapter="a")
        (output,) = engine.step()
        assert (output.num_cached_tokens > 0) is is_found
        engine.adapters.remove("a")


def test_whatever_ends_a_request_lets_go_of_its_adapter():
    engine = engine_with_adapters()
    engine.add_lora(lora("a", "1"))
    params = SamplingParams(max_tokens=2, n=2)
    engine.add_request("finishes", [1, 2, 3], params, adapter="a")
    engine.step()
    with pytest.raises(CapacityError, match="in use"):
        engine.adapters.remove("a")
    engine.step()
    engine.add_request("aborted", [1, 2, 3], params, adapter="a")
    engine.step()
    engine.abort("aborted")
    with pytest.raises(InvalidRequestError):
        engine.add_request("refused", [-1], params, adapter="a")
    engine.adapters.remove("a")
    with pytest.raises(AdapterError, match="there is no adapter 'a'"):
        engine.add_request("late", [1, 2, 3], params, adapter="a")
    assert not engine.has_unfinished_requests


def test_adapters_come_and_go_while_requests_run():
    async def scenario():
        async with AsyncEngine(engine_with_adapters) as engine:
            stream, _ = await start_one(engine, max_tokens=100)
            assert await engine.add_lora(lora("a", "1"))
            assert not await engine.add_lora(lora("a", "1"))
            with pytest.raises(AdapterError, match="does not fit"):
                await engine.add_lora(lora("b", "bad"))
            await engine.pause(PauseMode.ALL)
            params = SamplingParams(max_tokens=20)
            adapted = asyncio.create_task(last_of(engine.generate("p", params, lora_request=lora("a"))))
            await until(lambda: engine.num_unfinished_requests == 2)
            with pytest.raises(CapacityError, match="in use"):
                await engine.remove_lora("a")
            await engine.resume()
            assert (await adapted).finished
            await engine.remove_lora("a")
            assert dict(engine.loras) == {}
            loaded_on_the_way = engine.generate(
                "p", SamplingParams(max_tokens=2), lora_request=lora("c", "3")
            )
            assert [output async for output in loaded_on_the_way][-1].finished
            assert list(engine.loras) == ["c"]
            await stream.aclose()
            assert (await last_output(engine, max_tokens=2)).finished

    run(scenario())
