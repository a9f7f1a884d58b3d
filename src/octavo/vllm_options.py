"""Options that scripts for vLLM set: accepted where they change nothing, explained where they would."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

logger = logging.getLogger(__name__)


class ForeignOption(NamedTuple):
    """An option of vLLM that means nothing here."""

    way_out: str
    """What it is about here, and what to do instead."""
    harmless: tuple[object, ...] = ()
    """Values that ask for what happens anyway."""


_ONE_PROCESS = ForeignOption(
    "one process computes the whole model; num_threads sets its threads", harmless=(1,)
)
FOREIGN_OPTIONS: Mapping[str, ForeignOption] = {
    "dtype": ForeignOption(
        "weights keep their file's quantisation, sums are float32; kv_dtype sets the cache's format",
        harmless=("auto",),
    ),
    "quantization": ForeignOption("it is none, int8 or int4", harmless=(None,)),
    "kv_cache_dtype": ForeignOption(
        "the option is kv_dtype: float16, float32, or int8 (the default), which takes half the room of "
        "float16 as fp8 does",
        harmless=("auto",),
    ),
    "kv_cache_memory_bytes": ForeignOption("the option is kv_cache_memory, as in '4GiB'", harmless=(None,)),
    "num_gpu_blocks_override": ForeignOption("the option is num_blocks", harmless=(None,)),
    "swap_space": ForeignOption("a preempted request is computed anew, nothing is swapped", harmless=(0, 4)),
    "cpu_offload_gb": ForeignOption("the model is computed on the CPU", harmless=(0,)),
    "tensor_parallel_size": _ONE_PROCESS,
    "pipeline_parallel_size": _ONE_PROCESS,
    "data_parallel_size": _ONE_PROCESS,
    "tokenizer": ForeignOption("the tokenizer is the one in the model file", harmless=(None,)),
    "trust_remote_code": ForeignOption("no code is ever loaded with a model", harmless=(True, False)),
    "tokenizer_mode": ForeignOption("the tokenizer is the one in the model file", harmless=("auto",)),
    "disable_log_stats": ForeignOption("no statistics are logged", harmless=(True, False)),
    "enable_lora": ForeignOption("adapters are loaded when they are asked for", harmless=(True, False)),
    "max_lora_rank": ForeignOption(
        "ranks up to 256 are taken as they come", harmless=(1, 8, 16, 32, 64, 128, 256)
    ),
    "max_cpu_loras": ForeignOption("the option is max_loras", harmless=(None,)),
    "enforce_eager": ForeignOption(
        "nothing is captured or compiled at run time, so there is nothing to turn off", harmless=(True, False)
    ),
}
_IGNORED_OPTIONS = {
    "gpu_memory_utilization": "no GPU is used; kv_cache_memory or kv_cache_memory_share size the KV cache",
    "seed": "a seed belongs to a request: SamplingParams(seed=…)",
}
"""Options of vLLM that nearly every script sets: explained, unless they are ``None``, and left alone."""


def without_harmless(options: Mapping[str, object]) -> dict[str, object]:
    """The options without those of vLLM that change nothing here."""
    kept = {}
    for name, value in options.items():
        foreign = FOREIGN_OPTIONS.get(name)
        if name in _IGNORED_OPTIONS:
            if value is not None:
                logger.warning("the option %s is ignored: %s", name, _IGNORED_OPTIONS[name])
        elif foreign is None or value not in foreign.harmless:
            kept[name] = value
    return kept
