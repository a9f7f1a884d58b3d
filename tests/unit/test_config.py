"""Configuration: options by name, types, and a resolved form in which nothing is left open."""

from dataclasses import asdict, fields
from typing import get_args

import pytest

from octavo.config import (
    OPTION_NAMES,
    CacheConfig,
    EngineConfig,
    ResolvedConfig,
    SchedulerConfig,
)
from octavo.errors import ConfigError, KernelUnavailableError
from octavo.kernels.select import NativeSupport
from octavo.kv.spec import KVCacheSpec, KVDtype, KVDtypeChoice, choose_kv_dtype
from octavo.resolve import MachineFacts, ModelFacts, resolve

MODEL = ModelFacts("model.gguf", "llama", 2048)
MACHINE = MachineFacts(2**28, 4, NativeSupport(("avx2", "generic"), ("avx512", "avx2", "generic")))
NO_LIBRARY = NativeSupport((), problem="the native library is not there; run `make setup`")


def resolved(machine=MACHINE, **options):
    config = EngineConfig.from_options(options)
    spec = KVCacheSpec(
        block_size=config.cache.block_size,
        num_layers=2,
        num_kv_heads=2,
        head_dim=64,
        dtype=choose_kv_dtype(config.cache.kv_dtype, 64),
    )
    return resolve(config, MODEL, machine=machine, kv_spec=spec)


def test_options_find_their_parts():
    config = EngineConfig.from_options(
        {"model": "x.gguf", "block_size": 32, "max_num_seqs": 3, "num_threads": 2}
    )
    assert (config.model.model, config.cache.block_size) == ("x.gguf", 32)
    assert (config.scheduler.max_num_seqs, config.runner.num_threads) == (3, 2)
    assert EngineConfig.from_options({}) == EngineConfig()


def test_option_names_are_unique():
    assert len(OPTION_NAMES) == len(set(OPTION_NAMES)) <= 45


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("blocksize", r"there is no option blocksize; did you mean block_size or"),
        ("max_num_sequences", r"did you mean max_num_seqs"),
        ("zzz", r"there is no option zzz; there are: model, max_model_len"),
        ("dtype", r"there is no option dtype: weights keep .* leave it out"),
        ("tensor_parallel_size", r"num_threads sets its threads; leave it out"),
        ("enforce_eager", r"nothing is captured or compiled"),
        ("num_gpu_blocks_override", r"the option is num_blocks"),
    ],
)
def test_an_unknown_option_is_refused_with_the_way_out(name, message):
    with pytest.raises(ConfigError, match=message):
        EngineConfig.from_options({name: 2})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dtype", "auto"),
        ("quantization", None),
        ("kv_cache_dtype", "auto"),
        ("tensor_parallel_size", 1),
        ("pipeline_parallel_size", 1),
        ("enforce_eager", True),
        ("enforce_eager", False),
        ("trust_remote_code", False),
        ("trust_remote_code", True),
        ("disable_log_stats", True),
        ("tokenizer", None),
        ("tokenizer_mode", "auto"),
        ("swap_space", 0),
        ("swap_space", 4),
        ("seed", None),
    ],
)
def test_an_option_of_vllm_that_changes_nothing_is_accepted(name, value, caplog):
    assert EngineConfig.from_options({name: value, "block_size": 32}).cache.block_size == 32
    assert caplog.records == []


@pytest.mark.parametrize(
    ("name", "value"), [("dtype", "bfloat16"), ("tokenizer", "other"), ("cpu_offload_gb", 4)]
)
def test_one_that_would_change_something_is_not(name, value):
    with pytest.raises(ConfigError, match=f"there is no option {name}: .*; leave it out"):
        EngineConfig.from_options({name: value})


@pytest.mark.parametrize("value", ["fp8", "fp8_e4m3", "int8"])
def test_a_number_format_of_the_cache_has_another_name_here(value):
    with pytest.raises(ConfigError, match=r"the option is kv_dtype: float16, float32, or int8 .*, which"):
        EngineConfig.from_options({"kv_cache_dtype": value})


