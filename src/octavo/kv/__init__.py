"""The paged KV cache: blocks, who holds them, and how a prefix is found again. Standard library only."""

from octavo.kv.block import BlockCopy, KVCacheBlock
from octavo.kv.hashing import BlockHash, BlockHasher, ExtraKey, ExtraKeyKind, model_root, request_root
from octavo.kv.manager import KVCacheManager
from octavo.kv.prefix_hit import NO_HIT, PrefixHit
from octavo.kv.request import CacheRequest
from octavo.kv.spec import KVCacheSpec

__all__ = [
    "NO_HIT",
    "BlockCopy",
    "BlockHash",
    "BlockHasher",
    "CacheRequest",
    "ExtraKey",
    "ExtraKeyKind",
    "KVCacheBlock",
    "KVCacheManager",
    "KVCacheSpec",
    "PrefixHit",
    "model_root",
    "request_root",
]
