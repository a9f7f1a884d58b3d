"""The parts of an engine, put together; and what separates one cache from another."""

import os
import re

import numpy as np
import pytest
from gguf_writer import GGML_TYPE_IDS, Tensor
from lora_adapters import write_lora

from octavo.build import MAX_TEMPLATE_BYTES, build, build_engine, hash_root
from octavo.config import EngineConfig
from octavo.errors import ConfigError, ModelLoadError, ModelNotFoundError
from octavo.kernels.select import NativeSupport
from octavo.sampling_params import SamplingParams


def config(path, **options):
    return EngineConfig.from_options(
        {"model": str(path), "kernels": "reference", "num_blocks": 40, **options}
    )


@pytest.fixture(scope="module")
def path(tiny_llama):
    return tiny_llama()


def test_the_parts_fit_together(path):
    built = build(config(path, block_size=8, kv_dtype="float32"))
    assert built.config.num_blocks == built.kv.num_blocks == built.engine.core.runner.num_blocks == 40
    assert built.config.block_size == built.kv.block_size == 8
    assert built.engine.tokenizer is built.model.tokenizer
    assert built.config.model == str(path)
    spec, model = built.kv_spec, built.model.spec
    assert (spec.block_size, spec.dtype) == (8, "float32")
    assert (spec.num_layers, spec.num_kv_heads, spec.head_dim) == (
        model.num_layers,
        model.num_kv_heads,
        model.head_dim,
    )
    assert built.config.kv_bytes_per_token == spec.bytes_per_token
    assert built.config.max_model_len == built.model.spec.context_length
    built.engine.close()


def test_an_engine_alone(path):
    engine = build_engine(config(path))
    engine.add_request("a", engine.tokenizer.encode("the cat"), SamplingParams(max_tokens=2))
    while engine.has_unfinished_requests:
        outputs = engine.step()
    assert outputs[0].finished
    engine.close()


def test_without_prefix_caching_nothing_is_found(path):
    engine = build_engine(config(path, enable_prefix_caching=False))
    for name in "ab":
        engine.add_request(name, list(range(40)), SamplingParams(max_tokens=1))
        (output,) = engine.step()
        assert (output.finished, output.num_cached_tokens) == (True, 0)
    engine.close()


def test_whatever_changes_k_and_v_changes_the_root(path, tiny_llama):
    variants = [
        config(path, kv_dtype="float16"),
        config(path, kv_dtype="float32"),
        config(path, kv_dtype="int8"),
        config(tiny_llama(seed=1)),
        config(tiny_llama(metadata={"llama.rope.freq_base": 5000.0})),
    ]
    built = [build(variant) for variant in variants]
    roots = [hash_root(each.config, each.model) for each in built]
    assert len(set(roots)) == len(roots)
    again = build(config(path, kv_dtype="float16", max_num_seqs=3, watermark=0.5))
    assert hash_root(again.config, again.model) == roots[0]
    for each in [*built, again]:
        each.engine.close()


def test_an_int8_cache_takes_half_the_room(path):
    """Nearly: for heads of 16, scales are a fifth of what is kept."""
    sizes = {}
    for kv_dtype in ("float16", "int8"):
        built = build(config(path, kv_dtype=kv_dtype, num_blocks=None, kv_cache_memory="1MiB"))
        sizes[kv_dtype] = built.config.num_blocks
        store = built.engine.core.runner._interpreter.kv_store
        assert store.num_bytes == built.config.kv_cache_bytes <= 2**20
        built.engine.close()
    assert sizes["int8"] == pytest.approx(sizes["float16"] * 32 / 20, abs=1)


def test_an_int8_cache_of_heads_of_another_size_is_refused_with_the_way_out(tiny_llama):
    with pytest.raises(ConfigError, match=r"multiple of 16, but this model's is 24; use kv_dtype float16"):
        build(config(tiny_llama(head_dim=24, quantization="F32"), kv_dtype="int8"))


def test_a_chat_template_from_a_file(path, tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0].content }}!")
    engine = build_engine(config(path, chat_template=str(template)))
    assert engine.tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}]) == "Hi!"
    engine.close()


