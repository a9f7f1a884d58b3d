"""The load generator, in a process of its own: jobs as lines of JSON on stdin, answers on stdout.

Apart from everything else, so that its processor time can be told, and nobody's interpreter holds it up.
"""

import asyncio
import json
import sys
import time

from stream_client import Answer, ServerError, StreamClient


async def run_job(job: dict) -> list[Answer]:
    """Send every prompt at its time, and wait for all answers."""
    client = StreamClient(job["url"], job["model"])
    start = time.perf_counter() + 0.05
    sending = [
        client.complete(prompt, job["output_tokens"], start + offset)
        for prompt, offset in zip(job["prompts"], job["offsets"], strict=True)
    ]
    return await asyncio.gather(*sending)


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        cpu_before = time.process_time()
        try:
            answers = asyncio.run(run_job(job))
        except (ServerError, OSError, EOFError) as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
            continue
        start = min(answer.due_at for answer in answers)
        print(
            json.dumps(
                {
                    "wall": max(answer.part_times[-1] for answer in answers) - start,
                    "client_cpu": time.process_time() - cpu_before,
                    "late": max(answer.sent_at - answer.due_at for answer in answers),
                    "first": [answer.first for answer in answers],
                    "gaps": [gap for answer in answers for gap in answer.gaps],
                    "tokens": sum(answer.num_tokens for answer in answers),
                    "cached": [answer.num_cached_tokens for answer in answers],
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
