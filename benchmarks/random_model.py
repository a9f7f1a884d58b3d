"""Write a random model of the size of Llama 3.2 1B as a Hugging Face folder in bfloat16.

    python benchmarks/random_model.py FOLDER --tokenizer smollm2-135m

What a model says does not matter for how fast it loads and how much memory it takes; it can be made without
a network. The tokenizer is that of a GGUF model.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))

from gguf_to_huggingface import make_tokenizer, make_tokenizer_config, write_json
from octavo.models.default_model import resolve_model_path
from octavo.models.gguf import GGUFFile
from octavo.models.gguf_tokenizer import build_tokenizer

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "tie_word_embeddings": True,
    "vocab_size": 128_256,
}


def tensor_shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """By name, in the order of the file."""
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    q_width = config["num_attention_heads"] * config["head_dim"]
    kv_width = config["num_key_value_heads"] * config["head_dim"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (hidden,),
            f"{prefix}.self_attn.q_proj.weight": (q_width, hidden),
            f"{prefix}.self_attn.k_proj.weight": (kv_width, hidden),
            f"{prefix}.self_attn.v_proj.weight": (kv_width, hidden),
            f"{prefix}.self_attn.o_proj.weight": (hidden, q_width),
            f"{prefix}.post_attention_layernorm.weight": (hidden,),
            f"{prefix}.mlp.gate_proj.weight": (intermediate, hidden),
            f"{prefix}.mlp.up_proj.weight": (intermediate, hidden),
            f"{prefix}.mlp.down_proj.weight": (hidden, intermediate),
        }
    return shapes


def write_weights(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """One safetensors file, written tensor by tensor."""
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(1)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            values = rng.standard_normal(shape, np.float32)
            values = values * np.float32(0.02) if len(shape) > 1 else 1 + values * np.float32(0.02)
            file.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())


def write_model(folder: Path, *, tokenizer: str, config: dict) -> None:
    """The whole folder."""
    folder.mkdir(parents=True, exist_ok=True)
    source = build_tokenizer(GGUFFile(resolve_model_path(tokenizer)).metadata)
    write_json(folder / "config.json", config)
    write_json(folder / "tokenizer.json", make_tokenizer(source))
    write_json(folder / "tokenizer_config.json", make_tokenizer_config(source))
    write_json(folder / "generation_config.json", {"eos_token_id": sorted(source.eos_token_ids)})
    write_weights(folder / "model.safetensors", tensor_shapes(config))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", default="smollm2-135m")
    parser.add_argument("--layers", type=int, default=CONFIG["num_hidden_layers"])
    arguments = parser.parse_args()
    config = {**CONFIG, "num_hidden_layers": arguments.layers}
    write_model(arguments.folder, tokenizer=arguments.tokenizer, config=config)


if __name__ == "__main__":
    main()
