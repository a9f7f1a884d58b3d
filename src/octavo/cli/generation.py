"""What `octavo generate` does once its options are read."""

from collections.abc import Sequence

from rich.rule import Rule

from octavo.cli.prompting import read_prompts
from octavo.cli.session import session
from octavo.cli.streaming import InOrderPrinter, Run, run_requests
from octavo.cli.summary import summary
from octavo.cli.terminal import stderr_console, write_text
from octavo.config import EngineConfig
from octavo.engine.engine import Engine
from octavo.engine.prompt import encode_chat, encode_prompt
from octavo.kv.manager import KVCacheManager
from octavo.outputs import RequestOutput
from octavo.sampling_params import SamplingParams


def generate_outputs(
    config: EngineConfig,
    prompts: Sequence[str],
    sampling: SamplingParams,
    *,
    raw: bool,
    streams: bool,
    quiet: bool,
) -> list[RequestOutput]:
    """Answer the prompts, or stdin; with ``streams`` the text is printed as it comes.

    Raises:
        OctavoError: a prompt, an option or the model is at fault.
    """
    texts = read_prompts(prompts)
    with session(config, quiet=quiet) as built:
        request_ids = _add_requests(built.engine, texts, sampling, raw=raw)
        order = [(request_id, index) for request_id in request_ids for index in range(sampling.n)]
        run = _run(built.engine, built.kv, order, num_choices=sampling.n, streams=streams, quiet=quiet)
        if not quiet:
            report = summary(run, spec=built.kv_spec, num_blocks=built.config.num_blocks)
            stderr_console().print(report)
    return [run.outputs[request_id] for request_id in request_ids]


def _add_requests(engine: Engine, texts: Sequence[str], sampling: SamplingParams, *, raw: bool) -> list[str]:
    request_ids = []
    for number, text in enumerate(texts, start=1):
        request_id = str(number)
        if raw:
            prompt = encode_prompt(text, engine.tokenizer)
        else:
            prompt = encode_chat([{"role": "user", "content": text}], engine.tokenizer)
        engine.add_request(request_id, prompt.token_ids, sampling, prompt=text, adapter=engine.adapters.first)
        request_ids.append(request_id)
    return request_ids


def _run(
    engine: Engine,
    kv: KVCacheManager,
    order: Sequence[tuple[str, int]],
    *,
    num_choices: int,
    streams: bool,
    quiet: bool,
) -> Run:
    has_headings = len(order) > 1 and not quiet

    def begin(index: int) -> None:
        if has_headings:
            request_id, choice = order[index]
            title = f"request {request_id}" + (f", continuation {choice}" if num_choices > 1 else "")
            stderr_console().print(Rule(title, align="left", style="dim"))

    printer = InOrderPrinter(order, write=write_text, begin=begin) if streams else None
    request_ids = list(dict.fromkeys(request_id for request_id, _ in order))
    on_update = printer.update if printer else lambda _outputs: None
    return run_requests(engine, kv, request_ids, on_update=on_update)
