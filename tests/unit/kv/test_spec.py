import pytest

from octavo.errors import ConfigError
from octavo.kv.spec import KVCacheSpec, choose_kv_dtype

SMOLLM2 = {"block_size": 16, "num_layers": 30, "num_kv_heads": 3, "head_dim": 64, "dtype": "float16"}


def test_sizes_follow_from_the_shape():
    spec = KVCacheSpec(**SMOLLM2)
    assert spec.itemsize == 2
    assert spec.bytes_per_token == 30 * 2 * 3 * 64 * 2 == 23_040
    assert spec.bytes_per_block == 16 * 23_040 == 368_640
    assert KVCacheSpec(**SMOLLM2 | {"dtype": "float32"}).bytes_per_block == 737_280


def test_int8_has_a_scale_of_four_bytes_per_token_and_head():
    spec = KVCacheSpec(**SMOLLM2 | {"dtype": "int8"})
    assert (spec.itemsize, spec.scale_bytes) == (1, 4)
    assert spec.bytes_per_token == 30 * 2 * 3 * (64 + 4) == 12_240
    assert spec.bytes_per_block == 16 * 12_240 == 195_840
    assert spec.blocks_in(10 * 195_840) == 9
    assert spec.formula() == (
        "30 layers × 2 (K, V) × 16 tokens × 3 KV heads × (64 × 1 + 4 for a scale) bytes (int8) "
        "= 195,840 bytes per block"
    )


@pytest.mark.parametrize(("head_dim", "dtype"), [(64, "int8"), (80, "int8"), (256, "int8"), (24, "float16")])
def test_auto_is_int8_where_heads_allow_it(head_dim, dtype):
    assert choose_kv_dtype("auto", head_dim) == dtype
    assert KVCacheSpec(**SMOLLM2 | {"head_dim": head_dim, "dtype": choose_kv_dtype("auto", head_dim)})
    assert {choose_kv_dtype(name, head_dim) for name in ("float16", "float32", "int8")} == {
        "float16",
        "float32",
        "int8",
    }


@pytest.mark.parametrize("head_dim", [8, 24, 100])
def test_int8_needs_heads_of_a_multiple_of_16(head_dim):
    """The message names the way out."""
    assert KVCacheSpec(**SMOLLM2 | {"head_dim": head_dim}).head_dim == head_dim
    message = (
        f"kv_dtype int8 needs a head_dim that is a multiple of 16, but this model's is {head_dim}; "
        "use kv_dtype float16"
    )
    with pytest.raises(ConfigError, match=message):
        KVCacheSpec(**SMOLLM2 | {"head_dim": head_dim, "dtype": "int8"})


@pytest.mark.parametrize(
    ("num_bytes", "num_blocks"), [(0, 0), (368_640, 0), (2 * 368_640 - 1, 0), (2 * 368_640, 1), (10**9, 2711)]
)
def test_the_null_block_takes_the_room_of_one(num_bytes, num_blocks):
    assert KVCacheSpec(**SMOLLM2).blocks_in(num_bytes) == num_blocks


def test_the_formula_has_the_numbers_in_it():
    assert KVCacheSpec(**SMOLLM2).formula() == (
        "30 layers × 2 (K, V) × 16 tokens × 3 KV heads × 64 × 2 bytes (float16) = 368,640 bytes per block"
    )


@pytest.mark.parametrize("name", ["block_size", "num_layers", "num_kv_heads", "head_dim"])
def test_no_dimension_is_empty(name):
    assert getattr(KVCacheSpec(**SMOLLM2 | {name: 1}), name) == 1
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        KVCacheSpec(**SMOLLM2 | {name: 0})


def test_an_unknown_dtype_is_named_with_the_known_ones():
    with pytest.raises(ConfigError, match="KV dtype must be one of float16, float32, int8, got int4"):
        KVCacheSpec(**SMOLLM2 | {"dtype": "int4"})
