"""An `LLM` on a tiny random model and the reference kernels."""

import pytest

from octavo.llm import LLM


@pytest.fixture(scope="module")
def make_llm(tiny_llama):
    opened = []

    def make(**options):
        defaults = {"kernels": "reference", "num_blocks": 64, "max_model_len": 256}
        opened.append(LLM(model=tiny_llama(), **{**defaults, **options}))
        return opened[-1]

    yield make
    for llm in opened:
        llm.close()
