import hashlib
import struct
import subprocess
import sys

import pytest
from kv_harness import ROOT, FakeRequest, admit

from octavo.errors import ConfigError, InvalidRequestError
from octavo.kv.hashing import (
    MAX_EXTRA_KEYS_LENGTH,
    BlockHasher,
    ExtraKey,
    ExtraKeyKind,
    check_extra_keys,
    model_root,
    request_root,
)
from octavo.kv.manager import KVCacheManager


def hashes_of(token_ids, block_size=4, root=ROOT):
    hashes = []
    BlockHasher(block_size, ROOT).extend(hashes, token_ids, root)
    return hashes


def salted(salt):
    return [ExtraKey(ExtraKeyKind.CACHE_SALT, salt)]


def adapter(name, revision):
    return [ExtraKey(ExtraKeyKind.ADAPTER_NAME, name), ExtraKey(ExtraKeyKind.ADAPTER_REVISION, revision)]


MODEL = {"kv_dtype": "float16", "kv_layout": "v1", "rope_parameters": {"theta": 1e4, "dim": 64}}


@pytest.mark.parametrize(("num_tokens", "num_hashes"), [(14, 3), (12, 3), (11, 2), (4, 1), (3, 0), (0, 0)])
def test_only_full_blocks_are_hashed(num_tokens, num_hashes):
    """T10."""
    assert len(hashes_of(range(num_tokens))) == num_hashes


def test_a_hash_is_sha256_of_its_parent_and_its_tokens():
    """T11."""
    token_ids = [0, 1, 65_537, 2**32 - 1, 7, 7, 7, 7]
    first = hashlib.sha256(ROOT + struct.pack("<4I", *token_ids[:4])).digest()
    second = hashlib.sha256(first + struct.pack("<4I", *token_ids[4:])).digest()
    assert hashes_of(token_ids) == [first, second]


@pytest.mark.parametrize("token_id", [-1, 2**32])
def test_a_token_outside_32_bits_is_refused(token_id):
    with pytest.raises(struct.error):
        hashes_of([token_id] * 4)


def test_the_same_tokens_further_on_have_another_hash():
    """T12."""
    first, second = hashes_of([1, 2, 3, 4, 1, 2, 3, 4])
    assert first != second


def test_hashes_grow_with_the_tokens_and_never_change():
    """S2.3."""
    hasher, hashes, token_ids = BlockHasher(4, ROOT), [], []
    for token_id in range(23):
        token_ids.append(token_id)
        before = list(hashes)
        hasher.extend(hashes, token_ids, ROOT)
        assert hashes[: len(before)] == before
    assert hashes == hashes_of(range(23))
    assert len(hashes) == 5


def test_a_salt_changes_every_hash_and_separates_the_cache():
    """T13."""
    tokens = range(48)
    first, second = (hashes_of(tokens, 16, request_root(ROOT, salted(salt))) for salt in ("salt1", "salt2"))
    assert len(set(first) | set(second)) == 6
    manager = KVCacheManager(num_blocks=20, block_size=16)
    admit(manager, FakeRequest("a", tokens, extra_keys=salted("salt1")))
    same = FakeRequest("b", range(49), extra_keys=salted("salt1"))
    other = FakeRequest("c", range(49), extra_keys=salted("salt2"))
    unsalted = FakeRequest("d", range(49))
    assert [manager.lookup(request).num_tokens for request in (same, other, unsalted)] == [48, 0, 0]


def test_an_adapter_of_the_same_name_and_another_revision_differs():
    """T14."""
    assert request_root(ROOT, adapter("sql", "v1")) != request_root(ROOT, adapter("sql", "v2"))
    assert request_root(ROOT, adapter("sql", "v1")) != request_root(ROOT, adapter("math", "v1"))


def test_extra_keys_are_typed_and_their_borders_unambiguous():
    """S2.4, S2.9."""
    as_salt = request_root(ROOT, salted("x"))
    as_name = request_root(ROOT, [ExtraKey(ExtraKeyKind.ADAPTER_NAME, "x")])
    assert as_salt != as_name
    assert request_root(ROOT, adapter("ab", "c")) != request_root(ROOT, adapter("a", "bc"))


def test_the_order_of_extra_keys_does_not_matter():
    keys = [*salted("s"), *adapter("a", "1")]
    assert request_root(ROOT, keys) == request_root(ROOT, keys[::-1])


