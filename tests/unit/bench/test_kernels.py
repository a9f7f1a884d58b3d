"""The kernel benchmark on sizes that take a moment; no figure is asserted."""

import math

import numpy as np
import pytest

from octavo.bench.attention_cases import DECODE_SIZES, AttentionSize, attention_cases, shuffled_over_in_order
from octavo.bench.kernel_case import KernelCase, KernelOptions, PreparedKernel, largest_error
from octavo.bench.kernels import COLUMNS, Machine, run_kernels
from octavo.bench.limits import Limits, measure_round_trip
from octavo.bench.linear_cases import linear_cases
from octavo.bench.row_cases import row_cases
from octavo.errors import EngineError, KernelUnavailableError
from octavo.kernels.native_library import load_library
from octavo.kernels.native_pool import NativePool
from octavo.kernels.native_probe import PROBE_BYTES, NativeProbe
from octavo.kernels.select import available_isas
from octavo.kernels.weight import Quantization

LIMITS = Limits(read=10e9, integer=100e9, float=50e9, round_trip=1e-7)
MACHINE = Machine(LIMITS, read_rate=lambda: 10e9)
OPTIONS = KernelOptions("auto", 1)


def make_case(*, error: float = 0.0, num_bytes: int = 1_000) -> KernelCase:
    return KernelCase(
        op="nothing",
        size="1",
        peak="integer",
        prepare=lambda _options: PreparedKernel(lambda: None, lambda: None, num_bytes, 50),
        error=lambda _options: error,
        tolerance=1e-5,
    )


def test_the_slower_of_reading_and_computing_is_the_limit():
    assert LIMITS.bound(1_000, 50, "integer") == ("read", 1e-7)
    assert LIMITS.bound(0, 50, "float") == ("float", 1e-9)


def test_a_row_has_every_column():
    [result] = run_kernels([make_case(num_bytes=0)], OPTIONS, MACHINE, seconds=0.0)
    row = result.as_row()
    assert {column.key for column in COLUMNS} <= set(row)
    assert math.isclose(result.fraction, 5e-10 / result.seconds.median)
    assert result.rate.endswith(" GOP/s")


def test_reading_is_compared_with_passes_over_memory_in_turn():
    order = []
    kernel = PreparedKernel(lambda: order.append("kernel"), lambda: None, 1_000, 50)
    case = make_case()._replace(prepare=lambda _options: kernel)
    machine = Machine(LIMITS, read_rate=lambda: order.append("read") or 1e30)
    [result] = run_kernels([case], OPTIONS, machine, seconds=0.0)
    assert order[-4:] == ["kernel", "read", "kernel", "read"]
    assert 0 < result.fraction < 1e-15  # of the passes' rate, not of the limit's
    assert result.rate.endswith(" GB/s")


@pytest.mark.parametrize("error", [1e-4, math.nan])
def test_a_wrong_result_is_not_timed(error):
    with pytest.raises(EngineError, match="a wrong result has no speed"):
        list(run_kernels([make_case(error=error)], OPTIONS, MACHINE, seconds=0.0))


def test_errors_are_relative_to_the_row():
    want = np.array([[1.0, 100.0], [0.0, 0.0]])
    assert math.isclose(largest_error(want + np.array([[1.0, 0.0], [0.0, 0.0]]), want), 0.01)


def test_native_kernels_agree_with_the_reference_in_every_case():
    cases = [*linear_cases([Quantization.Q4_1], [1]), *row_cases()]
    cases += [case for case in attention_cases() if "× 64" in case.size][:1]
    for case in cases:
        assert case.error(OPTIONS) <= case.tolerance, (case.op, case.size)


def test_shuffled_and_ordered_blocks_are_timed_in_pairs():
    size = AttentionSize(num_requests=2, context=40, num_heads=2, num_kv_heads=1, head_dim=16)
    ratio = shuffled_over_in_order(OPTIONS, size=size, num_pairs=3)
    assert ratio.num_runs == 3
    assert ratio.low > 0


def test_decoding_sizes_exceed_every_cache():
    assert min(size.num_bytes for size in DECODE_SIZES) >= 4 * 32 * 2**20


def test_operations_of_causal_attention():
    size = AttentionSize(num_requests=1, context=3, num_new_tokens=2, num_heads=1, num_kv_heads=1, head_dim=8)
    assert size.num_operations == 4 * 8 * (2 + 3)  # the second token sees two, the third one three


@pytest.mark.parametrize("isa", available_isas())
def test_probes_count_what_every_thread_does(isa):
    pool = NativePool(2, library=load_library())
    try:
        probe = NativeProbe(library=load_library(), pool=pool, isa=isa)
        assert probe.float_operations(200) == 2 * probe.float_operations(100) > 0
        assert probe.integer_operations(10) % 20 == 0
        for ahead in (False, True):
            probe.read(np.ones(3 * PROBE_BYTES, np.uint8), ahead=ahead)
        assert probe.round_trips(100) == 100
        with pytest.raises(EngineError, match="whole MiB"):
            probe.read(np.ones(100, np.uint8), ahead=False)
    finally:
        pool.close()


@pytest.mark.parametrize("num_threads", [2, 3])
def test_cores_take_more_than_light_does_to_answer(num_threads):
    assert measure_round_trip(num_threads=num_threads) > 1e-9


def test_a_thread_alone_answers_nobody():
    assert measure_round_trip(num_threads=1) == 0


def test_an_unknown_instruction_set_is_refused():
    from octavo.bench.limits import measure_limits

    with pytest.raises(KernelUnavailableError):
        measure_limits(isa="nonsense", num_threads=1)
