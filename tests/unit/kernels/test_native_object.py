"""Who owns native objects: a call under way, an array, a fork's child and garbage can none of them hurt."""

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import ConfigError, EngineError
from octavo.kernels.interpreter import StepInput
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.native_kv import NativeKVStore
from octavo.kernels.native_library import NativeLibrary, OpStruct, as_int32, load_library
from octavo.kernels.native_object import NativeHandle, NativeObject
from octavo.kernels.native_pool import NativePool
from octavo.kernels.program import Program
from octavo.kernels.weight import Quantization, Weight
from octavo.kv.spec import KVCacheSpec

SPEC = KVCacheSpec(block_size=8, num_layers=1, num_kv_heads=1, head_dim=16, dtype="float16")
NUM_THREADS = 3
ROW = np.array([0], np.int32)
STEP = StepInput(
    token_ids=ROW,
    positions=ROW,
    query_start_loc=np.array([0, 1], np.int32),
    seq_lens=np.array([1], np.int32),
    block_tables=np.array([[0]], np.int32),
    logit_rows=ROW,
)


def linear_program() -> Program:
    """One linear layer and a head, 16 wide."""
    program = Program()
    weight = Weight("w", (16, 16), Quantization.F32, np.ones(256, np.float32).view(np.uint8))
    program.logits(program.linear(program.input(16), weight), weight)
    return program


def make(*, num_blocks: int = 4, **options: int) -> NativeInterpreter:
    settings = {"max_num_tokens": 4, "max_logit_rows": 2, "num_threads": NUM_THREADS} | options
    return NativeInterpreter(linear_program(), SPEC, num_blocks, **settings)


def kernel_threads() -> int:
    """Threads of pools in this process; one may come and go while they are counted."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            count += (task / "comm").read_text().strip() == "octavo-kernel"
        except (FileNotFoundError, ProcessLookupError):
            continue
    return count


def wait_for(condition: Callable[[], bool]) -> bool:
    """Whether it comes true; a thread that was joined stays in /proc for a moment."""
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return condition()


def virtual_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


class NotingLibrary(NativeLibrary):
    """Makes numbers for handles and notes what becomes of them."""

    def __init__(self) -> None:
        self.destroyed: list[tuple[str, int]] = []
        self._num_made = 0

    def create(self, name: str, *arguments: object) -> int:
        self._num_made += 1
        return self._num_made

    def get(self, name: str, *arguments: object) -> int:
        self.destroyed.append((name, arguments[0]))
        return 0


def test_what_an_object_uses_is_destroyed_after_it():
    library = NotingLibrary()
    pool = NativeHandle(library, "pool")
    program = NativeHandle(library, "program", uses=(pool,))
    del pool
    assert library.destroyed == []
    del program
    assert library.destroyed == [("octavo_program_destroy", 2), ("octavo_pool_destroy", 1)]


def test_the_order_holds_in_garbage_too():
    library = NotingLibrary()
    cycle: list[object] = [NativeHandle(library, "pool")]
    cycle += [NativeHandle(library, "program", uses=(cycle[0],)), cycle]
    del cycle
    gc.collect()
    assert [name for name, _ in library.destroyed] == ["octavo_program_destroy", "octavo_pool_destroy"]


def test_closing_waits_for_the_call_under_way():
    library = NotingLibrary()
    guarded = NativeObject(NativeHandle(library, "pool"), "thread pool", threading.RLock())
    inside, leave, events = threading.Event(), threading.Event(), []

    def call() -> None:
        with guarded:
            inside.set()
            leave.wait()
            events.append(("still there", list(library.destroyed)))

    def close() -> None:
        guarded.close()
        events.append(("closed", list(library.destroyed)))

    threads = [threading.Thread(target=call), threading.Thread(target=close)]
    threads[0].start()
    inside.wait()
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join()
    assert events == [("still there", []), ("closed", [("octavo_pool_destroy", 1)])]


def test_closing_what_one_is_inside_of_destroys_it_afterwards():
    """As a signal handler may do, which runs in the thread that it interrupts."""
    library = NotingLibrary()
    guarded = NativeObject(NativeHandle(library, "pool"), "thread pool", threading.RLock())
    with guarded:
        guarded.close()
        assert library.destroyed == []
    assert library.destroyed == [("octavo_pool_destroy", 1)]
    with pytest.raises(EngineError, match="the thread pool is closed"), guarded:
        pass


def test_an_interpreter_closed_by_another_thread_says_so():
    interpreter = make()
    started, errors = threading.Event(), []

    def run_steps() -> None:
        try:
            while True:
                logits = interpreter.run(STEP)
                started.set()
                interpreter.sampler.logprobs(logits, ROW, 1)
        except EngineError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run_steps)
    thread.start()
    started.wait()
    interpreter.close()
    thread.join()
    assert errors in (["the interpreter is closed"], ["the thread pool is closed"])
    for call in (
        lambda: interpreter.run(STEP),
        lambda: interpreter.logits(ROW),
        lambda: interpreter.weight_bytes,
    ):
        with pytest.raises(EngineError, match="the interpreter is closed"):
            call()
    with pytest.raises(EngineError, match="the KV store is closed"):
        interpreter.kv_store.copy_blocks([(0, 1)])
    with pytest.raises(EngineError, match="the thread pool is closed"):
        interpreter.sampler.logprobs(np.zeros((1, 16), np.float32), ROW, 0)


def test_logits_outlive_the_interpreter():
    num_threads = kernel_threads()
    interpreter = make()
    logits = interpreter.run(STEP)
    values = logits.copy()
    interpreter.close()
    np.testing.assert_array_equal(logits, values)
    del logits
    assert wait_for(lambda: kernel_threads() == num_threads)


def test_an_interpreter_that_is_dropped_gives_everything_back():
    num_threads, num_bytes = kernel_threads(), virtual_bytes()
    interpreter = make(num_blocks=2**20)  # 512 MiB of addresses, none of them touched
    alive = weakref.ref(interpreter)
    assert kernel_threads() == num_threads + NUM_THREADS - 1
    assert virtual_bytes() > num_bytes + 500 * 2**20
    del interpreter
    assert alive() is None, "a cycle keeps it"
    assert wait_for(lambda: kernel_threads() == num_threads)
    assert virtual_bytes() < num_bytes + 400 * 2**20


def test_one_that_cannot_be_made_gives_everything_back():
    num_threads = kernel_threads()
    with pytest.raises(ConfigError) as caught:
        NativeInterpreter(
            linear_program(), SPEC, 2**31, max_num_tokens=4, max_logit_rows=2, num_threads=NUM_THREADS
        )
    assert wait_for(lambda: kernel_threads() == num_threads), f"while the error is held: {caught.value}"


def test_another_process_destroys_nothing(monkeypatch: pytest.MonkeyPatch):
    library = NotingLibrary()
    guarded = NativeObject(NativeHandle(library, "pool"), "thread pool", threading.RLock())
    monkeypatch.setattr(os, "getpid", lambda: -1)
    guarded.close()
    del guarded
    assert library.destroyed == []


FORK = """
import os, sys
sys.path.insert(0, {folder!r})
import numpy as np
from octavo.errors import EngineError
from test_native_object import kernel_threads, make
interpreter = make()
logits = np.zeros((1, 16), np.float32)
calls = [
    lambda: interpreter.weight_bytes,
    lambda: interpreter.kv_store.copy_blocks([(0, 1)]),
    lambda: interpreter.sampler.logprobs(logits, np.zeros(1, np.int32), 0),
]
child = os.fork()
if child == 0:
    refused = 0
    for call in calls:
        try:
            call()
        except EngineError as error:
            refused += "do not survive fork(); load the model in the child" in str(error)
    interpreter.close()
    del interpreter, calls
    with_its_own = make()
    with_its_own.kv_store.copy_blocks([(0, 1)])
    with_its_own.close()
    os._exit(refused)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