def test_a_request_without_extra_keys_starts_at_the_engines_root():
    assert request_root(ROOT) == ROOT
    assert request_root(ROOT, salted("")) != ROOT


def test_extra_keys_keep_the_engines_root_in_the_chain():
    assert request_root(ROOT, salted("s")) != request_root(bytes(32), salted("s"))


def test_roots_are_sha256_of_labelled_length_prefixed_fields():
    """The serialisation is fixed: tiers on disk outlive a process."""

    def field(name, kind, payload):
        return struct.pack("<I", len(name)) + name + kind + struct.pack("<I", len(payload)) + payload

    fields = [
        field(b"model_fingerprint", b"b", b"\x01\x02"),
        field(b"kv_dtype", b"s", b"float16"),
        field(b"kv_layout", b"s", b"v1"),
        field(b"seed", b"s", b""),
        field(b"rope.dim", b"i", b"64"),
        field(b"rope.theta", b"f", struct.pack("<d", 1e4)),
    ]
    expected = hashlib.sha256(b"octavo kv cache: model root" + b"".join(sorted(fields))).digest()
    assert model_root(b"\x01\x02", **MODEL) == expected
    salt = field(b"cache_salt", b"s", "é".encode())
    expected = hashlib.sha256(b"octavo kv cache: request root" + ROOT + salt).digest()
    assert request_root(ROOT, salted("é")) == expected


def test_everything_that_makes_kv_incompatible_changes_the_root():
    """T16 (an explicit seed changes it) and design: fingerprint, dtype, layout, rope."""
    roots = [
        model_root("model", **MODEL),
        model_root(b"model", **MODEL),
        model_root("other", **MODEL),
        model_root("model", **MODEL | {"kv_dtype": "float32"}),
        model_root("model", **MODEL | {"kv_layout": "v2"}),
        model_root("model", **MODEL | {"rope_parameters": {"theta": 1e5, "dim": 64}}),
        model_root("model", **MODEL | {"rope_parameters": {"theta": 10000, "dim": 64}}),
        model_root("model", **MODEL | {"rope_parameters": {"theta": 1e4}}),
        model_root("model", **MODEL, seed="site"),
    ]
    assert len(set(roots)) == len(roots)
    assert {len(root) for root in roots} == {32}


def test_the_order_of_rope_parameters_does_not_matter():
    swapped = MODEL | {"rope_parameters": {"dim": 64, "theta": 1e4}}
    assert model_root("model", **swapped) == model_root("model", **MODEL)


def test_two_processes_agree():
    """T16."""
    program = (
        "from octavo.kv.hashing import *\n"
        "rope = {'theta': 1e4, 'dim': 64}\n"
        "root = model_root('m', kv_dtype='float16', kv_layout='v1', rope_parameters=rope)\n"
        "root = request_root(root, [ExtraKey(ExtraKeyKind.CACHE_SALT, 's')])\n"
        "hashes = []\n"
        "BlockHasher(4, root).extend(hashes, range(8), root)\n"
        "print(hashes[-1].hex())\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    root = request_root(model_root("m", **MODEL), salted("s"))
    assert outputs == {hashes_of(range(8), 4, root)[-1].hex()}


def test_ids_and_priorities_leave_hashes_alone():
    """T19."""
    first, second = FakeRequest("session-1", range(48)), FakeRequest("session-2", range(48))
    second.priority = 9
    assert first.block_hashes == second.block_hashes


def test_a_block_holds_at_least_one_token():
    assert BlockHasher(1, ROOT).block_size == 1
    with pytest.raises(ConfigError, match="block_size must be at least 1, got 0"):
        BlockHasher(0, ROOT)


def test_a_hasher_remembers_its_root():
    assert BlockHasher(4, ROOT).root == ROOT


def test_extra_keys_have_a_limit_together():
    half = "é" * (MAX_EXTRA_KEYS_LENGTH // 2)
    check_extra_keys([])
    check_extra_keys([*salted(half), *adapter(half[1:], "r")])
    with pytest.raises(
        InvalidRequestError, match=r"cache_salt .* 1025 characters long, .* at most 1024"
    ) as got:
        check_extra_keys([*salted(half + "x"), *adapter(half[1:], "r")])
    assert got.value.param == "cache_salt"
