"""A server under hostile load: 64 clients that stream, hang up, send nonsense and ask for too much.

    python benchmarks/http/soak.py --minutes 5

Throughout, one more client asks for the same answer again and again and compares it bit by bit, logprobs
included. At the end: no status of 500 or more but 503 with Retry-After, every block free again, memory no
larger than halfway. The cache is small on purpose, so that requests preempt each other.
"""

import argparse
import asyncio
import collections
import json
import random
import statistics
import sys
import time

from own_server import serving
from raw_http import Exchange, ask

NUM_CLIENTS = 64
MEMORY_GROWTH_MB = 16.0
"""More than this between the third quarter and the last is a leak: the server holds a few hundred in all."""
WORDS = [
    "the",
    "of",
    "cat",
    "sea",
    "blue",
    "house",
    "when",
    "under",
    "light",
    "seven",
    "river",
    "stone",
    "paper",
    "song",
    "night",
]
SYSTEM = "You are a careful assistant. Answer in one line. " * 8
CANARY = {
    "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "A colour of the sea?"}],
    "max_tokens": 16, "temperature": 0.7, "seed": 11, "logprobs": True, "top_logprobs": 3,
}  # fmt: skip
NONSENSE = (
    ("/v1/chat/completions", b"{"),
    ("/v1/chat/completions", b"\xff\xfe"),
    ("/v1/chat/completions", {"messages": []}),
    ("/v1/chat/completions", {"messages": "hello"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "temperature": -1}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "tool_choice": "required"}),
    ("/v1/completions", {"prompt": "a", "n": 10**9}),
    ("/v1/completions", {"prompt": [10**9]}),
    ("/v1/completions", {"prompt": "a", "model": "nobody"}),
    ("/v1/completions", {"prompt": "a", "logit_bias": {"x": 1}}),
    ("/v1/completions", {"prompt": "\ud800"}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 0}),
    ("/v1/completions", {"prompt": "a", "stop": ["x"] * 10_000}),
    ("/v1/embeddings", {"input": []}),
    ("/v1/nothing", {"prompt": "a"}),
    ("/tokenize", {"prompt": 5}),
)


