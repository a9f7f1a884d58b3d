from octavo.kv.in_flight import PrefixesInFlight


def test_what_is_still_to_be_computed_is_in_flight():
    prefixes = PrefixesInFlight()
    prefixes.start("a", [b"0", b"1", b"2", b"3"], 1)
    assert [block_hash in prefixes for block_hash in (b"0", b"1", b"2", b"3")] == [False, True, True, True]
    assert len(prefixes) == 3
    prefixes.advance("a", 1)
    assert b"1" in prefixes
    prefixes.advance("a", 3)
    assert [block_hash in prefixes for block_hash in (b"1", b"2", b"3")] == [False, False, True]
    assert prefixes.request_ids() == {"a"}
    prefixes.advance("a", 9)
    assert len(prefixes) == 0
    assert prefixes.request_ids() == set()


def test_nothing_left_to_compute_is_not_registered():
    prefixes = PrefixesInFlight()
    prefixes.start("a", [b"0"], 1)
    prefixes.start("b", [], 0)
    assert prefixes.request_ids() == set()
    prefixes.advance("a", 1)
    prefixes.stop("a")
    assert len(prefixes) == 0


def test_a_prefix_is_in_flight_while_anyone_computes_it():
    prefixes = PrefixesInFlight()
    for request_id in ("a", "b", "c"):
        prefixes.start(request_id, [b"0", b"1"], 0)
    prefixes.stop("a")
    prefixes.advance("b", 1)
    assert b"0" in prefixes
    prefixes.stop("c")
    assert b"0" not in prefixes
    assert b"1" in prefixes
    prefixes.stop("b")
    assert len(prefixes) == 0
