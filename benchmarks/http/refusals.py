"""With every running slot held and a queue of 4, 46 of 50 more requests are refused at once and hold nothing.

python benchmarks/http/refusals.py
"""

import argparse
import asyncio
import json
import sys
import time

from own_server import serving, sum_of
from raw_http import Exchange, ask

NUM_SLOTS = 4
QUEUE = 4
NUM_MORE = 50
LIMIT_S = 0.1
ENDLESS = {"prompt": "Once upon a time", "max_tokens": 3500, "ignore_eos": True, "stream": True}


async def hold(server):
    """Streams that take every running slot."""
    exchanges = [await Exchange.begin(server.url, "/v1/completions", ENDLESS) for _ in range(NUM_SLOTS)]
    for exchange in exchanges:
        await exchange.answer()
        await anext(exchange.events())
    return exchanges


async def one_more(server, index):
    began = time.monotonic()
    answer = await ask(server.url, "/v1/completions", {"prompt": f"Request {index}", "max_tokens": 2})
    return answer, time.monotonic() - began


async def until_queue_is_full(server):
    """The metrics then: those who are not refused may still be on their way into the queue."""
    for _ in range(50):
        metrics = await server.metrics()
        if sum_of(metrics, "vllm:num_requests_waiting") >= QUEUE:
            break
        await asyncio.sleep(0.1)
    return metrics


async def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--log", default="refusals-server.log")
    arguments = parser.parse_args()
    options = ("--max-num-seqs", str(NUM_SLOTS), "--max-waiting-requests", str(QUEUE))
    async with serving(*options, log=arguments.log) as server:
        holding = await hold(server)
        tasks = [asyncio.create_task(one_more(server, index)) for index in range(NUM_MORE)]
        refused, queued = [], set(tasks)
        while len(refused) < NUM_MORE - QUEUE:
            done, queued = await asyncio.wait(queued, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            refused += [task.result() for task in done]
        metrics = await until_queue_is_full(server)
        for exchange in holding:
            exchange.hang_up()
        served = await asyncio.gather(*queued)
        idle = await server.until_idle()
    result = {
        "refused": len(refused),
        "statuses": sorted({answer.status for answer, _ in refused}),
        "with_retry_after": sum("retry-after" in answer.headers for answer, _ in refused),
        "slowest_refusal_ms": round(max(seconds for _, seconds in refused) * 1000, 1),
        "waiting_then": sum_of(metrics, "vllm:num_requests_waiting"),
        "running_then": metrics["vllm:num_requests_running"],
        "served_afterwards": sum(answer.status == 200 for answer, _ in served),
        "active_blocks_at_the_end": idle['octavo:kv_blocks{state="active"}'],
    }
    print(json.dumps(result, indent=1))
    is_right = (
        result["refused"] == result["with_retry_after"] == NUM_MORE - QUEUE
        and result["statuses"] in ([429], [503])
        and result["slowest_refusal_ms"] <= LIMIT_S * 1000
        and result["waiting_then"] == result["served_afterwards"] == QUEUE
        and not result["active_blocks_at_the_end"]
    )
    sys.exit(not is_right)


if __name__ == "__main__":
    asyncio.run(main())
