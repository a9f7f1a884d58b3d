"""Building programs, and sharing storage between buffers that do not live together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kernels.dataflow import assign_storage, buffer_written, buffers_read
from octavo.kernels.program import (
    Buffer,
    Program,
    RopeSpec,
    RopeStyle,
)
from octavo.kernels.weight import Quantization, Weight

ROPE = RopeSpec(RopeStyle.HALF_SPLIT, 4, (1.0, 0.1))


def weight(*shape):
    return Weight("w", shape, Quantization.F32, np.zeros(0, np.uint8))  # only its shape is looked at


@st.composite
def random_programs(draw):
    """Inputs first, then ops over whichever buffers fit; widths are few, so that storage can be shared."""
    program = Program()
    widths = st.sampled_from([4, 8])
    for _ in range(draw(st.integers(1, 3))):
        program.input(draw(widths))
    for _ in range(draw(st.integers(0, 12))):
        x = draw(st.sampled_from(program.buffers))
        match draw(st.sampled_from(["norm", "linear", "add", "gate", "embed"])):
            case "norm":
                program.rms_norm(x, weight(x.width), eps=1e-5)
            case "linear":
                program.linear(x, weight(draw(widths), x.width))
            case "add":
                to = draw(st.sampled_from(program.buffers))
                program.linear(x, weight(to.width, x.width), add_to=to)
            case "gate":
                program.gated_activation(program.linear(x, weight(2 * x.width, x.width)))
            case "embed":
                program.embed(weight(10, draw(widths)))
    if draw(st.booleans()):
        x = draw(st.sampled_from(program.buffers))
        program.logits(x, weight(10, x.width))
    return program


@settings(deadline=None, max_examples=300)
@given(random_programs())
def test_a_buffer_holds_what_was_written_until_its_last_use(program):
    """Run the program on storage slots: every op must find the buffers that it reads in them."""
    slots = assign_storage(program.ops)
    content: dict[int, int] = {}  # slot -> index of the buffer that lies in it
    for op in program.ops:
        for buffer in buffers_read(op):
            assert content[slots[buffer.index]] == buffer.index
        if (out := buffer_written(op)) is not None:
            content[slots[out.index]] = out.index


@settings(deadline=None, max_examples=300)
@given(random_programs())
def test_an_output_never_shares_storage_with_what_its_op_reads(program):
    slots = assign_storage(program.ops)
    for op in program.ops:
        out = buffer_written(op)
        for buffer in buffers_read(op):
            assert out is None or buffer == out or slots[buffer.index] != slots[out.index]


@settings(deadline=None, max_examples=300)
@given(random_programs())
def test_a_slot_has_one_width_and_slots_are_numbered_without_gaps(program):
    slots = assign_storage(program.ops)
    widths: dict[int, set[int]] = {}
    for buffer in program.buffers:
        widths.setdefault(slots[buffer.index], set()).add(buffer.width)
    assert all(len(found) == 1 for found in widths.values())
    assert sorted(widths) == list(range(len(widths)))


def test_a_deep_program_needs_no_more_storage_than_a_shallow_one():
    def num_slots(num_layers):
        program = Program()
        x = program.embed(weight(10, 8))
        for _ in range(num_layers):
            h = program.rms_norm(x, weight(8), eps=1e-5)
            gate_up = program.linear(h, weight(16, 8), weight(16, 8))
            x = program.linear(program.gated_activation(gate_up), weight(8, 16), add_to=x)
        program.logits(x, weight(10, 8))
        return len(set(assign_storage(program.ops).values()))

    assert num_slots(30) == num_slots(2)


def test_methods_return_buffers_of_the_width_their_op_makes():
    program = Program()
    x = program.embed(weight(100, 8))
    qkv = program.linear(x, weight(8, 8), weight(4, 8), weight(4, 8), bias=weight(16))
    q = program.rope_and_write_kv(qkv, layer=0, num_heads=2, num_kv_heads=1, head_dim=4, rope=ROPE)
    attention = program.paged_attention(q, layer=0, num_kv_heads=1, head_dim=4, scale=0.5)
    assert [x.width, qkv.width, q.width, attention.width] == [8, 16, 8, 8]
    assert program.gated_activation(qkv).width == 8
    assert program.linear(attention, weight(8, 8), add_to=x) is x
    assert program.ops[3].num_heads == 2


def test_the_head_is_the_last_op_or_nothing():
    program = Program()
    assert program.head is None
    x = program.embed(weight(100, 8))
    assert program.head is None
    program.logits(x, weight(100, 8), soft_cap=30.0)
    assert program.head is program.ops[-1]


X = Buffer(0, 8)


@pytest.mark.parametrize(
    ("append", "message"),
    [
        (lambda p: p.rms_norm(X, weight(4), eps=1e-5), r"norm weight w has shape \(4,\), rows have 8"),
        (lambda p: p.linear(X, weight(3, 9)), "weight w takes 9 columns, rows have 8"),
        (lambda p: p.linear(X, weight(3, 8), add_to=X), "cannot add 3 columns to another width"),
        (lambda p: p.logits(X, weight(3, 9)), "head w takes 9 columns, rows have 8"),
        (
            lambda p: p.rope_and_write_kv(X, layer=0, num_heads=2, num_kv_heads=1, head_dim=4, rope=ROPE),
            "qkv rows have 8 columns",
        ),
        (
            lambda p: p.paged_attention(X, layer=0, num_kv_heads=3, head_dim=4, scale=1.0),
            "2 heads cannot share 3 K/V heads",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(append, message):
    with pytest.raises(ValueError, match=message):
        append(Program())
