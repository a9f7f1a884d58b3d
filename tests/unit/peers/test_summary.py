"""The table beside other engines."""

import pytest


def record(engine, work, value, *, repetition=0, clean=True, started="2"):
    figures = {"wall": value, "tokens_per_second": value, "first": value, "decode_tokens_per_second": value}
    return {
        "record": "run",
        "started": started,
        "engine": engine,
        "work": work,
        "repetition": repetition,
        "clean": clean,
        "others": 0.01 if clean else 0.5,
        "rss_bytes": 5e8,
        **figures,
    }


@pytest.fixture
def records():
    engines = [
        {"record": "engine", "started": "2", "engine": name, "version": "1", "settings": {}}
        for name in ("octavo model", "slow", "fast")
    ]
    engines[0]["settings"]["step_weight_bytes"] = 100e6
    runs = [record("octavo model", "W1", v, repetition=i) for i, v in enumerate((190.0, 200.0, 210.0))]
    runs += [record("slow", "W1", 50.0), record("fast", "W1", 100.0), record("fast", "W1", 9.0, clean=False)]
    runs += [record("octavo model", "W2", 5.0), record("slow", "W2", 40.0), record("fast", "W2", 20.0)]
    runs += [record("octavo model", "W3", 150.0), record("slow", "W3", 40.0, clean=False)]
    limits = {
        "record": "limits",
        "started": "2",
        "engine": "octavo model",
        "repetition": 0,
        "limits": {"read": 20e9},
    }
    other = {**limits, "engine": "octavo other", "limits": {"read": 1e9}}
    return [*engines, *runs, limits, other]


def test_ratios_are_to_the_best_peer_in_the_right_direction(records):
    from summary import ratio_to_best_peer

    assert ratio_to_best_peer(records, "octavo model", "W1") == (2.0, "fast", True)
    assert ratio_to_best_peer(records, "octavo model", "W2") == (4.0, "fast", True)
    assert ratio_to_best_peer(records, "octavo model", "W4") is None


def test_the_table_has_medians_ranges_marks_and_limits(records):
    from summary import markdown

    text = markdown(records)
    assert "| octavo model | 200 (190 … 210), n = 3 | 5.00, n = 1 | 150, n = 1 | 500 | 1 |" in text
    assert "| fast | 100, n = 1 | 20.0, n = 1 | – |" in text  # the disturbed run is left out
    assert "40.0, n = 1 *not clean*" in text
    assert (
        "| **times the best peer** | **2.00** (fast) | **4.00** (fast) | **3.75** (slow) *not clean* |"
        in text
    )
    assert "others took at most 50%" in text.lower()
    assert "150 decoded tok/s × 100.0 MB of weights; in pairs 75 % of it" in text


def test_figures_are_split_where_cores_moved_apart(records):
    from summary import markdown

    assert "answer each other" not in markdown(records)
    trips = {190.0: 100e-9, 200.0: 400e-9, 210.0: 90e-9}
    for run in records:
        if run["record"] == "run" and run["engine"] == "octavo model" and run["work"] == "W1":
            run["round_trip"] = trips[run["wall"]]
    assert (
        "W1 tok/s of octavo model where its cores answer each other within 95 ns: 200 (190 … 210), n = 2; "
        "400 ns: 200, n = 1." in markdown(records)
    )


def test_pairs_are_of_one_repetition(records):
    from summary import markdown, paired_ratios

    more = [record("fast", "W1", v, repetition=i) for i, v in ((1, 50.0), (2, 420.0))]
    records = [*records, *more, record("fast", "W2", 2.0, repetition=7)]
    assert paired_ratios(records, "octavo model", "W1", "fast") == (1.9, 0.5, 4.0, 3)
    assert paired_ratios(records, "octavo model", "W2", "fast") == (4.0, 4.0, 4.0, 1)
    assert paired_ratios(records, "octavo model", "W4", "fast") is None
    assert "| the same, in pairs | 1.90 (0.500 … 4.00) | 4.00 | 3.75 |" in markdown(records)


def test_only_the_newest_run_of_a_file_counts(records):
    from summary import newest_run

    older = [record("fast", "W1", 1.0, started="1")]
    assert list(newest_run([*older, *records])) == records
