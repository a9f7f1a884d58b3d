"""Native paged attention: near the reference, and the same bits whatever surrounds a row."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from harness.check import check_op
from harness.conversations import (
    DEFAULT_HEADS,
    ISAS,
    Conversation,
    Setting,
    assert_same_bits,
    attend,
    conversation,
    native,
)
from harness.frozen_attention import attention, float_tile, int8_tile
from harness.op_cases import HeadShape, attention_case
from harness.steps import Part, random_parts
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kernels.int8_vectors import quantize_vectors
from octavo.kernels.kv_quantization import quantize_keys, quantize_queries

KV_DTYPES = ("float16", "float32", "int8")


def head_shapes(head_dims):
    return st.builds(
        lambda num_kv_heads, group_size, head_dim: HeadShape(
            num_heads=num_kv_heads * group_size, num_kv_heads=num_kv_heads, head_dim=head_dim
        ),
        st.integers(1, 3),
        st.sampled_from([1, 2, 3, 4, 7, 8]),
        st.sampled_from(head_dims),
    )


heads_and_kv_dtypes = st.one_of(
    st.tuples(head_shapes([8, 16, 24, 64, 80, 96, 128, 256]), st.sampled_from(["float16", "float32"])),
    st.tuples(head_shapes([16, 32, 48, 64, 80, 96, 128, 256]), st.just("int8")),
)
block_sizes = st.sampled_from([8, 16, 24, 32, 48, 64])
kv_dtypes = st.sampled_from(KV_DTYPES)
every_kv_dtype = pytest.mark.parametrize("kv_dtype", KV_DTYPES)
windows = st.none() | st.sampled_from([1, 5, 63, 64, 65, 100, 300])
soft_caps = st.none() | st.sampled_from([3.0, 50.0])


@pytest.mark.parametrize("isa", ISAS)
@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    heads_and_kv_dtype=heads_and_kv_dtypes,
    block_size=block_sizes,
    window=windows,
    soft_cap=soft_caps,
)
def test_near_the_reference(isa, seed, heads_and_kv_dtype, block_size, window, soft_cap):
    rng = np.random.default_rng(seed)
    heads, kv_dtype = heads_and_kv_dtype
    case = attention_case(
        rng,
        parts=random_parts(rng, num_requests=3, max_seq_len=90),
        heads=heads,
        block_size=block_size,
        kv_dtype=kv_dtype,
        window=window,
        soft_cap=soft_cap,
    )
    check_op(partial(native, isa=isa), case)


@pytest.mark.parametrize("seq_len", [63, 64, 65, 255, 256, 257, 511, 512, 513, 700])
@pytest.mark.parametrize("window", [None, 130])
@every_kv_dtype
def test_near_the_reference_at_the_borders_of_tiles_and_partitions(seq_len, window, kv_dtype):
    heads = HeadShape(num_heads=4, num_kv_heads=2, head_dim=16)
    parts = [Part(seq_len - 1, 1), Part(seq_len - 3, 3), Part(0, seq_len)]
    rng = np.random.default_rng(seq_len)
    check_op(native, attention_case(rng, parts=parts, heads=heads, kv_dtype=kv_dtype, window=window))


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    heads_and_kv_dtype=heads_and_kv_dtypes,
    block_size=block_sizes,
    window=windows,
    soft_cap=soft_caps,
)
def test_every_instruction_set_gives_the_same_bits(seed, heads_and_kv_dtype, block_size, window, soft_cap):
    rng = np.random.default_rng(seed)
    heads, kv_dtype = heads_and_kv_dtype
    parts = random_parts(rng, num_requests=2, max_seq_len=40)
    talks = [conversation(seed + i, part.seq_len, heads) for i, part in enumerate(parts)]
    setting = Setting(block_size=block_size, kv_dtype=kv_dtype, window=window, soft_cap=soft_cap)
    want = attend(talks, parts, replace(setting, isa="generic"), heads)
    for isa in ISAS:
        for got, expected in zip(attend(talks, parts, replace(setting, isa=isa), heads), want, strict=True):
            assert_same_bits(got, expected)


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    cuts=st.sets(st.integers(1, 699), max_size=6),
    block_size=block_sizes,
    num_threads=st.integers(1, 3),
    window=windows,
    kv_dtype=kv_dtypes,
)
def test_chunks_blocks_and_threads_change_no_bit(seed, cuts, block_size, num_threads, window, kv_dtype):
    """One prefill of 700 tokens, against the same tokens in chunks of any size under another setting."""
    talk = conversation(seed, 700)
    [whole] = attend([talk], [Part(0, 700)], Setting(num_threads=1, window=window, kv_dtype=kv_dtype))
    setting = Setting(
        block_size=block_size, num_threads=num_threads, shuffle_seed=seed, window=window, kv_dtype=kv_dtype
    )
    borders = [0, *sorted(cuts), 700]
    for start, end in pairwise(borders):
        [chunk] = attend([talk], [Part(start, end - start)], setting)
        assert_same_bits(chunk, whole[start:end])


@pytest.mark.parametrize("window", [None, 100, 600])
@pytest.mark.parametrize("heads", [DEFAULT_HEADS, HeadShape(num_heads=8, num_kv_heads=1, head_dim=64)])
@pytest.mark.parametrize("kv_dtype", ["float16", "int8"])
def test_a_decode_row_is_the_row_of_a_prefill(window, heads, kv_dtype):
    talk = conversation(1, 1100, heads)
    [whole] = attend([talk], [Part(0, 1100)], Setting(window=window, kv_dtype=kv_dtype), heads)
    for position in (0, 1, 15, 16, 63, 64, 255, 256, 300, 767, 768, 1030, 1099):
        for num_threads in (1, 2, 3):  # more than one: the partitions of long sequences are split
            setting = Setting(window=window, num_threads=num_threads, block_size=32, kv_dtype=kv_dtype)
            [row] = attend([talk], [Part(position, 1)], setting, heads)
            assert_same_bits(row, whole[position : position + 1])


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32), num_threads=st.integers(1, 3), soft_cap=soft_caps, kv_dtype=kv_dtypes)
def test_neighbours_change_no_bit(seed, num_threads, soft_cap, kv_dtype):
    rng = np.random.default_rng(seed)
    parts = random_parts(rng, num_requests=5, max_seq_len=300)
    talks = [conversation(seed + i, part.seq_len) for i, part in enumerate(parts)]
    setting = Setting(num_threads=num_threads, soft_cap=soft_cap, kv_dtype=kv_dtype)
    together = attend(talks, parts, setting)
    for talk, part, rows in zip(talks, parts, together, strict=True):
        [alone] = attend([talk], [part], replace(setting, num_threads=1, shuffle_seed=seed))
        assert_same_bits(alone, rows)


@every_kv_dtype
def test_a_request_of_nans_leaves_the_others_alone(kv_dtype):
    parts = [Part(299, 1), Part(120, 50), Part(700, 1)]
    talks = [conversation(i, part.seq_len) for i, part in enumerate(parts)]
    setting = Setting(kv_dtype=kv_dtype)
    want = attend(talks, parts, setting)
    sick = replace(talks[1], kv=np.full_like(talks[1].kv, np.nan))
    got = attend([talks[0], sick, talks[2]], parts, setting)
    assert_same_bits(got[0], want[0])
    assert np.isnan(got[1]).all()
    assert_same_bits(got[2], want[2])


@every_kv_dtype
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("soft_cap", [None, 5.0])
@pytest.mark.parametrize("sick_part", ["keys", "values", "both"])
def test_a_nan_reaches_only_the_rows_that_see_it(isa, sick_part, soft_cap, kv_dtype):
    """A NaN with a payload, which no arithmetic of the kernels may turn into a number."""
    nan = np.array(0x7FC00001, np.uint32).view(np.float32)
    setting = Setting(isa=isa, window=20, soft_cap=soft_cap, kv_dtype=kv_dtype)
    talk = conversation(0, 200)
    talk = replace(talk, kv=talk.kv.astype(np.float32))
    sick = replace(talk, kv=talk.kv.copy())
    sick.kv[{"keys": slice(0, 1), "values": slice(1, 2), "both": slice(0, 2)}[sick_part], 150] = nan
    [want] = attend([talk], [Part(0, 200)], setting)
    [got] = attend([sick], [Part(0, 200)], setting)
    assert_same_bits(got[:150], want[:150])
    assert np.isnan(got[150:170]).all()
    assert_same_bits(got[170:], want[170:])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("sick_part", [0, 1])
def test_an_infinity_in_an_int8_cache_makes_the_rows_that_see_it_nan(isa, sick_part):
    setting = Setting(isa=isa, window=20, kv_dtype="int8")
    talk = conversation(0, 200)
    sick = replace(talk, kv=talk.kv.copy())
    sick.kv[sick_part, 150, :, 3] = np.inf
    [want], [got] = (attend([each], [Part(0, 200)], setting) for each in (talk, sick))
    assert_same_bits(got[:150], want[:150])
    assert np.isnan(got[150:170]).all()
    assert_same_bits(got[170:], want[170:])


@every_kv_dtype
@pytest.mark.parametrize("isa", ISAS)
def test_values_that_are_all_zero_give_zeros(isa, kv_dtype):
    talk = conversation(0, 150)
    talk.kv[1, :130] = 0
    [rows] = attend([talk], [Part(0, 150)], Setting(isa=isa, kv_dtype=kv_dtype))
    assert not rows[:130].any()
    assert rows[130:].any(axis=-1).all()


@pytest.mark.parametrize("isa", ISAS)
def test_a_token_that_all_look_at_does_not_drown_the_others_in_an_int8_cache(isa):
    """The first token of a text is one: its weight is nearly 1 and its values are nearly 0."""
    rng = np.random.default_rng(0)
    queries = np.abs(rng.normal(1, 0.1, (100, 64)))
    kv = rng.normal(0, 0.1, (2, 100, 1, 64))
    kv[0, 0], kv[1, 0] = 1, 1e-4 * kv[1, 0]
    talk = Conversation(queries.astype(np.float32), kv.astype(np.float16))
    heads = HeadShape(num_heads=1, num_kv_heads=1, head_dim=64)
    of_both = [Setting(isa=isa, kv_dtype=kv_dtype) for kv_dtype in ("int8", "float32")]
    [int8], [float32] = (attend([talk], [Part(99, 1)], setting, heads) for setting in of_both)
    assert np.abs(int8 - float32).max() < 0.02 * np.abs(float32).max()


def test_requests_without_rows_in_the_step_are_passed_over():
    talks = [conversation(i, 40) for i in range(3)]
    parts = [Part(39, 1), Part(40, 0), Part(0, 40)]
    first, none, last = attend(talks, parts, Setting())
    assert len(none) == 0
    assert_same_bits(first, attend(talks[:1], parts[:1], Setting())[0])
    assert_same_bits(last, attend(talks[2:], parts[2:], Setting())[0])


@every_kv_dtype
def test_scores_far_beyond_exp_are_no_problem(kv_dtype):
    talk = conversation(0, 300)
    loud = replace(talk, queries=talk.queries * 1e4)
    [rows] = attend([loud], [Part(0, 300)], Setting(kv_dtype=kv_dtype))
    assert np.isfinite(rows).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("window", "soft_cap"), [(None, None), (200, None), (330, 20.0)])
def test_the_bits_are_those_of_the_frozen_arithmetic(isa, window, soft_cap):
    """For rows at the borders."""
    heads = HeadShape(num_heads=1, num_kv_heads=1, head_dim=16)
    talk = conversation(2, 600, heads)
    [rows] = attend([talk], [Part(0, 600)], Setting(isa=isa, window=window, soft_cap=soft_cap), heads)
    keys, values = talk.kv[:, :, 0].astype(np.float32)
    for position in (0, 17, 63, 64, 255, 256, 300, 511, 599):
        first = 0 if window is None else max(0, position - window + 1)
        add_tile = float_tile(talk.queries[position] * np.float32(0.25), keys, values, soft_cap)
        assert_same_bits(rows[position], attention(add_tile, 16, (first, position + 1)))


@pytest.mark.parametrize("isa", ISAS)
@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    heads=head_shapes([16, 32, 48, 64, 80, 96, 128, 256]),
    num_tokens=st.sampled_from([1, 40, 64, 129, 300, 600]),
    block_size=block_sizes,
    window=windows,
    soft_cap=soft_caps,
)
def test_the_bits_of_an_int8_cache_are_those_of_the_frozen_arithmetic(
    isa, seed, heads, num_tokens, block_size, window, soft_cap
):
    """For some rows of every shape of heads; numbers of a token's head may all be large or small."""
    talk = uneven_conversation(seed, num_tokens, heads)
    setting = Setting(isa=isa, block_size=block_size, window=window, soft_cap=soft_cap, kv_dtype="int8")
    chunk = Part(max(num_tokens - 5, 0), min(num_tokens, 5))
    [rows] = attend([talk], [chunk], setting, heads)
    rng = np.random.default_rng(seed)
    for row in {0, chunk.num_new_tokens - 1}:
        head = int(rng.integers(heads.num_heads))
        position = chunk.num_computed_tokens + row
        got = rows[row].reshape(heads.num_heads, -1)[head]
        assert_same_bits(got, frozen_int8_attention(talk, heads, (position, head), setting))


def uneven_conversation(seed: int, num_tokens: int, heads: HeadShape) -> Conversation:
    talk = conversation(seed, num_tokens, heads)
    sizes = 10.0 ** np.random.default_rng(seed).integers(-3, 2, (2, num_tokens, heads.num_kv_heads, 1))
    return replace(talk, kv=(talk.kv * sizes).astype(np.float16))


def frozen_int8_attention(
    talk: Conversation, heads: HeadShape, place: tuple[int, int], setting: Setting
) -> np.ndarray:
    """Of one position and head [head_dim]."""
    position, head = place
    keys, values = talk.kv[:, :, head // (heads.num_heads // heads.num_kv_heads)]
    query = talk.queries[position].reshape(heads.num_heads, -1)[head]
    add_tile = int8_tile(
        quantize_queries(query, heads.head_dim**-0.5),
        quantize_keys(keys),
        quantize_vectors(values),
        setting.soft_cap,
    )
    first = 0 if setting.window is None else max(0, position - setting.window + 1)
    return attention(add_tile, heads.head_dim, (first, position + 1))