def test_a_chat_template_that_could_be_read_for_ever_is_not_read(path, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        with pytest.raises(ConfigError, match="which is no regular file; give a jinja2 file"):
            build(config(path, chat_template=str(name)))
    big = tmp_path / "big"
    big.write_bytes(b" " * (MAX_TEMPLATE_BYTES + 1))
    with pytest.raises(ConfigError, match=f"1048577 bytes, but .* at most {MAX_TEMPLATE_BYTES}"):
        build(config(path, chat_template=str(big)))


def test_steps_that_do_not_fit_in_memory_are_told_with_the_numbers(path, monkeypatch):
    def fail(*_args, **_options):
        raise MemoryError

    monkeypatch.setattr("octavo.build.make_kernels", fail)
    with pytest.raises(ConfigError, match=r"max_num_batched_tokens=512 tokens .* lower one of them"):
        build(config(path))


def test_what_was_resolved_is_logged_once(path, caplog):
    with caplog.at_level("INFO", logger="octavo.build"):
        build_engine(config(path)).close()
    (record,) = caplog.records
    assert "'num_blocks': 40" in record.getMessage()


@pytest.mark.parametrize(("kernels", "warns"), [("auto", True), ("reference", False)])
def test_falling_back_to_the_slow_reference_is_no_secret(path, caplog, monkeypatch, kernels, warns):
    broken = NativeSupport(
        (), problem="the native library x.so has interface version 2, this package needs 1"
    )
    monkeypatch.setattr("octavo.build.native_support", lambda: broken)
    build_engine(config(path, kernels=kernels)).close()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [
        "the numpy reference computes" in warning and broken.problem in warning for warning in warnings
    ] == [True] * warns


def test_a_weight_that_is_not_finite_is_named_with_its_file(tiny_llama):
    values = np.full(64, np.nan, np.float32)
    norm = Tensor((64,), GGML_TYPE_IDS["F32"], values.tobytes())
    damaged = tiny_llama(tensors={"output_norm.weight": norm})
    with pytest.raises(
        ModelLoadError, match=rf"^{re.escape(str(damaged))}: tensor 'output_norm.weight' holds"
    ):
        build(config(damaged, kernels="native"))


def test_a_missing_model_is_named():
    with pytest.raises(ModelNotFoundError, match=r"nowhere\.gguf"):
        build(config("nowhere.gguf"))


def test_a_context_longer_than_the_model_is_refused(path):
    with pytest.raises(ConfigError, match="the model was made for at most 512 tokens"):
        build(config(path, max_model_len=4096))


def test_the_configured_context_decides_between_the_factors_of_longrope(tiny_llama):
    tensors = {
        f"rope_factors_{kind}.weight": Tensor((8,), GGML_TYPE_IDS["F32"], np.full(8, factor, "<f4").tobytes())
        for kind, factor in (("short", 1), ("long", 4))
    }
    path = tiny_llama(metadata={"llama.rope.scaling.original_context_length": 64}, tensors=tensors)
    ropes = []
    for max_model_len in (None, 65, 64):
        built = build(config(path, max_model_len=max_model_len))
        ropes.append(built.model.spec.layers[0].rope.frequencies[0])
        built.engine.close()
    assert ropes == [0.25, 0.25, 1.0]


def test_adapters_are_loaded_at_start(path, tmp_path):
    adapter = write_lora(tmp_path / "adapter")
    built = build(config(path, lora=(f"style={adapter}",)))
    assert list(built.engine.adapters.loaded) == ["style"]
    built.engine.close()
    for lora, expected in [
        ((f"a={adapter}", f"b={tmp_path}"), "lora b: .*adapter_config.json: no such file"),
        ((f"a={adapter}", f"c={adapter}"), "lora c: 1 adapters are loaded, and max_loras is 1"),
    ]:
        with pytest.raises(ConfigError, match=expected):
            build(config(path, lora=lora, max_loras=1 if "c=" in lora[1] else 8))
    with pytest.raises(ConfigError, match="lora must be name=path, got 'style'"):
        config(path, lora=("style",))
