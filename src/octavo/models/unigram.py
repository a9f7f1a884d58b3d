"""SentencePiece's unigram model (GGUF's ``t5``): the cut of a text whose pieces score best together."""

import numpy as np
import numpy.typing as npt
from tokenizers import Regex
from tokenizers.models import Unigram
from tokenizers.normalizers import Normalizer, Precompiled, Replace, Sequence, Strip
from tokenizers.pre_tokenizers import Metaspace

from octavo.errors import ModelLoadError
from octavo.models.character_map import character_map_problem
from octavo.models.gguf_metadata import Metadata
from octavo.models.sentencepiece import sentencepiece_bytes
from octavo.models.tokenizer_scheme import TokenizerScheme
from octavo.models.vocabulary import TokenType, Vocabulary

_SPACE_MARK = "▁"
_CHARACTER_MAP = "tokenizer.ggml.precompiled_charsmap"


def unigram_scheme(vocabulary: Vocabulary, metadata: Metadata) -> TokenizerScheme:
    """Build the scheme from the tokens' scores and the table of characters, if there is one.

    Raises:
        ModelLoadError: there are no finite scores or no unknown token, or the table is damaged.
    """
    scores = metadata.array("tokenizer.ggml.scores", length=len(vocabulary.tokens))
    if scores is None or not np.isfinite(scores.astype(np.float64)).all():
        raise ModelLoadError(f"{metadata.path}: the vocabulary has no finite scores (tokenizer.ggml.scores)")
    if vocabulary.unknown_token_id is None:
        raise ModelLoadError(f"{metadata.path}: a unigram vocabulary needs tokenizer.ggml.unknown_token_id")
    adds_space_prefix = metadata.flag("tokenizer.ggml.add_space_prefix", default=True)
    return TokenizerScheme(
        model=Unigram(
            list(zip(vocabulary.tokens, scores.astype(float).tolist(), strict=True)),
            unk_id=vocabulary.unknown_token_id,
            byte_fallback=int(TokenType.BYTE) in vocabulary.types,
        ),
        normalizer=_normalizer(metadata),
        pre_tokenizer=Metaspace(_SPACE_MARK, "always" if adds_space_prefix else "never"),
        bytes_of=sentencepiece_bytes,
        adds_bos=False,
        adds_eos=True,
        adds_space_prefix=adds_space_prefix,
    )


def _normalizer(metadata: Metadata) -> Normalizer:
    steps: list[Normalizer] = []
    character_map = metadata.values.get(_CHARACTER_MAP)
    if isinstance(character_map, np.ndarray) and character_map.size:
        steps.append(_precompiled(character_map, metadata))
    if metadata.flag("tokenizer.ggml.remove_extra_whitespaces", default=True):
        steps += [Strip(left=False, right=True), Replace(Regex(" {2,}"), _SPACE_MARK)]
    return Sequence(steps)


def _precompiled(character_map: npt.NDArray[np.generic], metadata: Metadata) -> Normalizer:
    content = character_map.astype(np.uint8).tobytes()
    if problem := character_map_problem(content):
        raise ModelLoadError(f"{metadata.path}: the table of characters ({_CHARACTER_MAP}) {problem}")
    return Precompiled(content)
