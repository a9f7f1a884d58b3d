"""`octavo generate` and `octavo chat` from the command line to the text, without a model."""

import io
import json
from types import SimpleNamespace

import pytest
from lora_adapters import write_lora

from octavo.cli import conversation, generation, session
from octavo.cli.main import run
from octavo.cli.options import ChatSampling, GenerateSampling


@pytest.fixture
def serve(make_engine, monkeypatch):
    """Let commands build the scripted engine; returns its parts and the configuration that was asked for."""

    def install(answer: str = "yes"):
        parts = make_engine(answer)
        served = SimpleNamespace(engine=parts.engine, kv=parts.kv, config=None)

        def build(config):
            served.config = config
            return served

        monkeypatch.setattr(session, "build", build)
        monkeypatch.setattr(session, "resolve_model_path", lambda name, **_options: name)
        return served

    return install


def pipe(monkeypatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_generate_writes_only_the_text_to_stdout(serve, capsys):
    serve("forty-two")
    assert run(["generate", "--quiet", "How much?"]) == 0
    assert capsys.readouterr() == ("forty-two\n", "")


def test_several_prompts_come_out_in_order(serve, capsys):
    served = serve("yes")
    assert run(["generate", "--quiet", "One?", "Two?"]) == 0
    assert capsys.readouterr().out == "yes\nyes\n"
    assert served.kv.num_free_blocks == served.kv.num_blocks


def test_a_prompt_from_stdin(serve, monkeypatch, capsys):
    serve("yes")
    pipe(monkeypatch, "  Is it?\n")
    assert run(["generate", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prompt"] == "Is it?"


@pytest.mark.parametrize(("flags", "text"), [([], "U:Hm?\nA:"), (["--raw"], "Hm?")])
def test_raw_leaves_the_chat_template_out(flags, text, serve, capsys):
    serve("yes")
    assert run(["generate", "--quiet", "--json", *flags, "Hm?"]) == 0
    assert bytes(json.loads(capsys.readouterr().out)["prompt_token_ids"]).decode() == text


def test_json_is_one_object_per_prompt(serve, capsys):
    serve("yes")
    assert run(["generate", "--quiet", "--json", "--max-tokens", "2", "--seed", "7", "a", "b"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["prompt"], second["prompt"]) == ("a", "b")
    assert first["outputs"][0]["text"] == "ye"
    assert first["outputs"][0]["finish_reason"] == "length"
    assert first["outputs"][0]["seed"] == 7


def test_flags_reach_the_configuration(serve, capsys):
    served = serve("yes")
    flags = ["--block-size", "32", "--no-enable-prefix-caching", "--max-num-seqs", "3", "--num-threads", "2"]
    assert run(["generate", "--quiet", *flags, "--model", "x.gguf", "a"]) == 0
    config = served.config
    assert (config.cache.block_size, config.cache.enable_prefix_caching) == (32, False)
    assert (config.scheduler.max_num_seqs, config.runner.num_threads) == (3, 2)
    assert config.model.model == "x.gguf"


def test_logit_biases_are_pairs():
    parsed = {}

    def record(_config, _prompts, sampling, **_options):
        parsed["bias"] = sampling.logit_bias
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "generate_outputs", record)
        assert run(["generate", "--logit-bias", "42=-5,7=1.5", "a"]) == 0
    assert parsed["bias"] == {42: -5.0, 7: 1.5}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--block-size", "7", "a"], 2, "block_size must be a positive multiple of 8, got 7"),
        (["--logit-bias", "x", "a"], 2, "--logit-bias must be pairs as in 42=-5,7=1.5, got 'x'"),
        (["--top-p", "3", "a"], 2, "top_p must be between 0.0 and 1.0, got 3.0"),
        (["--max-tokens", "0", "a"], 2, "max_tokens must be at least 1, got 0"),
        (["--quiet", "--raw", "x" * 600], 2, "512"),
    ],
)
def test_wrong_values_are_one_line(arguments, code, message, serve, capsys):
    serve("yes")
    assert run(["generate", *arguments]) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


def test_no_prompt_at_all(serve, monkeypatch, capsys):
    serve("yes")
    pipe(monkeypatch, "\n")
    assert run(["generate", "--quiet"]) == 2
    assert "no prompt" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["/quit", "/exit"])
def test_a_conversation_ends_at_either_word(word, serve, monkeypatch, capsys):
    serve("yes")
    pipe(monkeypatch, f"{word}\nnever asked\n")
    assert run(["chat", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_a_piped_conversation_reuses_earlier_turns(serve, monkeypatch, capsys):
    served = serve("A good and long answer.")
    pipe(monkeypatch, "First question, quite long\n\nSecond question\n/reset\n/quit\nnever asked\n")
    monkeypatch.setattr(conversation, "session", lambda config, quiet: session.session(config, quiet=True))
    assert run(["chat", "--temperature", "0"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "A good and long answer.\n" * 2
    turns = [line for line in captured.err.splitlines() if "prompt tokens cached" in line]
    assert turns[0].startswith("0 of 31 prompt tokens cached")
    assert turns[1].startswith("48 of ")
    assert "The conversation starts over." in captured.err
    assert served.kv.num_free_blocks == served.kv.num_blocks


def test_a_turn_that_is_too_long_does_not_end_the_conversation(serve, monkeypatch, capsys):
    serve("yes")
    pipe(monkeypatch, f"{'x' * 600}\nshort\n")
    monkeypatch.setattr(conversation, "session", lambda config, quiet: session.session(config, quiet=True))
    assert run(["chat"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "yes\n"
    assert "/reset starts over" in captured.err


def test_quiet_or_not_an_error_is_told(serve, monkeypatch, capsys):
    serve("yes")
    pipe(monkeypatch, f"{'x' * 600}\nshort\n")
    assert run(["chat", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "yes\n"
    assert captured.err.startswith("error: ")
    assert "/reset starts over" in captured.err


def test_no_stdin_is_an_empty_one(serve, monkeypatch, capsys):
    serve("yes")
    for arguments, code, message in ((["generate"], 2, "stdin is empty"), (["chat", "--quiet"], 0, "")):
        monkeypatch.setattr("sys.stdin", None)
        assert run(arguments) == code
        assert message in capsys.readouterr().err


def test_what_json_does_not_escape_cannot_steer_a_terminal_either(serve, monkeypatch, capsys):
    serve("\x1b\x9b")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert run(["generate", "--quiet", "--json", "a"]) == 0
    out = capsys.readouterr().out
    assert "\\u001b" in out
    assert "\x9b" not in out


def test_a_conversation_has_one_continuation(capsys):
    assert run(["chat", "--n", "2"]) == 2
    assert "one continuation" in capsys.readouterr().err


def test_command_line_defaults_differ_from_the_library_on_purpose():
    assert (GenerateSampling().temperature, GenerateSampling().max_tokens) == (0.0, 128)
    assert (ChatSampling().temperature, ChatSampling().top_p, ChatSampling().max_tokens) == (0.2, 0.9, 512)


def test_generate_answers_with_the_first_adapter(tiny_llama, tmp_path, capsys):
    path = str(tiny_llama())
    common = ["generate", "the cat", "--model", path, "--num-blocks", "40", "--quiet", "--max-tokens", "8"]
    texts = []
    for options in ([], ["--lora", f"style={write_lora(tmp_path / 'adapter')}"]):
        assert run([*common, *options]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] != texts[1]
    assert run([*common, "--lora", f"style={tmp_path}"]) == 2
    assert "lora style:" in capsys.readouterr().err
