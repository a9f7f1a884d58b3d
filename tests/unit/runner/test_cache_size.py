"""How many blocks: from a number, a size, or a share of what is free."""

import pytest

from octavo.errors import ConfigError
from octavo.kv.spec import KVCacheSpec
from octavo.runner.cache_size import CacheSizeOptions, kv_cache_blocks

SPEC = KVCacheSpec(block_size=16, num_layers=2, num_kv_heads=2, head_dim=64, dtype="float16")
MIB = 2**20
PER_BLOCK = 16 * 1024


def blocks(num_blocks=None, memory=None, share=0.25, *, free=64 * MIB, max_model_len=1024, max_num_seqs=64):
    return kv_cache_blocks(
        CacheSizeOptions(num_blocks, memory, share),
        SPEC,
        free_bytes=free,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
    )


def test_the_spec_of_these_tests():
    assert SPEC.bytes_per_block == PER_BLOCK


def test_a_number_is_taken_at_its_word_and_goes_first():
    assert blocks(num_blocks=77, memory="32MiB") == 77


def test_a_size_leaves_room_for_the_null_block():
    assert blocks(memory="1MiB") == MIB // PER_BLOCK - 1


def test_a_share_of_what_is_free():
    assert blocks(share=0.5) == 32 * MIB // PER_BLOCK - 1


def test_a_share_is_capped_at_what_can_ever_be_used():
    assert blocks(share=0.5, free=64 * 1024 * MIB, max_num_seqs=3, max_model_len=1000) == 3 * 63


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"num_blocks": 1},
            r"num_blocks 1 makes a KV cache of 1 block or 16 tokens.*set num_blocks to at least 16$",
        ),
        (
            {"memory": "64KiB"},
            r"kv_cache_memory 64KiB makes a KV cache of 3 blocks .*set kv_cache_memory to at least 1MiB$",
        ),
        (
            {"share": 0.25, "free": MIB // 2},
            r"kv_cache_memory_share 0\.25 of 512 KiB free .* 7 blocks .*kv_cache_memory to at least 1MiB$",
        ),
    ],
)
def test_too_small_says_the_numbers_the_formula_and_the_flag(options, message):
    with pytest.raises(ConfigError, match=message) as caught:
        blocks(**options)
    assert "a sequence of useful length has 256" in str(caught.value)
    assert "2 layers × 2 (K, V) × 16 tokens" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_advice_in_the_message_is_enough():
    assert blocks(memory="1MiB") * SPEC.block_size >= 256
    assert blocks(num_blocks=16) * SPEC.block_size == 256


def test_a_model_of_short_sequences_needs_no_more_than_one_of_them():
    assert blocks(num_blocks=2, max_model_len=32) == 2


@pytest.mark.parametrize(
    ("options", "way_out"), [({"num_blocks": 5000}, "num_blocks"), ({"memory": "1GiB"}, "kv_cache_memory")]
)
def test_more_than_what_is_free_is_refused(options, way_out):
    with pytest.raises(ConfigError, match=rf"but only 64 MiB of memory are free; lower {way_out}$"):
        blocks(**options)
