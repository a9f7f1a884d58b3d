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


class _Wanted(NamedTuple):
    """A size before it is checked, and what asked for it."""

    option: str
    """The option that decided, and that an error must tell the reader to change."""
    source: str
    """That option with its value."""
    num_blocks: int


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
        num_blocks = options.num_blocks
        wanted = _Wanted("num_blocks", f"num_blocks {num_blocks}", num_blocks)
    elif options.memory is not None:
        num_blocks = spec.blocks_in(parse_memory_size(options.memory, option="kv_cache_memory"))
        wanted = _Wanted("kv_cache_memory", f"kv_cache_memory {options.memory}", num_blocks)
    else:
        source = (
            f"kv_cache_memory_share {options.memory_share:g} of {format_memory_size(free_bytes)} free memory"
        )
        affordable = spec.blocks_in(int(free_bytes * options.memory_share))
        num_blocks = min(affordable, max_num_seqs * blocks_per_sequence)
        wanted = _Wanted("kv_cache_memory_share", source, num_blocks)
    _check_useful(wanted, spec, max_model_len)
    _check_fits(wanted, spec, free_bytes)
    return num_blocks


def _check_useful(wanted: _Wanted, spec: KVCacheSpec, max_model_len: int) -> None:
    needed_tokens = min(_MIN_USEFUL_TOKENS, max_model_len)
    needed_blocks = -(-needed_tokens // spec.block_size)
    if wanted.num_blocks < needed_blocks:
        needed_mib = -(-(needed_blocks + 1) * spec.bytes_per_block // 2**20)
        way_out = (
            f"set num_blocks to at least {needed_blocks}"
            if wanted.option == "num_blocks"  # overrides kv_cache_memory
            else f"set kv_cache_memory to at least {needed_mib}MiB"
        )
        blocks = "1 block" if wanted.num_blocks == 1 else f"{wanted.num_blocks} blocks"
        raise ConfigError(
            f"{wanted.source} makes a KV cache of {blocks} or {wanted.num_blocks * spec.block_size} tokens, "
            f"but a sequence of useful length has {needed_tokens} ({spec.formula()}); {way_out}"
        )


def _check_fits(wanted: _Wanted, spec: KVCacheSpec, free_bytes: int) -> None:
    num_bytes = (wanted.num_blocks + 1) * spec.bytes_per_block
    if num_bytes > free_bytes:
        raise ConfigError(
            f"{wanted.source} makes a KV cache of {format_memory_size(num_bytes)}, but only "
            f"{format_memory_size(free_bytes)} of memory are free; lower {wanted.option}"
        )
