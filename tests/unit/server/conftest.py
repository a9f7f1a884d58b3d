"""A server with a real model, tiny and random."""

import pytest
from server_harness import application, serve_in_thread

from octavo.build import build
from octavo.config import EngineConfig
from octavo.server.config import ServerConfig
from octavo.server.state import ServedModel


@pytest.fixture(scope="module")
def tiny_server(tiny_llama):
    """Address, engine, and what was built."""
    options = {"model": str(tiny_llama()), "num_blocks": 96, "max_num_seqs": 8, "kernels": "native"}
    built = build(EngineConfig.from_options(options))
    model = ServedModel(names=("tiny",), root="tiny.gguf", max_model_len=512, fingerprint="0")
    limited = ServerConfig(max_body_bytes=20_000)
    with (
        application(built.engine, built.model.tokenizer, config=limited, model=model) as (app, engine),
        serve_in_thread(app, engine) as url,
    ):
        yield url, engine, built
