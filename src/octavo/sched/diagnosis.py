"""What a scheduler's state means, for alarms, metrics and error messages; it decides nothing."""

from octavo.sched.request import Request
from octavo.sched.scheduler import Scheduler


def num_unfilled_slots(scheduler: Scheduler) -> int:
    """Slots that running requests hold and have no token for: all the waste there is."""
    tables, block_size = scheduler.kv.req_to_blocks, scheduler.kv.block_size
    return sum(
        len(tables[request_id].blocks) * block_size - request.num_computed_tokens
        for request_id, request in scheduler.running.items()
    )


def why_nothing_runs(scheduler: Scheduler) -> str:
    """Why no token was scheduled although there are requests, in one sentence."""
    if scheduler.pause_mode is not None:
        return f"the engine is paused ({scheduler.pause_mode}); resume it"
    if not scheduler.waiting:
        return f"{scheduler.num_running} requests are running, and none of them was given a token"
    return _why_passed_over(scheduler.waiting.peek(), scheduler)


def _why_passed_over(request: Request, scheduler: Scheduler) -> str:
    kv = scheduler.kv
    hit = kv.lookup(request)
    num_needed = -(-request.num_tokens // kv.block_size) - len(hit.blocks)
    if num_needed > kv.num_free_blocks:
        return (
            f"the next request, {request.request_id}, needs {num_needed} blocks for its {request.num_tokens} "
            f"tokens, but {kv.num_free_blocks} of {kv.num_blocks} are free"
        )
    if kv.is_prefix_in_flight(request, hit):
        return f"the next request, {request.request_id}, waits for a prefix that another one is to compute"
    return (
        f"the next request, {request.request_id}, needs {num_needed} blocks, of which there are "
        f"{kv.num_free_blocks}, and was passed over beside {scheduler.num_running} running ones"
    )
