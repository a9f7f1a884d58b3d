"""How many blocks the KV cache gets. Pure: what is free was measured before (`octavo.runner.memory`)."""

from typing import NamedTuple

from octavo.errors import ConfigError
from octavo.kv.spec import KVCacheSpec
from octavo.runner.memory import format_memory_size, parse_memory_size

_MIN_USEFUL_TOKENS = 256
"""A cache that holds less than this (or than max_model_len, if that is shorter) is refused."""


class CacheSizeOptions(NamedTuple):
    """What was asked for; the first that is set decides."""

    num_blocks: int | None
    memory: str | None
    memory_share: float


def kv_cache_blocks(
    options: CacheSizeOptions, spec: KVCacheSpec, *, free_bytes: int, max_model_len: int, max_num_seqs: int
) -> int:
    """How many usable blocks the KV cache gets.

    A share of the free memory is capped at what ``max_num_seqs`` sequences of ``max_model_len`` tokens could
    ever use; a size or a number of blocks is taken at its word.

    Raises:
        ConfigError: the cache would not hold one sequence of a useful length, or more than what is free.
    """
    blocks_per_sequence = -(-max_model_len // spec.block_size)
    if options.num_blocks is not None:
        option, num_blocks = f"num_blocks {options.num_blocks}", options.num_blocks
    elif options.memory is not None:
        option = f"kv_cache_memory {options.memory}"
        num_blocks = spec.blocks_in(parse_memory_size(options.memory, option="kv_cache_memory"))
    else:
        option = (
            f"kv_cache_memory_share {options.memory_share:g} of {format_memory_size(free_bytes)} free memory"
        )
        affordable = spec.blocks_in(int(free_bytes * options.memory_share))
        num_blocks = min(affordable, max_num_seqs * blocks_per_sequence)
    _check_useful(num_blocks, option, spec, max_model_len)
    _check_fits(num_blocks, option, spec, free_bytes)
    return num_blocks


def _check_useful(num_blocks: int, option: str, spec: KVCacheSpec, max_model_len: int) -> None:
    needed_tokens = min(_MIN_USEFUL_TOKENS, max_model_len)
    needed_blocks = -(-needed_tokens // spec.block_size)
    if num_blocks < needed_blocks:
        needed_mib = -(-(needed_blocks + 1) * spec.bytes_per_block // 2**20)
        raise ConfigError(
            f"{option} makes a KV cache of {num_blocks} blocks or {num_blocks * spec.block_size} tokens, but "
            f"a sequence of useful length has {needed_tokens} ({spec.formula()}); "
            f"set kv_cache_memory to at least {needed_mib}MiB"
        )


def _check_fits(num_blocks: int, option: str, spec: KVCacheSpec, free_bytes: int) -> None:
    num_bytes = (num_blocks + 1) * spec.bytes_per_block
    if num_bytes > free_bytes:
        raise ConfigError(
            f"{option} makes a KV cache of {format_memory_size(num_bytes)}, but only "
            f"{format_memory_size(free_bytes)} of memory are free; lower num_blocks or kv_cache_memory"
        )
