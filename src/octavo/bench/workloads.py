"""Workloads: requests of random tokens, the same for every engine, fresh for every repetition.

All requests are submitted at once, are greedy and generate exactly `Workload.output_tokens`. Fresh tokens
keep prefix caches out of everything but W2, whose requests share a prefix.
"""

import random
from dataclasses import dataclass

from octavo.errors import ConfigError

LOWEST_TOKEN, HIGHEST_TOKEN = 1_000, 48_000
"""Ids of ordinary text in SmolLM2's vocabulary, no special tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests alike in everything but their tokens."""

    name: str
    num_requests: int
    prompt_tokens: int
    """Of each request's own, behind the shared ones."""
    output_tokens: int
    shared_tokens: int = 0
    """At the beginning of every prompt."""
    seed: int
    """Of the first repetition's own tokens."""
    shared_seed: int = 0
    seed_stride: int = 1
    """From one repetition's seed to the next one's."""

    def __post_init__(self) -> None:
        for name in ("num_requests", "prompt_tokens", "output_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.shared_tokens < 0:
            raise ConfigError(f"shared_tokens must be at least 0, got {self.shared_tokens}")

    @property
    def size(self) -> str:
        """As in ``32 requests × 256 prompt → 128 output tokens``."""
        shared = f"{self.shared_tokens:,} shared + " if self.shared_tokens else ""
        requests = "1 request" if self.num_requests == 1 else f"{self.num_requests} requests"
        return f"{requests} × {shared}{self.prompt_tokens:,} prompt → {self.output_tokens} output tokens"

    def prompts(self, repetition: int, *, vocab_size: int = 49_152) -> list[list[int]]:
        """Token ids [num_requests][shared_tokens + prompt_tokens]."""
        offset = self.seed_stride * repetition
        [shared] = random_tokens(1, self.shared_tokens, self.shared_seed + offset, vocab_size=vocab_size)
        own = random_tokens(self.num_requests, self.prompt_tokens, self.seed + offset, vocab_size=vocab_size)
        return [shared + tokens for tokens in own]


def random_tokens(count: int, length: int, seed: int, *, vocab_size: int) -> list[list[int]]:
    """``count`` lists of ``length`` token ids; a small vocabulary moves the range into itself."""
    high = min(HIGHEST_TOKEN, vocab_size)
    low = min(LOWEST_TOKEN, high // 2)
    rng = random.Random(seed)
    return [[rng.randrange(low, high) for _ in range(length)] for _ in range(count)]


W1 = Workload(name="W1", num_requests=32, prompt_tokens=256, output_tokens=128, seed=10_000)
W2 = Workload(
    name="W2",
    num_requests=32,
    shared_tokens=1024,
    prompt_tokens=32,
    output_tokens=64,
    seed=30_000,
    shared_seed=20_000,
)
W3 = Workload(name="W3", num_requests=1, prompt_tokens=32, output_tokens=128, seed=40_000)
W4 = Workload(name="W4", num_requests=1, prompt_tokens=2048, output_tokens=1, seed=50_000)
W4_512 = Workload(name="W4_512", num_requests=1, prompt_tokens=512, output_tokens=1, seed=50_000)
BD8 = Workload(name="BD8", num_requests=8, prompt_tokens=256, output_tokens=128, seed=60_008, seed_stride=100)

WORKLOADS = {workload.name: workload for workload in (W1, W2, W3, W4, W4_512, BD8)}


def find_workload(name: str) -> Workload:
    """A workload by name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in WORKLOADS:
        raise ConfigError(f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}")
    return WORKLOADS[name]
