"""How far a float32 interpreter may be from the float64 reference, op by op. The one place with such numbers.

An error is measured against the largest magnitude of its row of the reference's result: sums cancel, so an
element near zero carries the rounding of the terms that made it.
"""

SMALLEST_MAGNITUDE = 1e-2
"""Rows of smaller numbers are measured against this: their terms had about size 1."""

TOLERANCES = {
    "embed": 1.2e-7,  # one product, or none
    "rms_norm": 2e-6,  # the sum's error is halved by the root
    "linear": 1e-5,  # up to a few thousand sequential additions, each off by 2**-24 of the running sum
    "low_rank": 5e-5,  # a sum of up to 256 sums, in rows that may be one element wide
    "rope": 3e-7,  # two products and a sum
    "attention": 1e-5,  # an approximate exp, and sums over tokens and head elements
    # A score is cap times a tanh near 1, off by 2**-24 or two: with a cap of 50 by 6e-6, and so is its
    # weight. Where random values cancel, 5,900 cases stay below 2.3e-5 of what is left.
    "attention_capped": 5e-5,
    # Over an int8 cache native softmax weights have 8 bits, the reference has none rounded: half a step
    # each, 1/510 of the tile's largest. Where random values cancel, 300 random cases stay below 1.6e-2
    # of what is left. The exact bits are in test_native_attention.py.
    "attention_int8": 3e-2,
    "gated_activation": 2e-6,  # an approximate exp
    "logits": 1e-5,  # a linear
    "experts": 3e-5,  # two linears and a gated activation, weighted by an approximate exp
}

KV_TOLERANCES = {
    "float32": 3e-7,
    "float16": 2.0**-10,  # a value beside a rounding boundary may fall on its other side: one step
    "int8": 1.01 / 127,  # the same
}

ALL_IN_FLOAT64 = 1e-12
"""Between two computations in float64 that only differ in the order of their sums."""
