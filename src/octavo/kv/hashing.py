"""Block hashes: the identity of a block's content, chained so that one hash stands for a whole prefix.

    hash of block i = SHA-256(hash of block i-1, or the request's root ‖ the block's token ids)

Token ids are unsigned 32-bit little-endian, so the input has one meaning and one length. The chain
starts at a root that folds in everything that makes K/V incompatible: first the model, the number
format and layout of the cache and the rope parameters (`model_root`), then what belongs to one request,
the adapter and the cache salt (`request_root`). Every field of a root is tagged with its name and type
and prefixed with its length, so that a salt can never be mistaken for an adapter's name. Roots start
with a label where a block's input has a digest: no choice of salt makes a root equal to a block's hash.

Nothing here depends on the process: equal content has equal hashes everywhere and for ever, which is
what lets tiers and restarts share blocks.
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from octavo.errors import ConfigError, InvalidRequestError

BlockHash = bytes
"""A SHA-256 digest, 32 bytes."""

_MODEL_LABEL = b"octavo kv cache: model root"
_REQUEST_LABEL = b"octavo kv cache: request root"
_TOKEN_BYTES = 4

MAX_EXTRA_KEYS_LENGTH = 1024
"""Characters of all extra keys of a request: hashing them is work that nobody may make long for others."""

FieldValue = str | bytes | int | float


class ExtraKeyKind(StrEnum):
    """What an extra key of a request says."""

    CACHE_SALT = "cache_salt"
    """Only requests with the same salt share blocks: isolates tenants from one another."""
    ADAPTER_NAME = "adapter_name"
    ADAPTER_REVISION = "adapter_revision"
    """Path or revision of the adapter's weights: the same name with other weights has other K/V."""


class ExtraKey(NamedTuple):
    """One thing beside the tokens that the K/V of a request depends on, or that keeps it apart."""

    kind: ExtraKeyKind
    value: str


def model_root(
    model_fingerprint: str | bytes,
    *,
    kv_dtype: str,
    kv_layout: str,
    rope_parameters: Mapping[str, FieldValue],
    seed: str = "",
) -> BlockHash:
    """The root of every chain of one engine configuration.

    Args:
        model_fingerprint: identifies the weights, for example a digest of the model file.
        kv_dtype: number format of K and V in the cache.
        kv_layout: name and version of the order in which a block's numbers are stored.
        rope_parameters: everything that turns a position into an angle; the order does not matter.
        seed: separates deployments that must not share blocks through a common tier.
    """
    fields: dict[str, FieldValue] = {
        "model_fingerprint": model_fingerprint,
        "kv_dtype": kv_dtype,
        "kv_layout": kv_layout,
        "seed": seed,
    }
    fields.update((f"rope.{name}", value) for name, value in rope_parameters.items())
    return _digest_of_fields(_MODEL_LABEL, fields.items())


def request_root(root: BlockHash, extra_keys: Sequence[ExtraKey] = ()) -> BlockHash:
    """The root of one request's chain: the engine's own ``root`` if the request has no extra keys."""
    if not extra_keys:
        return root
    return _digest_of_fields(_REQUEST_LABEL + root, extra_keys)


def check_extra_keys(extra_keys: Sequence[ExtraKey]) -> None:
    """Refuse keys that have more than `MAX_EXTRA_KEYS_LENGTH` characters together.

    Raises:
        InvalidRequestError: they do; ``param`` names the longest.
    """
    length = sum(len(key.value) for key in extra_keys)
    if length > MAX_EXTRA_KEYS_LENGTH:
        longest = max(extra_keys, key=lambda key: len(key.value)).kind.value
        raise InvalidRequestError(
            f"{longest} makes the cache keys of the request {length} characters long, but they may have at "
            f"most {MAX_EXTRA_KEYS_LENGTH}; shorten it, or send its hash",
            param=longest,
        )


def _digest_of_fields(label: bytes, fields: Iterable[tuple[str, FieldValue]]) -> BlockHash:
    """Hash a set of named fields; the order in which they come does not matter."""
    encoded = sorted(_encode_field(name, value) for name, value in fields)
    return hashlib.sha256(label + b"".join(encoded)).digest()


def _encode_field(name: str, value: FieldValue) -> bytes:
    """Name and value, each behind its length, and a letter for the type between them."""
    if isinstance(value, str):
        type_tag, payload = b"s", value.encode()
    elif isinstance(value, bytes):
        type_tag, payload = b"b", value
    elif isinstance(value, int):
        type_tag, payload = b"i", b"%d" % value
    else:
        type_tag, payload = b"f", struct.pack("<d", value)
    return _with_length(name.encode()) + type_tag + _with_length(payload)


def _with_length(payload: bytes) -> bytes:
    return struct.pack("<I", len(payload)) + payload


class BlockHasher:
    """Extends a request's list of block hashes as its tokens become known; one per engine configuration.

    Attributes:
        block_size: tokens per block.
        root: the engine's root, see `model_root`.
    """

    __slots__ = ("block_size", "root")

    def __init__(self, block_size: int, root: BlockHash) -> None:
        if block_size < 1:
            raise ConfigError(f"block_size must be at least 1, got {block_size}")
        self.block_size = block_size
        self.root = root

    def extend(self, hashes: list[BlockHash], token_ids: Sequence[int], root: BlockHash) -> None:
        """Append to ``hashes`` those of the blocks of ``token_ids`` that have become full.

        Args:
            hashes: the hashes of the leading full blocks so far; existing entries are not looked at again.
            token_ids: all known tokens of the request, each in 0 … 2³²-1.
            root: where the request's chain starts, see `request_root`.
        """
        block_size = self.block_size
        start = len(hashes)
        end = len(token_ids) // block_size
        if start >= end:
            return
        num_new_tokens = (end - start) * block_size
        packed = struct.pack(f"<{num_new_tokens}I", *token_ids[start * block_size : end * block_size])
        digest = hashes[-1] if hashes else root
        sha256, append, stride = hashlib.sha256, hashes.append, block_size * _TOKEN_BYTES
        for offset in range(0, len(packed), stride):
            digest = sha256(digest + packed[offset : offset + stride]).digest()
            append(digest)
