"""Runs an `OpCase` on an interpreter and on the float64 reference, and compares."""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from tolerances import KV_TOLERANCES, SMALLEST_MAGNITUDE, TOLERANCES

from harness.op_cases import OpCase
from octavo.kernels.interpreter import Interpreter
from octavo.kernels.program import Program
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kv.spec import KVCacheSpec

MakeInterpreter = Callable[[Program, KVCacheSpec, int], Interpreter]
"""Called with the program, the cache's shape and the number of usable blocks."""


class OpResult(NamedTuple):
    """What an op leaves behind."""

    rows: np.ndarray
    """Its output buffer or the logits, one row per row."""
    kv_blocks: np.ndarray
    """[num_layers, num_blocks, 2, block_size, num_kv_heads, head_dim]"""


def run_op(make_interpreter: MakeInterpreter, case: OpCase) -> OpResult:
    """Run a case on a fresh interpreter."""
    interpreter = make_interpreter(case.program, case.kv_spec, case.num_blocks)
    try:
        if case.kv_blocks is not None:
            for layer, blocks in enumerate(case.kv_blocks):
                for block_id, content in enumerate(blocks):
                    interpreter.kv_store.write_block(layer, block_id, content)
        for slot, adapter in case.adapters.items():
            interpreter.set_adapter(slot, adapter)
        for buffer, rows in case.inputs:
            interpreter.write(buffer, rows)
        logits = interpreter.run(case.step).copy()
        rows = logits if case.output is None else interpreter.read(case.output)
        return OpResult(rows, read_cache(interpreter))
    finally:
        interpreter.close()


def check_op(
    make_interpreter: MakeInterpreter, case: OpCase, *, activations: Literal["float", "int8"] = "float"
) -> None:
    """Fail unless the interpreter agrees with the reference that quantises activations the same way."""
    reference = partial(ReferenceInterpreter, dtype=np.float64, activations=activations)
    got, want = run_op(make_interpreter, case), run_op(reference, case)
    assert_rows_close(got.rows, want.rows, TOLERANCES[case.op])
    kv_shape = (-1, case.kv_spec.head_dim)
    assert_rows_close(
        got.kv_blocks.reshape(kv_shape),
        want.kv_blocks.reshape(kv_shape),
        KV_TOLERANCES[case.kv_spec.dtype],
    )


def assert_rows_close(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    """Fail where an element is off by more than ``tolerance`` times its row's largest magnitude.

    NaNs must lie in the same places.
    """
    assert got.shape == want.shape, f"got shape {got.shape}, want {want.shape}"
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want), err_msg="NaNs in different places")
    if want.size == 0:
        return
    got, want = np.nan_to_num(got.astype(np.float64)), np.nan_to_num(want.astype(np.float64))
    magnitudes = np.abs(want).max(axis=-1, keepdims=True)
    errors = np.abs(got - want) / np.maximum(magnitudes, SMALLEST_MAGNITUDE)
    worst = np.unravel_index(errors.argmax(), errors.shape)
    assert errors[worst] <= tolerance, (
        f"element {tuple(map(int, worst))}: got {got[worst]}, want {want[worst]}; "
        f"off by {errors[worst]:.2e} of its row's largest, allowed is {tolerance:.2e}"
    )


def read_cache(interpreter: Interpreter) -> np.ndarray:
    """Every usable block [num_layers, num_blocks, 2, block_size, num_kv_heads, head_dim]."""
    store = interpreter.kv_store
    return np.array(
        [
            [store.block(layer, block_id) for block_id in range(store.num_blocks)]
            for layer in range(store.spec.num_layers)
        ]
    )