class Soak:
    """The clients and what they saw."""

    def __init__(self, server, seed):
        self.server = server
        self.random = random.Random(seed)
        self.seen = collections.Counter()
        self.problems = []
        self.memory = []
        self.first_canary = None

    def text(self, low, high):
        return " ".join(self.random.choices(WORDS, k=self.random.randint(low, high)))

    def request(self, **options):
        """Path and body of a proper request; half of them share a prefix."""
        options = {
            "max_tokens": self.random.randint(1, 48),
            "temperature": self.random.choice((0, 1)),
            **options,
        }
        if self.random.random() < 0.5:
            messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": self.text(1, 40)}]
            return "/v1/chat/completions", {"messages": messages, **options}
        return "/v1/completions", {
            "prompt": self.text(1, 200),
            "n": self.random.choice((1, 1, 1, 3)),
            **options,
        }

    def note(self, kind, answer, *, is_wrong=False):
        """Count an answer; tell of one that should not have been."""
        self.seen[f"{kind} {answer.status}"] += 1
        is_refusal = answer.status in (429, 503) and "retry-after" in answer.headers
        is_expected = is_refusal or (400 <= answer.status < 500 if is_wrong else answer.status == 200)
        if not is_expected:
            self.problems.append(f"{kind}: {answer.status} {answer.body[:200]!r}")
        return answer.status == 200

    async def stream(self):
        path, body = self.request(stream=True)
        exchange = await Exchange.begin(self.server.url, path, body)
        answer = await exchange.answer()
        if self.note("stream", answer):
            events = [event async for event in exchange.events()]
            if events[-1:] != [b"[DONE]"] or any(event.startswith(b'{"error"') for event in events):
                self.problems.append(f"stream ended with {events[-2:]}")
        exchange.hang_up()

    async def stream_and_hang_up(self):
        path, body = self.request(stream=True, max_tokens=400, ignore_eos=True)
        exchange = await Exchange.begin(self.server.url, path, body)
        num_events = self.random.randint(0, 12)
        if num_events and self.note("hang up", await exchange.answer()):
            async for _ in exchange.events():
                num_events -= 1
                if not num_events:
                    break
        exchange.hang_up()

    async def ask_and_hang_up(self):
        path, body = self.request(max_tokens=400, ignore_eos=True)
        exchange = await Exchange.begin(self.server.url, path, body)
        await asyncio.sleep(self.random.random() / 2)
        self.seen["hang up early"] += 1
        exchange.hang_up()

    async def send_nonsense(self):
        path, body = self.random.choice(NONSENSE)
        self.note(f"nonsense {path}", await ask(self.server.url, path, body), is_wrong=True)

    async def ask_for_too_much(self):
        prompt = [self.random.randint(100, 1000)] * self.random.randint(10_000, 100_000)
        self.note(
            "too long", await ask(self.server.url, "/v1/completions", {"prompt": prompt}), is_wrong=True
        )

    async def client(self, deadline):
        """One client, one thing after the other."""
        things = (
            self.stream,
            self.stream_and_hang_up,
            self.ask_and_hang_up,
            self.send_nonsense,
            self.ask_for_too_much,
        )
        while time.monotonic() < deadline:
            [thing] = self.random.choices(things, weights=(50, 25, 10, 12, 3))
            try:
                await asyncio.wait_for(thing(), 300)
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                self.problems.append(f"{thing.__name__}: {error!r}")

    async def canary(self, deadline):
        """The same request again and again; it must get the same bits."""
        while time.monotonic() < deadline or self.seen["canary 200"] < 2:
            answer = await ask(self.server.url, "/v1/chat/completions", CANARY)
            if self.note("canary", answer):
                [choice] = answer.json()["choices"]
                self.first_canary = self.first_canary or choice
                if choice != self.first_canary:
                    self.problems.append(f"the canary changed: {choice['message']}")
            await asyncio.sleep(0.5)

    async def watch_memory(self, deadline):
        while time.monotonic() < deadline:
            self.memory.append(self.server.memory_mb())
            await asyncio.sleep(1)

    async def run(self, minutes):
        """All clients for so long; what there is to report."""
        deadline = time.monotonic() + minutes * 60
        clients = (self.client(deadline) for _ in range(NUM_CLIENTS))
        await asyncio.gather(*clients, self.canary(deadline), self.watch_memory(deadline))
        metrics = await self.server.until_idle()
        active = metrics['octavo:kv_blocks{state="active"}']
        if active:
            self.problems.append(f"{active:.0f} blocks are still held")
        quarter = len(self.memory) // 4
        early = statistics.median(self.memory[2 * quarter : 3 * quarter])
        late = statistics.median(self.memory[3 * quarter :])
        if late - early > MEMORY_GROWTH_MB:
            self.problems.append(f"memory grew from {early:.0f} to {late:.0f} MB")
        return {
            "minutes": minutes,
            "requests": sum(self.seen.values()),
            "canaries": self.seen["canary 200"],
            "preemptions": metrics["vllm:num_preemptions_total"],
            "active_blocks": active,
            "memory_mb": [round(value) for value in self.memory[:: max(1, len(self.memory) // 20)]],
            "answers": dict(sorted(self.seen.items())),
            "problems": self.problems[:20],
            "num_problems": len(self.problems),
        }


async def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", default="soak-server.log")
    arguments = parser.parse_args()
    options = ("--kv-cache-memory", "40MiB", "--max-num-seqs", "32", "--max-model-len", "1024")
    async with serving(*options, log=arguments.log) as server:
        result = await Soak(server, arguments.seed).run(arguments.minutes)
    print(json.dumps(result, indent=1))
    sys.exit(bool(result["problems"]))


if __name__ == "__main__":
    asyncio.run(main())
