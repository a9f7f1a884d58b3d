"""Hit counters."""

from octavo.sched.stats import HitRateWindow, PrefixCacheStats, SchedulerStats


def test_hit_rate_of_nothing_is_zero():
    assert PrefixCacheStats().hit_rate == 0.0
    assert HitRateWindow().hit_rate == 0.0


def test_window_follows_recent_requests():
    """T75: over a window of 5 requests."""
    window = HitRateWindow(max_requests=5)
    rates = []
    for observation in [(1, 20, 9), (4, 80, 16), (1, 10, 2)]:
        window.observe(*observation)
        rates.append(round(window.hit_rate, 6))
    assert rates == [0.45, 0.25, 0.2]


def test_window_keeps_a_single_observation_larger_than_itself():
    window = HitRateWindow(max_requests=2)
    window.observe(1, 10, 10)
    window.observe(9, 100, 50)
    assert window.hit_rate == 0.5


def test_resumed_requests_are_counted_apart():
    stats = SchedulerStats()
    stats.record_lookup(100, 50, is_resumed=False)
    stats.record_lookup(10, 10, is_resumed=True)
    assert stats.prefix_cache == PrefixCacheStats(1, 100, 50)
    assert stats.preempted_prefix_cache == PrefixCacheStats(1, 10, 10)
    assert stats.recent_prefix_cache.hit_rate == 0.5
