"""What the oracle tests share: random steps, random weights, one-op programs, and the comparison.

from harness.check import check_op
from harness.op_cases import linear_case

check_op(make_interpreter, linear_case(rng, ...), activations="int8")
"""