@pytest.mark.parametrize("name", get_args(KVDtype))
def test_every_number_format_of_the_cache_is_an_option(name):
    assert EngineConfig.from_options({"kv_dtype": name}).cache.kv_dtype == name
    assert get_args(KVDtypeChoice) == ("auto", *get_args(KVDtype))


def test_a_share_of_gpu_memory_is_ignored_and_explained(caplog):
    assert EngineConfig.from_options({"gpu_memory_utilization": 0.9}) == EngineConfig()
    (record,) = caplog.records
    assert "kv_cache_memory or kv_cache_memory_share" in record.getMessage()


def test_a_seed_for_the_whole_engine_is_ignored_and_explained(caplog):
    assert EngineConfig.from_options({"seed": 0}) == EngineConfig()
    (record,) = caplog.records
    assert "SamplingParams(seed=…)" in record.getMessage()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": "16"}, r"block_size must be of type int, got '16'"),
        ({"block_size": 12}, r"block_size must be a positive multiple of 8, got 12"),
        ({"block_size": True}, r"block_size must be of type int, got True"),
        ({"max_model_len": 1.5}, r"max_model_len must be of type int or None, got 1\.5"),
        ({"max_model_len": 1}, r"max_model_len must be at least 2"),
        ({"enable_prefix_caching": 1}, r"enable_prefix_caching must be of type bool, got 1"),
        ({"kv_dtype": "fp8"}, r"kv_dtype must be one of auto, float16, float32, int8, got 'fp8'"),
        ({"kv_cache_memory": 512}, r"kv_cache_memory must be of type str or None, got 512"),
        ({"kv_cache_memory_share": 0.99}, r"kv_cache_memory_share must be above 0 and at most 0\.95"),
        ({"watermark": 1.0}, r"watermark must be at least 0 and below 1"),
        ({"num_blocks": 0}, r"num_blocks must be at least 1, got 0"),
        ({"max_num_seqs": 0}, r"max_num_seqs must be at least 1, got 0"),
        ({"long_prefill_token_threshold": -1}, r"long_prefill_token_threshold must be at least 0"),
        ({"num_threads": 0}, r"num_threads must be at least 1, got 0"),
        ({"max_num_batched_tokens": 10**11}, r"at most 1048576, got 100000000000; lower it or leave it out"),
        ({"max_num_batched_tokens": 2**32 + 4}, r"max_num_batched_tokens must be at most 1048576"),
        ({"max_num_seqs": 2**31}, r"max_num_seqs must be at most 65536, got 2147483648"),
        ({"max_waiting_requests": 2**40}, r"max_waiting_requests must be at most 16777216"),
        ({"num_threads": 2**32 + 1}, r"num_threads must be at most 1024, got 4294967297"),
        ({"block_size": 2**40}, r"block_size must be at most 65536, got 1099511627776"),
        ({"num_blocks": 2**31}, r"num_blocks must be at most 2147483647, got 2147483648"),
        ({"isa": "sse"}, r"isa must be one of auto, generic"),
        ({"model": None}, r"model must be of type str, got None"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(options, message):
    with pytest.raises(ConfigError, match=message):
        EngineConfig.from_options(options)


def test_a_whole_number_will_do_for_a_share():
    assert CacheConfig(watermark=0).watermark == 0


@pytest.mark.parametrize(
    "options",
    [{}, {"kernels": "reference"}, {"num_blocks": 64, "isa": "generic", "num_threads": 3}],
)
def test_nothing_is_left_open_after_resolve(options):
    config = resolved(**options)
    for part in (config, config.scheduler):
        for field in fields(part):
            assert getattr(part, field.name) not in (None, "auto"), field.name
    assert asdict(config)["scheduler"]["max_num_seqs"] == 64


def test_resolve_is_pure():
    assert resolved() == resolved()
    assert isinstance(resolved(), ResolvedConfig)


@pytest.mark.parametrize(("kv_dtype", "bytes_per_head"), [("float16", 64 * 2), ("int8", 64 + 4)])
def test_the_model_and_the_machine_fill_the_gaps(kv_dtype, bytes_per_head):
    config = resolved(kv_dtype=kv_dtype)
    assert (config.max_model_len, config.num_threads, config.kernels, config.isa) == (
        2048,
        4,
        "native",
        "avx2",
    )
    assert config.kv_bytes_per_token == 2 * 2 * 2 * bytes_per_head
    bytes_per_block = 16 * config.kv_bytes_per_token
    assert config.num_blocks == 2**26 // bytes_per_block - 1
    assert config.kv_cache_bytes == 2**26 // bytes_per_block * bytes_per_block
    assert config.num_kv_tokens == config.num_blocks * 16
    assert config.max_concurrency == pytest.approx(config.num_kv_tokens / 2048)
    assert config.chat_template == "model"


def test_what_was_chosen_stays():
    config = resolved(
        max_model_len=100,
        num_threads=2,
        isa="generic",
        num_blocks=9,
        chat_template="t.jinja",
        kv_dtype="float32",
    )
    assert (config.max_model_len, config.num_threads, config.isa, config.num_blocks) == (100, 2, "generic", 9)
    assert (config.chat_template, config.kv_dtype) == ("t.jinja", "float32")


def test_the_scheduler_part_is_passed_on():
    assert resolved(max_num_batched_tokens=99).scheduler == SchedulerConfig(max_num_batched_tokens=99)


def test_longer_than_the_model_is_refused():
    with pytest.raises(ConfigError, match=r"max_model_len is 4096, but the model was made for at most 2048"):
        resolved(max_model_len=4096)


@pytest.mark.parametrize(
    ("options", "native", "expected"),
    [
        ({}, MACHINE.native, ("native", "avx2")),
        ({}, NO_LIBRARY, ("reference", "numpy")),
        ({"kernels": "native"}, NativeSupport(("generic",)), ("native", "generic")),
        ({"kernels": "reference"}, MACHINE.native, ("reference", "numpy")),
        ({"isa": "generic"}, MACHINE.native, ("native", "generic")),
    ],
)
def test_which_kernels(options, native, expected):
    config = resolved(MACHINE._replace(native=native), **options)
    assert (config.kernels, config.isa) == expected


@pytest.mark.parametrize(
    ("options", "native", "message"),
    [
        ({"kernels": "native"}, NO_LIBRARY, "the native library is not there; run `make setup`"),
        ({"isa": "avx2"}, NO_LIBRARY, "the native library is not there; run `make setup`"),
        ({"isa": "avx512"}, MACHINE.native, r"avx512 cannot run here \(this processor lacks it\)"),
        ({"isa": "neon"}, MACHINE.native, r"\(it was not built\); available: avx2, generic, or auto"),
    ],
)
def test_an_explicit_choice_that_cannot_run_is_an_error(options, native, message):
    with pytest.raises(KernelUnavailableError, match=message):
        resolved(MACHINE._replace(native=native), **options)


def test_more_blocks_than_there_is_memory_for_are_refused():
    with pytest.raises(ConfigError, match=r"num_blocks 2147483647 makes .* of memory are free; lower"):
        resolved(num_blocks=2**31 - 1)


@pytest.mark.parametrize(
    "name",
    [
        "num_blocks",
        "block_size",
        "max_num_seqs",
        "num_threads",
        "watermark",
        "kv_cache_memory_share",
        "model",
    ],
)
def test_a_number_too_long_to_be_written_out_is_refused_as_any_other(name):
    with pytest.raises(ConfigError, match=f"{name} must be .*got an integer of thousands of digits"):
        EngineConfig.from_options({name: 10**5000})
