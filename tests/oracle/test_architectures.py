"""Every architecture as transformers computes it: tiny random models, float32 arithmetic and cache.

`fixtures/make_model_fixtures.py` made the models and the expected logits.
"""

import re
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from gguf.constants import MODEL_ARCH_NAMES, MODEL_TENSORS, TENSOR_NAMES
from gguf_of_folder import write_gguf_of_folder
from harness.steps import Part, make_step, shuffled_block_tables

from octavo.kernels.interpreter import Interpreter
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kernels.select import available_isas
from octavo.kv.spec import KVCacheSpec
from octavo.models.huggingface_folder import HuggingFaceFolder
from octavo.models.loaded import LoadedModel, load_model

BLOCK_SIZE, NUM_BLOCKS = 8, 16
MAX_ERROR = 1e-4
MAX_MEAN_ERRORS = {"int8": 0.06, "int4": 0.36}
"""Of the standard deviation of all logits; 0.015 to 0.046 and 0.13 to 0.31 were measured. Rounding errors of
layers 32 wide do not average out as those of real models do. Unrelated logits would be off by more than 1."""


class Case(NamedTuple):
    """A model and what transformers made of it."""

    model: LoadedModel
    token_ids: np.ndarray
    positions: np.ndarray
    """Where logits are known."""
    logits: np.ndarray
    """[num_positions, vocab_size]"""


@pytest.fixture(scope="module")
def case(tiny_architecture: Path) -> Case:
    with np.load(tiny_architecture / "expected.npz") as expected:
        return Case(load_model(tiny_architecture), **expected)


def make(interpreter: type, case: Case, **options) -> Interpreter:
    spec = case.model.spec
    kv_spec = KVCacheSpec(
        block_size=BLOCK_SIZE,
        num_layers=spec.num_layers,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        dtype="float32",
    )
    return interpreter(case.model.program, kv_spec, NUM_BLOCKS, **options)


make_reference = partial(make, ReferenceInterpreter)
make_native = partial(make, NativeInterpreter, max_num_tokens=128, max_logit_rows=128, num_threads=2)


def all_logits(interpreter: Interpreter, token_ids: np.ndarray, chunks: list[int]) -> np.ndarray:
    """Logits of every token, computed in steps of so many tokens, in blocks in any order."""
    rng = np.random.default_rng(len(chunks))
    tables = shuffled_block_tables(rng, [len(token_ids)], block_size=BLOCK_SIZE, num_blocks=NUM_BLOCKS)
    pieces, computed = [], 0
    for count in chunks:
        new = token_ids[computed : computed + count]
        step = make_step([Part(computed, count)], tables, token_ids=new, logit_rows=range(count))
        pieces.append(interpreter.run(step).copy())
        computed += count
    return np.concatenate(pieces)


@pytest.mark.parametrize("make_interpreter", [make_reference, make_native], ids=["reference", "native"])
@pytest.mark.parametrize(
    "chunks", [[44], [13, 20, *[1] * 11], [1] * 44], ids=["prefill", "chunks and decode", "decode"]
)
def test_logits_are_those_of_transformers(case, make_interpreter, chunks):
    interpreter = make_interpreter(case)
    logits = all_logits(interpreter, case.token_ids, chunks)
    interpreter.close()
    assert np.abs(logits[case.positions] - case.logits).max() <= MAX_ERROR


@pytest.mark.parametrize("quantization", MAX_MEAN_ERRORS)
def test_weights_quantised_at_load_stay_close_and_change_no_bit_in_chunks(
    case, quantization, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where packed weights are kept
    model = load_model(case.model.path, quantization=quantization)
    interpreter = make_native(case._replace(model=model))
    logits = all_logits(interpreter, case.token_ids, [44])
    chunked = all_logits(interpreter, case.token_ids, [13, 20, *[1] * 11])
    interpreter.close()
    error = np.abs(logits[case.positions] - case.logits).mean() / case.logits.std()
    assert error <= MAX_MEAN_ERRORS[quantization]
    assert chunked.tobytes() == logits.tobytes()


def test_a_gguf_file_gives_the_same_logits(case, tmp_path):
    """With rows of queries and keys in another order for some, and the experts of a layer in one tensor."""
    model = load_model(write_gguf_of_folder(case.model.path, tmp_path / "model.gguf"))
    assert model.num_parameters == case.model.num_parameters
    interpreter = make_native(case._replace(model=model))
    logits = all_logits(interpreter, case.token_ids, [44])
    interpreter.close()
    assert np.abs(logits[case.positions] - case.logits).max() <= MAX_ERROR


def test_tensors_have_the_names_that_gguf_gives_them(case):
    architecture = next(
        number for number, name in MODEL_ARCH_NAMES.items() if name == case.model.spec.architecture
    )
    known = {TENSOR_NAMES[tensor] for tensor in MODEL_TENSORS[architecture]}
    for name in HuggingFaceFolder(case.model.path).tensors:
        plain = re.sub(r"\.(\d+)\.weight$", "_exps.weight", name).rpartition(".")[0]
        assert re.sub(r"^blk\.\d+\.", "blk.{bid}.", plain) in known


@pytest.mark.parametrize("isa", available_isas())
def test_chunks_neighbours_and_threads_change_no_bit(case, isa):
    interpreter = make_native(case, isa=isa)
    whole = all_logits(interpreter, case.token_ids, [44])
    for chunks in ([13, 20, *[1] * 11], [1] * 44, [5, 39]):
        assert all_logits(interpreter, case.token_ids, chunks).tobytes() == whole.tobytes()
    interpreter.close()
    interpreter = make_native(case, isa=isa, num_threads=3)
    assert beside_a_neighbour(interpreter, case.token_ids).tobytes() == whole.tobytes()
    interpreter.close()


def beside_a_neighbour(interpreter: Interpreter, token_ids: np.ndarray) -> np.ndarray:
    """Logits of every token, computed in one step behind another prompt."""
    other = token_ids[::-1]
    tables = shuffled_block_tables(
        np.random.default_rng(1), [len(other), len(token_ids)], block_size=BLOCK_SIZE, num_blocks=NUM_BLOCKS
    )
    both = np.concatenate([other, token_ids])
    parts = [Part(0, len(other)), Part(0, len(token_ids))]
    step = make_step(parts, tables, token_ids=both, logit_rows=range(len(both)))
    return interpreter.run(step)[len(other) :].copy()


@pytest.mark.parametrize(("kind", "largest_error"), [("int8", 0.1), ("int4", 0.5)])
def test_quantised_weights_stay_within_a_share_of_what_logits_differ_by(
    case, kind, largest_error, tmp_path, monkeypatch
):
    """Root mean squares: of the errors, over the logits around their mean. Random weights are the worst."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    interpreter = make_native(case._replace(model=load_model(case.model.path, quantization=kind)))
    errors = all_logits(interpreter, case.token_ids, [44])[case.positions] - case.logits
    interpreter.close()
    spread = case.logits - case.logits.mean(axis=1, keepdims=True)
    share = np.sqrt(np.mean(errors**2) / np.mean(spread**2))
    print(f"{case.model.spec.architecture} at {kind}: {share:.4f}")
    assert share <= largest_error
