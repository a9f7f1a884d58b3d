"""Philox4x32-10, a counter-based random number generator (Salmon et al., SC 2011).

Each number is a function of key and counter alone: there is no stream that a neighbour could advance.
"""

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_NUM_ROUNDS = 10
_MASK = 0xFFFFFFFF


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four random 32-bit words of a 128-bit counter and a 64-bit key, lowest words first."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_NUM_ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            product1 >> 32 ^ c1 ^ k0,
            product1 & _MASK,
            product0 >> 32 ^ c3 ^ k1,
            product0 & _MASK,
        )
        k0, k1 = k0 + _KEY_INCREMENTS[0] & _MASK, k1 + _KEY_INCREMENTS[1] & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, position: int, choice_index: int) -> float:
    """The number in [0, 1), of 53 random bits, that chooses the token at ``position`` of a choice."""
    w0, w1, _, _ = philox4x32((position, choice_index, 0, 0), (seed & _MASK, seed >> 32))
    return ((w0 >> 5) * 2**26 + (w1 >> 6)) / 2**53
