"""Write a GGUF model of the llama architecture as a Hugging Face folder with float32 weights.

    python tools/gguf_to_huggingface.py MODEL FOLDER

The weights are dequantised; rows of queries and keys are put back into the order of Hugging Face files. The
folder is for tests and benchmarks: with it, one model can be run from both kinds of files.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.kernels.quantization import dequantize
from octavo.models.default_model import resolve_model_path
from octavo.models.gguf import GGUFFile
from octavo.models.gguf_tokenizer import build_tokenizer
from octavo.models.model_tokenizer import ModelTokenizer
from octavo.models.vocabulary import TokenType

Array = npt.NDArray[np.float32]

_GLOBAL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_IN_A_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(model: Path, folder: Path, *, num_shards: int = 1) -> None:
    """Write the folder, its weights in as many files as wanted."""
    file = GGUFFile(model)
    folder.mkdir(parents=True, exist_ok=True)
    config = make_config(file)
    write_json(folder / "config.json", config)
    tokenizer = build_tokenizer(file.metadata)
    write_json(folder / "tokenizer.json", make_tokenizer(tokenizer))
    write_json(folder / "tokenizer_config.json", make_tokenizer_config(tokenizer))
    write_json(folder / "generation_config.json", {"eos_token_id": sorted(tokenizer.eos_token_ids)})
    if tokenizer.chat_template:
        (folder / "chat_template.jinja").write_text(tokenizer.chat_template.source, encoding="utf-8")
    write_weights(file, folder, config, num_shards=num_shards)


def make_config(file: GGUFFile) -> dict[str, Any]:
    """``config.json``"""
    read = file.metadata
    num_heads = read.count("llama.attention.head_count")
    hidden_size = read.count("llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float32",
        "hidden_size": hidden_size,
        "intermediate_size": read.count("llama.feed_forward_length"),
        "num_hidden_layers": read.count("llama.block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": read.count("llama.attention.head_count_kv", default=num_heads),
        "head_dim": read.count("llama.attention.key_length", default=hidden_size // num_heads),
        "max_position_embeddings": read.count("llama.context_length"),
        "rms_norm_eps": read.number("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": read.number("llama.rope.freq_base", default=10_000.0),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
    }


def make_tokenizer(tokenizer: ModelTokenizer) -> dict[str, Any]:
    """``tokenizer.json``: the encoder for text, with the control tokens that it does not know."""
    document: dict[str, Any] = json.loads(tokenizer.encoders.text.to_str())
    vocabulary = tokenizer.vocabulary
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    special = [
        {"id": token_id, "content": vocabulary.tokens[token_id], **flags, "special": True}
        for token_id in sorted(vocabulary.special_ids)
    ]
    document["added_tokens"] = sorted([*document["added_tokens"], *special], key=lambda token: token["id"])
    if TokenType.BYTE in vocabulary.types:
        pieces = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}]
        strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        document["decoder"] = {"type": "Sequence", "decoders": [*pieces, {"type": "Fuse"}, strip]}
    else:
        document["decoder"] = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        }
    return document


def make_tokenizer_config(tokenizer: ModelTokenizer) -> dict[str, Any]:
    """``tokenizer_config.json``"""
    vocabulary = tokenizer.vocabulary
    plain, whole = (tokenizer.encode("a", add_special_tokens=flag) for flag in (False, True))
    return {
        "bos_token": vocabulary.text_of(vocabulary.bos_token_id) or None,
        "eos_token": vocabulary.text_of(vocabulary.eos_token_id) or None,
        "add_bos_token": whole != plain and whole[0] == vocabulary.bos_token_id,
    }


def write_weights(file: GGUFFile, folder: Path, config: dict[str, Any], *, num_shards: int) -> None:
    """The safetensors files, and their index if they are several."""
    from safetensors.numpy import save_file

    names = [*file.tensors]
    parts = [names[start::num_shards] for start in range(num_shards)]
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts, start=1):
        name = f"model-{number:05}-of-{num_shards:05}.safetensors" if num_shards > 1 else "model.safetensors"
        tensors = dict(_tensor(file, gguf_name, config) for gguf_name in part)
        save_file(tensors, folder / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(tensors, name)
    if num_shards > 1:
        write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def write_json(path: Path, value: object) -> None:
    """A file that people can read."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")


def _tensor(file: GGUFFile, name: str, config: dict[str, Any]) -> tuple[str, Array]:
    values = np.ascontiguousarray(dequantize(file.weight(name)))
    if name in _GLOBAL:
        return _GLOBAL[name], values
    _, layer, role, kind = name.split(".")
    if role in ("attn_q", "attn_k"):
        num_heads = config["num_attention_heads" if role == "attn_q" else "num_key_value_heads"]
        values = half_split(values, num_heads)
    return f"model.layers.{layer}.{_IN_A_LAYER[role]}.{kind}", values


def half_split(rows: Array, num_heads: int) -> Array:
    """Rows of queries or keys whose pairs lie side by side, as those whose pairs lie half a head apart."""
    pairs = rows.reshape(num_heads, -1, 2, rows.shape[-1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def _arguments() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "model", {"help": "a .gguf file, or the short name of the default model"}
    yield "folder", {"type": Path}
    yield "--shards", {"type": int, "default": 1}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, options in _arguments():
        parser.add_argument(name, **options)
    arguments = parser.parse_args()
    convert(resolve_model_path(arguments.model), arguments.folder, num_shards=arguments.shards)


if __name__ == "__main__":
    main()