for call in calls:
    call()
interpreter.close()
print("refused", status)
"""


def test_a_child_of_fork_is_refused_and_never_waits():
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK.format(folder=str(Path(__file__).parent))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (run.stdout, run.returncode) == ("refused 3\n", 0), run.stderr


@pytest.mark.parametrize("num_threads", [0, -1, 1025, 2**32 + 1])
def test_an_impossible_number_of_threads_is_a_wrong_configuration(num_threads: int):
    with pytest.raises(ConfigError, match=f"num_threads must be between 1 and 1024, got {num_threads}"):
        NativePool(num_threads, library=load_library())
    with pytest.raises(ConfigError, match=f"got {num_threads}"):
        make(num_threads=num_threads)


@pytest.mark.parametrize("name", ["max_num_tokens", "max_logit_rows"])
@pytest.mark.parametrize("number", [2**31, 3 * 10**9, 2**32 + 4])
def test_a_size_above_32_bits_is_not_cut(name: str, number: int):
    with pytest.raises(ConfigError, match=f"{name} must be between -2147483648 and 2147483647 .* {number}"):
        make(**{name: number})


def test_the_largest_and_smallest_numbers_fit():
    assert OpStruct(kind=2**31 - 1, bias=-(2**31), accumulate=True).kind == 2**31 - 1
    assert as_int32(np.array([2**31 - 1, -(2**31)])).tolist() == [2**31 - 1, -(2**31)]


@pytest.mark.parametrize("values", [[2**31], [-(2**31) - 1], np.array([2**32 + 4]), [2**70]])
def test_arrays_are_not_cut_to_32_bits(values: list[int]):
    with pytest.raises(EngineError, match="must fit 32 bits"):
        as_int32(values)


def test_block_ids_are_not_cut_to_32_bits():
    pool = NativePool(1, library=load_library())
    store = NativeKVStore(SPEC, 4, library=load_library(), pool=pool)
    with pytest.raises(EngineError, match="takes numbers of 32 bits, got 4294967296"):
        store.block(0, 2**32)
    with pytest.raises(EngineError, match="must fit 32 bits"):
        store.copy_blocks([(0, 2**32)])
    store.close()
    pool.close()
