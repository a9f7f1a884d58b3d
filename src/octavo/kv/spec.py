"""`KVCacheSpec`: the shape of the KV cache, and the one formula for its size."""

from dataclasses import dataclass
from typing import Literal

from octavo.errors import ConfigError

KVDtype = Literal["float16", "float32"]

_KV_ITEMSIZE: dict[str, int] = {"float16": 2, "float32": 4}


@dataclass(frozen=True, kw_only=True, slots=True)
class KVCacheSpec:
    """What a block holds: per layer, logically ``[2, block_size, num_kv_heads, head_dim]``; 2 for K and V."""

    block_size: int
    """Tokens per block."""
    num_layers: int
    num_kv_heads: int
    head_dim: int
    """Elements of one head's K (or V) of one token."""
    dtype: KVDtype
    """Number format of K and V."""

    def __post_init__(self) -> None:
        for name in ("block_size", "num_layers", "num_kv_heads", "head_dim"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.dtype not in _KV_ITEMSIZE:
            raise ConfigError(f"KV dtype must be one of {', '.join(_KV_ITEMSIZE)}, got {self.dtype}")

    @property
    def itemsize(self) -> int:
        """Bytes of one number."""
        return _KV_ITEMSIZE[self.dtype]

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token's K and V in all layers."""
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim * self.itemsize

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block in all layers."""
        return self.block_size * self.bytes_per_token

    def blocks_in(self, num_bytes: int) -> int:
        """Usable blocks that fit in ``num_bytes`` beside the null block, which takes the room of one."""
        return max(num_bytes // self.bytes_per_block - 1, 0)

    def formula(self) -> str:
        """The size of a block with the numbers in it, for people."""
        return (
            f"{self.num_layers} layers × 2 (K, V) × {self.block_size} tokens × {self.num_kv_heads} KV heads "
            f"× {self.head_dim} × {self.itemsize} bytes ({self.dtype}) "
            f"= {self.bytes_per_block:,} bytes per block"
        )
