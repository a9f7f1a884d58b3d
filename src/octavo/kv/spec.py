"""`KVCacheSpec`: the shape of the KV cache, and the one formula for its size."""

from dataclasses import dataclass
from typing import Literal

from octavo.errors import ConfigError

KVDtype = Literal["float16", "float32", "int8"]
KVDtypeChoice = Literal["auto", "float16", "float32", "int8"]

_KV_ITEMSIZE: dict[str, int] = {"float16": 2, "float32": 4, "int8": 1}
_INT8_SCALE_BYTES = 4
_INT8_HEAD_DIM_MULTIPLE = 16


def choose_kv_dtype(choice: KVDtypeChoice, head_dim: int) -> KVDtype:
    """What a choice is for heads of this size: ``auto`` is int8, or float16 where int8 cannot hold them."""
    if choice != "auto":
        return choice
    return "float16" if head_dim % _INT8_HEAD_DIM_MULTIPLE else "int8"


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
    """Number format of K and V; int8 has a scale per token and head beside the numbers (ADR 0016)."""

    def __post_init__(self) -> None:
        for name in ("block_size", "num_layers", "num_kv_heads", "head_dim"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.dtype not in _KV_ITEMSIZE:
            raise ConfigError(f"KV dtype must be one of {', '.join(_KV_ITEMSIZE)}, got {self.dtype}")
        if self.dtype == "int8" and self.head_dim % _INT8_HEAD_DIM_MULTIPLE:
            raise ConfigError(
                f"kv_dtype int8 needs a head_dim that is a multiple of {_INT8_HEAD_DIM_MULTIPLE}, but this "
                f"model's is {self.head_dim}; use kv_dtype float16"
            )

    @property
    def itemsize(self) -> int:
        """Bytes of one number."""
        return _KV_ITEMSIZE[self.dtype]

    @property
    def scale_bytes(self) -> int:
        """Bytes of the scale of one head's K (or V) of one token; 0 where numbers need none."""
        return _INT8_SCALE_BYTES if self.dtype == "int8" else 0

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token's K and V in all layers."""
        bytes_per_head = self.head_dim * self.itemsize + self.scale_bytes
        return self.num_layers * 2 * self.num_kv_heads * bytes_per_head

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block in all layers."""
        return self.block_size * self.bytes_per_token

    def blocks_in(self, num_bytes: int) -> int:
        """Usable blocks that fit in ``num_bytes`` beside the null block, which takes the room of one."""
        return max(num_bytes // self.bytes_per_block - 1, 0)

    def formula(self) -> str:
        """The size of a block with the numbers in it, for people."""
        numbers = f"{self.head_dim} × {self.itemsize}"
        bytes_per_head = f"({numbers} + {self.scale_bytes} for a scale)" if self.scale_bytes else numbers
        return (
            f"{self.num_layers} layers × 2 (K, V) × {self.block_size} tokens × {self.num_kv_heads} KV heads "
            f"× {bytes_per_head} bytes ({self.dtype}) = {self.bytes_per_block:,} bytes per block"
        )
