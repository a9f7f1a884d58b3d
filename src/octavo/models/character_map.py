"""SentencePiece's compiled table of characters: which short texts are replaced by which before a text is cut.

    bytes of the trie u32 | units of the trie u32 each | UTF-8 texts, each ended by a NUL

The `tokenizers` library follows the trie, a double array, without looking where it leads. So that is looked
at here, once, for a table that comes out of a file that somebody else made.
"""

import struct

import numpy as np

_BLOCK = 256  # units: a step leads to the block of the unit's offset, and within it to the unit of a byte
_LEAF = 1 << 8
_WIDE_OFFSET = 1 << 9
_VALUE = (1 << 31) - 1
_LONGEST_TEXT = 256


def character_map_problem(content: bytes) -> str | None:
    """Why the table cannot be used, in words that follow its name; ``None`` if it can."""
    num_bytes = struct.unpack_from("<I", content)[0] if len(content) >= 4 else 0
    if not num_bytes or num_bytes % (4 * _BLOCK) or 4 + num_bytes > len(content):
        return "is cut short"
    texts = content[4 + num_bytes :]
    if max(map(len, texts.split(b"\0"))) > _LONGEST_TEXT:
        return f"replaces characters by texts of more than {_LONGEST_TEXT} bytes"
    try:
        texts.decode()
    except UnicodeDecodeError:
        return "holds text that is not UTF-8"
    return _trie_problem(np.frombuffer(content, "<u4", num_bytes // 4, 4).astype(np.int64), texts)


def _trie_problem(units: np.ndarray[tuple[int], np.dtype[np.int64]], texts: bytes) -> str | None:
    offsets = (units >> 10) << np.where(units & _WIDE_OFFSET, 8, 0)
    leads_to = np.arange(len(units)) ^ offsets
    reachable = units <= _VALUE  # the others are values, which are nowhere on a way
    reachable[0] = True  # where every way starts
    if np.any(leads_to[reachable] >= len(units)):
        return "leads beyond its end"
    values = units[leads_to[reachable & (units & _LEAF != 0)]] & _VALUE
    starts = np.array([byte & 0xC0 != 0x80 for byte in texts] + [True])
    if np.any(values > len(texts)) or not np.all(starts[values]):
        return "names a text that is not there"
    return None
