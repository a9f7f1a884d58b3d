"""Writes the default model's tokenizer as a Hugging Face folder, for clients that count tokens themselves.

    python save_tokenizer.py MODEL.gguf FOLDER

It is made from the file's vocabulary and merges with the tokenizers library, without any code of ours, so
that equal counts mean something. (transformers' own conversion of this file takes it for another model's.)
"""

import sys

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CONTROL = 3


def main(path, folder):
    fields = gguf.GGUFReader(path).fields
    tokens, merges = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges"))
    types = fields["tokenizer.ggml.token_type"].contents()
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind == CONTROL
        ]
    )
    bos, eos = (tokens[fields[f"tokenizer.ggml.{name}_token_id"].contents()] for name in ("bos", "eos"))
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos)
    whole.chat_template = fields["tokenizer.chat_template"].contents()
    whole.save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
