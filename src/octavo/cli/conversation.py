"""What `octavo chat` does once its options are read."""

import sys
from collections.abc import Iterator
from itertools import count

from rich.console import Console
from rich.markup import escape

from octavo.cli.session import session
from octavo.cli.streaming import InOrderPrinter, Run, run_requests
from octavo.cli.terminal import print_error, stderr_console, write_text
from octavo.config import EngineConfig
from octavo.engine.engine import Engine
from octavo.engine.prompt import encode_chat
from octavo.engine.tokenizer import ChatMessage
from octavo.errors import ConfigError, RequestError
from octavo.kv.manager import KVCacheManager
from octavo.sampling_params import SamplingParams

_HELP = (
    "/reset forgets the conversation, /quit or /exit ends it, /help shows this line. Ctrl-C stops an answer."
)
_ENDS = ("/quit", "/exit")


class Conversation:
    """Turns so far, and how to get the next one.

    Args:
        engine: with no other request under way.
        kv: the engine's cache.
        sampling: for every answer; one continuation.
        system: what the model is told first.
        console: where everything but the answers goes; ``None`` for nowhere.
    """

    def __init__(
        self,
        engine: Engine,
        kv: KVCacheManager,
        sampling: SamplingParams,
        *,
        system: str | None,
        console: Console | None,
    ) -> None:
        self._engine = engine
        self._kv = kv
        self._sampling = sampling
        self._console = console
        self._opening: list[ChatMessage] = [] if system is None else [{"role": "system", "content": system}]
        self._turn_numbers = count(1)
        self.messages: list[ChatMessage] = list(self._opening)

    def reset(self) -> None:
        """Forget what was said; the cache keeps it until its blocks are needed."""
        self.messages = list(self._opening)

    def answer(self, text: str) -> None:
        """Take a turn, stream the model's, and remember both.

        Raises:
            RequestError: it got too long, or the template refuses it; the turn is not remembered.
            KeyboardInterrupt: Ctrl-C; the turn is not remembered.
        """
        turn: ChatMessage = {"role": "user", "content": text}
        token_ids = encode_chat([*self.messages, turn], self._engine.tokenizer).token_ids
        request_id = f"turn-{next(self._turn_numbers)}"
        self._engine.add_request(request_id, token_ids, self._sampling, adapter=self._engine.adapters.first)
        printer = InOrderPrinter([(request_id, 0)], write=write_text)
        run = run_requests(self._engine, self._kv, [request_id], on_update=printer.update)
        output = run.outputs[request_id]
        self.messages += [turn, {"role": "assistant", "content": output.outputs[0].text}]
        self.say(turn_line(run, request_id))

    def say(self, line: str) -> None:
        """A line about the conversation."""
        if self._console is not None:
            self._console.print(f"[dim]{escape(line)}[/]")


def turn_line(run: Run, request_id: str) -> str:
    """Cached tokens, generated tokens and speed of one turn."""
    output = run.outputs[request_id]
    choice = output.outputs[0]
    seconds = run.timing.seconds_after_first_token
    rate = (len(choice.token_ids) - 1) / seconds if seconds else 0.0
    ending = " (stopped at --max-tokens)" if choice.finish_reason == "length" else ""
    return (
        f"{output.num_cached_tokens} of {len(output.prompt_token_ids)} prompt tokens cached, "
        f"first token after {run.timing.seconds_to_first_token:.2f} s, "
        f"{len(choice.token_ids)} tokens at {rate:.1f}/s{ending}"
    )


def converse(config: EngineConfig, sampling: SamplingParams, *, system: str | None, quiet: bool) -> None:
    """Read turns until /quit, /exit or the end of stdin.

    Raises:
        ConfigError: more than one continuation is asked for.
        KeyboardInterrupt: Ctrl-C at the prompt, or anywhere when stdin is no terminal.
    """
    if sampling.n != 1:
        raise ConfigError(f"a conversation has one continuation per turn, got --n {sampling.n}; leave it out")
    is_interactive = sys.stdin.isatty()
    with session(config, quiet=quiet) as built:
        console = None if quiet else stderr_console()
        conversation = Conversation(built.engine, built.kv, sampling, system=system, console=console)
        if is_interactive:
            conversation.say(_HELP)
        for line in _turns(is_interactive=is_interactive):
            if line in _ENDS:
                return
            _take(conversation, line, is_interactive=is_interactive)


def _take(conversation: Conversation, line: str, *, is_interactive: bool) -> None:
    """One line: a command, or a turn that may fail or be stopped without ending the conversation."""
    if line == "/reset":
        conversation.reset()
        conversation.say("The conversation starts over.")
    elif line == "/help" or line.startswith("/"):
        conversation.say(_HELP)
    else:
        try:
            conversation.answer(line)
        except RequestError as error:
            print_error(f"{error}; /reset starts over")
        except KeyboardInterrupt:
            if not is_interactive:
                raise
            write_text("\n")
            conversation.say("Stopped; this turn is forgotten.")


def _turns(*, is_interactive: bool) -> Iterator[str]:
    """What is typed or piped, without blank lines."""
    if is_interactive:
        import readline  # noqa: F401  # gives input() line editing and history

    while True:
        try:
            line = input("> " if is_interactive else "").strip()
        except EOFError:
            return
        if line:
            yield line
