"""What the scheduler counts: prefix-cache queries and hits in tokens, and preemptions."""

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class PrefixCacheStats:
    """Lookups of the prefix cache, each counted once, when the request is admitted."""

    num_requests: int = 0
    num_query_tokens: int = 0
    """Tokens that were looked for."""
    num_hit_tokens: int = 0
    """Tokens that were found and not computed again."""

    @property
    def hit_rate(self) -> float:
        """Share of the tokens that were found; 0 if none was looked for."""
        return self.num_hit_tokens / self.num_query_tokens if self.num_query_tokens else 0.0

    def add(self, num_requests: int, num_query_tokens: int, num_hit_tokens: int) -> None:
        """Count admissions; negative numbers take earlier ones out again."""
        self.num_requests += num_requests
        self.num_query_tokens += num_query_tokens
        self.num_hit_tokens += num_hit_tokens


class HitRateWindow:
    """Hit rate over the most recent requests, so that it follows what the load does now."""

    def __init__(self, max_requests: int = 1000) -> None:
        self._max_requests = max_requests
        self._observed: deque[tuple[int, int, int]] = deque()
        self._total = PrefixCacheStats()

    @property
    def hit_rate(self) -> float:
        """Share of the tokens that were found, over the window."""
        return self._total.hit_rate

    def observe(self, num_requests: int, num_query_tokens: int, num_hit_tokens: int) -> None:
        """Count admissions; the oldest ones leave while there are more requests than the window holds.

        The newest observation stays even if it alone is larger than the window.
        """
        self._observed.append((num_requests, num_query_tokens, num_hit_tokens))
        self._total.add(num_requests, num_query_tokens, num_hit_tokens)
        while len(self._observed) > 1 and self._total.num_requests > self._max_requests:
            oldest = self._observed.popleft()
            self._total.add(*(-count for count in oldest))


@dataclass(slots=True)
class SchedulerStats:
    """Counters since the scheduler was made."""

    num_preemptions: int = 0
    prefix_cache: PrefixCacheStats = field(default_factory=PrefixCacheStats)
    """First admissions."""
    preempted_prefix_cache: PrefixCacheStats = field(default_factory=PrefixCacheStats)
    """Admissions after a preemption: they find their own blocks and would flatter the hit rate."""
    recent_prefix_cache: HitRateWindow = field(default_factory=HitRateWindow)
    """First admissions of late."""

    def record_lookup(self, num_query_tokens: int, num_hit_tokens: int, *, is_resumed: bool) -> None:
        """Count the lookup of a request that was admitted, for the first time or after a preemption."""
        if is_resumed:
            self.preempted_prefix_cache.add(1, num_query_tokens, num_hit_tokens)
        else:
            self.prefix_cache.add(1, num_query_tokens, num_hit_tokens)
            self.recent_prefix_cache.observe(1, num_query_tokens, num_hit_tokens)
