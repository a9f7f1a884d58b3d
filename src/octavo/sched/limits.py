"""How long a sequence may get, from the model and from the size of the cache, and how many may wait."""

from octavo.errors import ContextLengthError, InvalidRequestError, QueueFullError, QueueShareError
from octavo.sched.request import Request


class SequenceLimit:
    """The longest sequence that can always be computed when it is alone.

    Whatever is refused here would wait for ever, and whatever passes ends: at ``max_num_tokens`` at
    the latest, and with all blocks for itself if it must. So preemption always ends somewhere.

    Attributes:
        max_num_tokens: prompt and output together; a sequence ends when it reaches it.
    """

    __slots__ = ("_block_size", "_max_model_len", "_num_blocks", "max_num_tokens")

    def __init__(self, max_model_len: int, *, num_blocks: int, block_size: int) -> None:
        self._max_model_len = max_model_len
        self._num_blocks = num_blocks
        self._block_size = block_size
        self.max_num_tokens = min(max_model_len, num_blocks * block_size)

    def check(self, request: Request) -> None:
        """Refuse a request that leaves no room for one token of output.

        Raises:
            ContextLengthError: the prompt is too long for the model or for the whole cache.
            InvalidRequestError: the prompt is empty.
        """
        self.check_length(request.num_prompt_tokens)

    def check_length(self, num_tokens: int) -> None:
        """Refuse a prompt of so many tokens, as `check` does a request."""
        if num_tokens == 0:
            raise InvalidRequestError("the prompt is empty; it needs at least one token", param="prompt")
        if num_tokens < self.max_num_tokens:
            return
        num_slots = self._num_blocks * self._block_size
        cache = f"the KV cache has {self._num_blocks} blocks of {self._block_size}"
        if num_tokens >= self._max_model_len:
            raise ContextLengthError(
                f"the prompt has {num_tokens} tokens, but this model's maximum context length is "
                f"{self._max_model_len}, prompt and output together (max_model_len; {cache}, or {num_slots} "
                f"tokens); shorten the prompt",
                param="prompt",
            )
        raise ContextLengthError(
            f"the prompt has {num_tokens} tokens, but a sequence may have at most {num_slots}: {cache} (the "
            f"model itself takes {self._max_model_len}, max_model_len); shorten the prompt or give the KV "
            f"cache more memory",
            param="prompt",
        )


def exceeds_share(num_held: int, num_new: int, num_free: int) -> bool:
    """Whether somebody would hold more of something than would be left free.

    So one alone may hold half of it, two a third each, and whoever comes next finds some. Whoever holds
    nothing is within its share, or what is large could never be had.
    """
    return num_held > 0 and num_held + num_new > num_free - num_new


def check_queue_tokens(num_waiting: int, num_new: int, max_waiting: int, *, num_own: int = 0) -> None:
    """Refuse requests that come together and whose prompts [tokens] the queue has no room for.

    An empty queue takes anything: what never fits would otherwise be told to come again.

    Args:
        num_waiting: tokens in the queue.
        num_new: those of the requests.
        max_waiting: bound of the queue.
        num_own: those in the queue that are of the same tenant; 0 if it has no share to keep to.

    Raises:
        QueueShareError: the tenant has its share of the queue.
        QueueFullError: prompts of too many tokens are waiting.
    """
    if exceeds_share(num_own, num_new, max_waiting - num_waiting):
        raise _share_error(f"prompts of {num_own} tokens", num_new, f"{max_waiting} tokens")
    if num_waiting and num_waiting + num_new > max_waiting:
        raise QueueFullError(
            f"prompts of {num_waiting} tokens are waiting and {num_new} more exceed the limit of "
            f"{max_waiting} (max_waiting_tokens); try again later"
        )


def check_queue(num_waiting: int, num_new: int, max_waiting: int, *, num_own: int = 0) -> None:
    """Refuse requests that come together and for which the queue has no room.

    Args:
        num_waiting: requests in the queue.
        num_new: those that come.
        max_waiting: bound of the queue.
        num_own: those in the queue that are of the same tenant; 0 if it has no share to keep to.

    Raises:
        InvalidRequestError: it never has room for so many.
        QueueShareError: the tenant has its share of the queue.
        QueueFullError: it has none now.
    """
    if num_new > max_waiting:
        raise InvalidRequestError(
            f"n is {num_new}, but at most {max_waiting} continuations may wait (max_waiting_requests); "
            f"lower n or raise max_waiting_requests",
            param="n",
        )
    if exceeds_share(num_own, num_new, max_waiting - num_waiting):
        raise _share_error(f"{num_own} requests", num_new, str(max_waiting))
    if num_waiting + num_new > max_waiting:
        raise QueueFullError(
            f"{num_waiting} requests are waiting and {num_new} more exceed the limit of {max_waiting}; "
            f"try again later"
        )


def _share_error(own: str, num_new: int, max_waiting: str) -> QueueShareError:
    return QueueShareError(
        f"{own} of yours are waiting and {num_new} more exceed your share of the queue, which is as much as "
        f"you leave free of {max_waiting}; try again when some have begun"
    )
