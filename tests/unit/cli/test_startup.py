"""The table printed at start, and whole commands on a tiny random model."""

import io
import json

import pytest
from rich.console import Console

from octavo.build import build
from octavo.cli.main import run
from octavo.cli.startup import quantizations, startup_table
from octavo.config import CacheConfig, EngineConfig, ModelConfig, RunnerConfig


@pytest.fixture(scope="module")
def built(tiny_llama):
    config = EngineConfig(
        model=ModelConfig(model=str(tiny_llama(quantization="Q4_0", embedding_quantization="Q8_0"))),
        cache=CacheConfig(num_blocks=64),
        runner=RunnerConfig(kernels="reference"),
    )
    built = build(config)
    yield built
    built.engine.close()


def drawn(renderable) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(renderable)
    return console.file.getvalue()


def test_the_table_says_what_was_loaded_and_how_large_the_cache_is(built):
    spec = built.kv_spec
    text = " ".join(drawn(startup_table(built, seconds=1.5)).split())
    assert "tiny Q4_0" in text
    assert f"KV per token {spec.bytes_per_token:,} bytes" in text
    assert spec.formula() in text
    assert "64 blocks × 16 = 1,024 tokens" in text
    assert "2.0 sequences of 512 tokens at once" in text
    assert "reference, numpy, 1 thread" in text
    assert "ready after 1.50 s" in text


def test_the_table_fits_eighty_columns(built):
    assert max(map(len, drawn(startup_table(built, seconds=1.5)).splitlines())) <= 80


def test_quantizations_are_shares_of_the_matrices_and_count_a_tied_head_once(built):
    shares = dict(part.split(" ", 1) for part in quantizations(built.model.program).split(", "))
    assert shares.keys() == {"Q4_0", "Q8_0"}
    assert sum(int(share.removesuffix(" %")) for share in shares.values()) == 100


def test_generate_on_a_real_file(tiny_llama, capsys):
    flags = ["--kernels", "reference", "--num-blocks", "64", "--max-tokens", "4", "--ignore-eos"]
    assert run(["generate", "--json", "--model", str(tiny_llama()), *flags, "the cat", "the cat"]) == 0
    captured = capsys.readouterr()
    first, second = map(json.loads, captured.out.splitlines())
    assert first["outputs"][0]["token_ids"] == second["outputs"][0]["token_ids"]
    assert len(first["outputs"][0]["token_ids"]) == 4
    assert second["num_cached_tokens"] > 0
    assert "KV cache: at most" in captured.err


def test_explain_cuts_prompts_with_a_models_tokenizer(tiny_llama, capsys):
    assert (
        run(["explain", "--plain", "--block-size", "1", "--model", str(tiny_llama()), "the cat", "the"]) == 0
    )
    text = capsys.readouterr().out
    assert "A arrives: none of its 2 tokens is cached" in text
    assert "␣cat" in text


def test_a_missing_model_is_one_line(capsys):
    assert run(["generate", "--model", "/no/such.gguf", "a"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "/no/such.gguf: no such file" in error


def test_a_model_or_chat_template_that_is_not_there_is_a_wrong_command_line(tiny_llama, capsys):
    assert run(["generate", "--model", "", "a"]) == 2
    assert "the model is an empty text" in capsys.readouterr().err
    model = str(tiny_llama())
    assert run(["generate", "--model", model, "--chat-template", "/no/such.jinja", "a"]) == 2
    assert "--chat-template /no/such.jinja: no such file" in capsys.readouterr().err
