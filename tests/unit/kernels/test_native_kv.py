"""The native KV store against its logical view."""

from collections.abc import Iterator

import numpy as np
import pytest

from octavo.errors import ConfigError, EngineError
from octavo.kernels.native_kv import NativeKVStore
from octavo.kernels.native_library import load_library
from octavo.kernels.native_pool import NativePool
from octavo.kernels.reference_kv import ReferenceKVStore
from octavo.kv.spec import KVCacheSpec


@pytest.fixture
def pool() -> Iterator[NativePool]:
    pool = NativePool(2, library=load_library())
    yield pool
    pool.close()


def make_store(
    pool: NativePool,
    *,
    block_size: int = 16,
    head_dim: int = 16,
    dtype: str = "float16",
    num_blocks: int = 5,
) -> NativeKVStore:
    spec = KVCacheSpec(block_size=block_size, num_layers=3, num_kv_heads=2, head_dim=head_dim, dtype=dtype)
    return NativeKVStore(spec, num_blocks, library=load_library(), pool=pool)


def random_block(store: NativeKVStore, seed: int) -> np.ndarray:
    shape = (2, store.spec.block_size, store.spec.num_kv_heads, store.spec.head_dim)
    return np.random.default_rng(seed).normal(size=shape).astype(store.view_dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("block_size", [8, 16, 24, 32])
def test_a_block_comes_back_and_no_other_changes(pool: NativePool, block_size: int, dtype: str):
    store = make_store(pool, block_size=block_size, dtype=dtype)
    contents = {
        (layer, block): random_block(store, 10 * layer + block) for layer in range(3) for block in range(6)
    }
    for (layer, block), content in contents.items():
        store.write_block(layer, block, content)
    for (layer, block), content in contents.items():
        np.testing.assert_array_equal(store.block(layer, block), content)
    store.close()


@pytest.mark.parametrize("block_size", [8, 16, 24, 32, 48, 64])
@pytest.mark.parametrize("head_dim", [16, 48, 64, 80, 96, 128, 256])
def test_int8_blocks_are_those_of_the_reference(pool: NativePool, block_size: int, head_dim: int):
    """All of them after each write, with the scales of tokens in it far apart, and after a copy."""
    store = make_store(pool, block_size=block_size, dtype="int8", num_blocks=2, head_dim=head_dim)
    reference = ReferenceKVStore(store.spec, 2)
    for layer, block in ((0, 0), (2, 1), (0, 1), (2, 0), (0, 1)):
        content = random_block(store, 10 * layer + block)
        content *= 10.0 ** np.random.default_rng(block).integers(-40, 30, (2, block_size, 2, 1))
        content[0, 3, 1, 5], content[1, 6, 0, 2] = np.nan, np.inf
        for each in (store, reference):
            each.write_block(layer, block, content)
        assert_same_content(store, reference)
    for each in (store, reference):
        each.copy_blocks([(1, 0), (0, 2)])
    assert_same_content(store, reference)
    store.close()


def assert_same_content(store: NativeKVStore, reference: ReferenceKVStore) -> None:
    for layer in range(store.spec.num_layers):
        for block in range(store.num_blocks + 1):
            np.testing.assert_array_equal(store.block(layer, block), reference.block(layer, block))


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_the_size_is_the_specs_and_the_null_block_is_in_it(pool: NativePool, dtype: str):
    store = make_store(pool, num_blocks=5, dtype=dtype)
    assert store.num_bytes == 6 * store.spec.bytes_per_block
    assert not store.block(2, 5).any()
    store.close()


def test_copies_are_made_in_order_in_every_layer(pool: NativePool):
    store = make_store(pool)
    for layer in range(3):
        store.write_block(layer, 0, random_block(store, layer))
    store.copy_blocks([(0, 1), (1, 2), (3, 0), (2, 2)])
    for layer in range(3):
        np.testing.assert_array_equal(store.block(layer, 1), random_block(store, layer))
        np.testing.assert_array_equal(store.block(layer, 2), random_block(store, layer))
        assert not store.block(layer, 0).any()
    store.copy_blocks([])
    store.close()


def test_what_is_not_there_is_an_error(pool: NativePool):
    store = make_store(pool)
    with pytest.raises(EngineError, match="block 6 is outside 0 … 5"):
        store.block(0, 6)
    with pytest.raises(EngineError, match="layer 3 is outside 0 … 2"):
        store.write_block(3, 0, random_block(store, 0))
    with pytest.raises(EngineError, match="block -1 is outside"):
        store.copy_blocks([(0, 1), (-1, 2)])
    with pytest.raises(ValueError, match="a block has shape"):
        store.write_block(0, 0, np.zeros((2, 16, 2, 11)))
    store.close()
    store.close()
    with pytest.raises(EngineError, match="the KV store is closed"):
        store.block(0, 0)


def test_the_block_size_must_be_a_multiple_of_8(pool: NativePool):
    with pytest.raises(ConfigError, match="multiple of 8 for the native kernels, got 12"):
        make_store(pool, block_size=12)


def test_heads_that_the_kernels_have_no_room_for_are_refused(pool: NativePool):
    with pytest.raises(ConfigError, match="heads of at most 256 elements, but this model's have 272; use"):
        make_store(pool, head_dim=272)
