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
        """Share of the tokens that were found, 0 if none was looked for."""
        return self.num_hit_tokens / self.num_query_tokens if self.num_query_tokens else 0.0

    def record(self, num_query_tokens: int, num_hit_tokens: int) -> None:
        """Count one admission."""
        self.add(PrefixCacheStats(1, num_query_tokens, num_hit_tokens))

    def add(self, other: "PrefixCacheStats") -> None:
        """Count what ``other`` counted as well."""
        self.num_requests += other.num_requests
        self.num_query_tokens += other.num_query_tokens
        self.num_hit_tokens += other.num_hit_tokens


@dataclass(slots=True)
class SchedulerStats:
    """Counters since the start of the scheduler."""

    num_preemptions: int = 0
    prefix_cache: PrefixCacheStats = field(default_factory=PrefixCacheStats)
    """First admissions."""
    preempted_prefix_cache: PrefixCacheStats = field(default_factory=PrefixCacheStats)
    """Admissions after a preemption, which find their own blocks and would flatter the hit rate."""


class HitRateWindow:
    """Hit rate over the most recent requests, so that it follows what the load does now."""

    def __init__(self, max_requests: int = 1000) -> None:
        self._max_requests = max_requests
        self._observed: deque[PrefixCacheStats] = deque()
        self._total = PrefixCacheStats()

    @property
    def hit_rate(self) -> float:
        """Share of the tokens that were found, over the window."""
        return self._total.hit_rate

    def observe(self, stats: PrefixCacheStats) -> None:
        """Count ``stats``; the oldest ones leave while the window holds more than its requests.

        An observation of more requests than the window is still kept while it is the only one.
        """
        if stats.num_requests == 0:
            return
        self._observed.append(stats)
        self._total.add(stats)
        while len(self._observed) > 1 and self._total.num_requests > self._max_requests:
            self._total.add(_negative(self._observed.popleft()))


def _negative(stats: PrefixCacheStats) -> PrefixCacheStats:
    return PrefixCacheStats(-stats.num_requests, -stats.num_query_tokens, -stats.num_hit_tokens)
