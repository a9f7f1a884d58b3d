"""GGUF files that are well formed and say nonsense: any value under any key, any tensor of any shape.

`test_gguf_fuzz.py` damages bytes; here the reader gets past them, so that what follows it is tried: the
architecture's numbers, tokenizer, template, weights, and a step through the kernels if all that is accepted.
"""

import numpy as np
from gguf_writer import GGML_TYPE_IDS, Tensor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import make_tiny_llama

from octavo.errors import OctavoError
from octavo.kernels.interpreter import StepInput
from octavo.kernels.native import NativeInterpreter
from octavo.kv.spec import KVCacheSpec
from octavo.models.gguf import GGUFFile
from octavo.models.loaded import LoadedModel, load_model

NUMBERS = st.sampled_from([0, 1, 2, 3, 7, 16, 64, 255, 274, 4096, 1 << 24, 1 << 31, 1 << 32, (1 << 64) - 1])
FLOATS = st.sampled_from([0.0, -1.0, 1e-45, 1.0, 1e4, 3e38, float("inf"), float("nan")])
TEXTS = st.one_of(
    st.sampled_from(["", "llama", "gemma3", "qwen2", "gpt2", "t5", "default", "linear", "yarn", "longrope"]),
    st.text(max_size=8),
)
ARRAYS = st.builds(
    lambda dtype, values: np.array(values).astype(dtype),
    st.sampled_from(["int32", "uint8", "float32", "uint64", "bool"]),
    st.lists(st.integers(0, 255), max_size=8),
)
VALUES = st.one_of(
    st.none(), NUMBERS, FLOATS, st.booleans(), TEXTS, ARRAYS, st.lists(TEXTS, min_size=1, max_size=4)
)
MORE_KEYS = [
    "llama.rope.scaling.type",
    "llama.rope.scaling.factor",
    "llama.rope.scaling.original_context_length",
    "llama.attention.sliding_window",
    "llama.expert_count",
    "general.alignment",
    "split.count",
    "tokenizer.ggml.scores",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.precompiled_charsmap",
    "tokenizer.chat_templates",
    "tokenizer.chat_template.tool_use",
]
TENSORS = st.builds(
    lambda shape, kind, extra: Tensor(
        shape, GGML_TYPE_IDS[kind], bytes(max(0, int(np.prod(shape)) * 4 + extra))
    ),
    st.lists(st.sampled_from([1, 2, 32, 64, 96, 274]), min_size=1, max_size=3).map(tuple),
    st.sampled_from(sorted(GGML_TYPE_IDS)),
    st.integers(-64, 64),
)


def run_a_step(model: LoadedModel) -> None:
    spec = KVCacheSpec(
        block_size=16,
        num_layers=model.spec.num_layers,
        num_kv_heads=model.spec.num_kv_heads,
        head_dim=model.spec.head_dim,
        dtype="float16",
    )
    interpreter = NativeInterpreter(model.program, spec, 1, max_num_tokens=4, max_logit_rows=1, num_threads=1)
    step = StepInput(
        token_ids=np.array([0, 1, 2], np.int32),
        positions=np.arange(3, dtype=np.int32),
        query_start_loc=np.array([0, 3], np.int32),
        seq_lens=np.array([3], np.int32),
        block_tables=np.zeros((1, 1), np.int32),
        logit_rows=np.array([2], np.int32),
    )
    interpreter.run(step)
    interpreter.close()


@settings(deadline=None, max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nonsense_is_an_answer_or_one_clear_error(tiny_llama, tmp_path, data):
    whole = GGUFFile(tiny_llama(quantization="Q4_0", num_layers=1))
    keys = st.sampled_from([*sorted(whole.metadata.values), *MORE_KEYS])
    metadata = data.draw(st.dictionaries(keys, VALUES, max_size=3), label="metadata")
    names = st.sampled_from(
        [*sorted(whole.tensors), "output.weight", "rope_freqs.weight", "blk.1.attn_q.weight"]
    )
    tensors = data.draw(st.dictionaries(names, TENSORS, max_size=2), label="tensors")
    path = make_tiny_llama(
        tmp_path / "nonsense.gguf", quantization="Q4_0", num_layers=1, metadata=metadata, tensors=tensors
    )
    try:
        model = load_model(path)
        model.tokenizer.decode(model.tokenizer.encode("the cat\n \u4e2d"))
        model.tokenizer.apply_chat_template([{"role": "user", "content": "the cat"}])
        run_a_step(model)
    except OctavoError as error:
        assert "\n" not in str(error)  # noqa: PT017 (success is an answer, too)
        assert len(str(error)) < 4_000  # noqa: PT017
