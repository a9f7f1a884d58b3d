"""The default model as transformers computes it, goldens/smollm2.json, by the reference and natively."""

import json
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from octavo.kernels.interpreter import Interpreter, StepInput
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kernels.reference_sampling import log_softmax
from octavo.kv.spec import KVCacheSpec
from octavo.models.loaded import LoadedModel, load_model

pytestmark = pytest.mark.model

GOLDENS = json.loads((Path(__file__).parents[1] / "goldens" / "smollm2.json").read_text(encoding="utf-8"))
BLOCK_SIZE, BLOCKS_PER_SEQUENCE = 16, 8
NUM_BLOCKS = BLOCKS_PER_SEQUENCE * len(GOLDENS)
MAX_ERROR_FLOAT = 2e-3
"""Nats, of one log-probability: float32 arithmetic over a float32 cache."""
MAX_MEAN_ERROR_INT8 = 0.045
MIN_TOP1_INT8 = 0.97
"""Share of positions whose most likely token is the golden one; ADR 0001 has the measurement."""


class Forced(NamedTuple):
    """What the model makes of a golden's own tokens."""

    errors: np.ndarray
    """[num_tokens - 1]; absolute difference of each token's log-probability but the first's."""
    top_errors: np.ndarray
    """[num_tokens, 8]; the same of the most likely tokens at each position."""
    greedy: np.ndarray
    """[num_tokens]; the most likely token after each."""


@pytest.fixture(scope="module")
def model(default_model_path: Path) -> LoadedModel:
    return load_model(default_model_path)


@pytest.fixture(scope="module")
def float_reference(model: LoadedModel):
    interpreter = make_reference(model, kv_dtype="float32", activations="float")
    yield interpreter
    interpreter.close()


@pytest.fixture(scope="module")
def forced_floats(float_reference) -> list[Forced]:
    return teacher_forced(float_reference)


def make_reference(model: LoadedModel, *, kv_dtype: str, activations: str) -> ReferenceInterpreter:
    return ReferenceInterpreter(
        model.program, kv_spec_of(model, kv_dtype), NUM_BLOCKS, activations=activations
    )


def make_native(model: LoadedModel) -> NativeInterpreter:
    return NativeInterpreter(
        model.program,
        kv_spec_of(model, "float16"),
        NUM_BLOCKS,
        max_num_tokens=sum(len(golden["ids"] + golden["continuation"]) for golden in GOLDENS),
        max_logit_rows=1,
        num_threads=2,
    )


def kv_spec_of(model: LoadedModel, dtype: str) -> KVCacheSpec:
    return KVCacheSpec(
        block_size=BLOCK_SIZE,
        num_layers=model.spec.num_layers,
        num_kv_heads=model.spec.num_kv_heads,
        head_dim=model.spec.head_dim,
        dtype=dtype,
    )


def run(interpreter: Interpreter, sequences: list[list[int]], *, first_position: int, all_rows: bool):
    """One step of requests that are equally far; logits of all their rows, or of each one's last."""
    lengths = np.array([len(token_ids) for token_ids in sequences], np.int32)
    ends = np.cumsum(lengths, dtype=np.int32)
    positions = [first_position + np.arange(length, dtype=np.int32) for length in lengths]
    tables = np.arange(BLOCKS_PER_SEQUENCE * len(sequences), dtype=np.int32)[::-1]
    step = StepInput(
        token_ids=np.concatenate(sequences, dtype=np.int32),
        positions=np.concatenate(positions),
        query_start_loc=np.concatenate([[0], ends], dtype=np.int32),
        seq_lens=first_position + lengths,
        block_tables=tables.reshape(len(sequences), BLOCKS_PER_SEQUENCE),
        logit_rows=np.arange(ends[-1], dtype=np.int32) if all_rows else ends - 1,
    )
    return interpreter.run(step)


def teacher_forced(interpreter: Interpreter) -> list[Forced]:
    """All goldens, prompt and continuation, in one step."""
    sequences = [golden["ids"] + golden["continuation"] for golden in GOLDENS]
    logits = run(interpreter, sequences, first_position=0, all_rows=True)
    ends = np.cumsum([len(token_ids) for token_ids in sequences])[:-1]
    return [compare(*pair) for pair in zip(GOLDENS, np.split(logits, ends), strict=True)]


def compare(golden: dict, logits: np.ndarray) -> Forced:
    ids = golden["ids"] + golden["continuation"]
    logprobs = np.stack([log_softmax(row) for row in logits])
    of_next_token = logprobs[np.arange(len(ids) - 1), ids[1:]]
    of_top_tokens = np.take_along_axis(logprobs, np.array(golden["top_ids"]), axis=1)
    return Forced(
        errors=np.abs(of_next_token - np.array(golden["token_logprob"][1:])),
        top_errors=np.abs(of_top_tokens - np.array(golden["top_lp"])),
        greedy=logits.argmax(axis=1),
    )


@pytest.mark.parametrize("index", range(len(GOLDENS)))
def test_every_logprob_and_every_greedy_choice(forced_floats, index):
    golden, forced = GOLDENS[index], forced_floats[index]
    assert forced.errors.max() <= MAX_ERROR_FLOAT
    assert forced.top_errors.max() <= MAX_ERROR_FLOAT
    first = len(golden["ids"]) - 1
    choices = forced.greedy[first : first + len(golden["continuation"])]
    assert choices.tolist() == golden["continuation"]


def test_decoding_token_by_token_gives_the_greedy_continuation(model, float_reference):
    golden = min(GOLDENS, key=lambda golden: len(golden["continuation"]))  # the one that meets its end
    prompt, continuation = golden["ids"], golden["continuation"]
    generated = []
    new = prompt
    while len(generated) < 48 and not (generated and generated[-1] in model.tokenizer.eos_token_ids):
        first_position = len(prompt) + len(generated) - len(new)
        logits = run(float_reference, [new], first_position=first_position, all_rows=False)
        new = [int(logits[0].argmax())]
        generated += new
    assert generated == continuation


@pytest.mark.parametrize(
    "make",
    [partial(make_reference, kv_dtype="float16", activations="int8"), make_native],
    ids=["int8", "native"],
)
def test_integer_activations_and_a_half_precision_cache_stay_close(model, make):
    interpreter = make(model)
    forced = teacher_forced(interpreter)
    interpreter.close()
    mean_error = np.concatenate([one.errors for one in forced]).mean()
    golden_top = np.concatenate([np.array(golden["top_ids"])[:, 0] for golden in GOLDENS])
    top1 = (np.concatenate([one.greedy for one in forced]) == golden_top).mean()
    print(f"mean |Δ log-probability| {mean_error:.4f}, equal top-1 {top1:.4f}")
    assert mean_error <= MAX_MEAN_ERROR_INT8
    assert top1 >= MIN_TOP1_INT8
