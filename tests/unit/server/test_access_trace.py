"""The access trace: enough to replay the load, nothing of what was said."""

import json
import stat

import pytest
from finished_requests import finished_request

from octavo.errors import ConfigError
from octavo.server.access_trace import AccessTrace

SALT = b"salt"


def write(path, *requests, salt=SALT, **options):
    trace = AccessTrace(path, 16, clock=lambda: 90.0, salt=salt, **options)
    for request in requests:
        trace.write(request)
    trace.close()
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_row(tmp_path):
    (row,) = write(tmp_path / "trace.jsonl", finished_request())
    hash_ids = row.pop("hash_ids")
    assert row == {
        "timestamp": 10_000,
        "input_length": 40,
        "output_length": 4,
        "block_size": 16,
        "cached_tokens": 16,
        "cause": "stop",
    }
    assert len(hash_ids) == 2
    assert all(0 <= hash_id < 2**48 for hash_id in hash_ids)


def test_equal_blocks_have_equal_ids_in_one_trace_and_others_in_the_next(tmp_path):
    requests = [finished_request(), finished_request(block_hashes=[b"first" * 6, b"third" * 6])]
    first, second = (row["hash_ids"] for row in write(tmp_path / "a", *requests))
    assert first[0] == second[0]
    assert first[1] != second[1]
    drawn = [write(tmp_path / name, requests[0], salt=None)[0]["hash_ids"] for name in ("b", "c")]
    assert len({first[0], drawn[0][0], drawn[1][0]}) == 3


def test_only_the_owner_can_read_it(tmp_path):
    write(tmp_path / "trace", finished_request())
    assert stat.S_IMODE((tmp_path / "trace").stat().st_mode) == 0o600


def test_an_earlier_trace_is_kept(tmp_path):
    path = tmp_path / "trace"
    write(path, finished_request(), finished_request())
    assert len(write(path, finished_request())) == 1
    (earlier,) = [file for file in tmp_path.iterdir() if file != path]
    assert len(earlier.read_text().splitlines()) == 2


def test_a_full_trace_ends_with_a_whole_row_and_a_warning(tmp_path, caplog):
    rows = write(tmp_path / "trace", *[finished_request()] * 9, max_bytes=400)
    assert len(rows) == 2
    assert [record.getMessage().split(" is full")[0] for record in caplog.records] == [
        f"the access trace {tmp_path / 'trace'}"
    ]


@pytest.mark.parametrize("name", ["no/such/folder/trace", "."])
def test_a_place_that_cannot_be_written_is_a_configuration_error(tmp_path, name):
    with pytest.raises(ConfigError, match=r"access_trace is .*, which cannot be written"):
        AccessTrace(tmp_path / name, 16)
