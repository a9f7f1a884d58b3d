"""A mixture of experts as an `OpCase`."""

import numpy as np

from harness.op_cases import OpCase, random_rows
from harness.steps import rows_only_step
from harness.weights import random_weight
from octavo.kernels.program import Activation, Experts, Program
from octavo.kernels.weight import Quantization


def random_experts(
    rng: np.random.Generator,
    *,
    num_experts: int,
    width: int,
    intermediate: int,
    top_k: int,
    quantization: Quantization = Quantization.F32,
    normalized: bool = True,
    activation: Activation = Activation.SILU,
) -> Experts:
    """Experts with weights of one quantisation."""

    def weights(rows: int, columns: int):
        return tuple(random_weight(rng, (rows, columns), quantization) for _ in range(num_experts))

    gate, up = weights(intermediate, width), weights(intermediate, width)
    return Experts(gate, up, weights(width, intermediate), top_k, normalized, activation)


def experts_case(rng: np.random.Generator, experts: Experts, *, num_tokens: int = 5) -> OpCase:
    """Rows whose router logits differ clearly, added to rows of their own."""
    num_experts, width = len(experts.gate), experts.gate[0].shape[1]
    program = Program()
    x, router, residual = program.input(width), program.input(num_experts), program.input(width)
    output = program.mixture_of_experts(x, router, experts, add_to=residual)
    logits = rng.permuted(np.tile(np.linspace(-3, 3, num_experts), (num_tokens, 1)), axis=1)
    return OpCase(
        op="experts",
        program=program,
        step=rows_only_step(num_tokens),
        inputs=[
            (x, random_rows(rng, num_tokens, width)),
            (router, logits.astype(np.float32)),
            (residual, random_rows(rng, num_tokens, width)),
        ],
        output=output,
    )
