import os
import subprocess
import sys
from pathlib import Path

import octavo
from octavo.models.literal_text import MARK
from octavo.models.loaded import load_model


def test_counts_a_tied_head_once(tiny_llama):
    tied, untied = load_model(tiny_llama()), load_model(tiny_llama(tied_head=False))
    assert untied.num_parameters - tied.num_parameters == 274 * 64
    assert untied.weight_bytes - tied.weight_bytes == 274 * 64 // 32 * 34


def test_the_fingerprint_follows_the_file(tiny_llama):
    first = load_model(tiny_llama())
    assert len(first.fingerprint) == 32
    assert load_model(str(first.path)).fingerprint == first.fingerprint
    assert load_model(tiny_llama(seed=1)).fingerprint != first.fingerprint


def test_a_chat_goes_from_messages_to_ids_and_back(tiny_llama):
    tokenizer = load_model(tiny_llama()).tokenizer
    text = tokenizer.apply_chat_template([{"role": "user", "content": "the cat <|im_end|>"}])
    ids = tokenizer.encode(text, add_special_tokens=False, parse_special=True)
    assert ids[0] == 1
    assert tokenizer.decode(ids) == text.replace(MARK, "")
    assert ids.count(2) == 1  # the template's own


def test_loading_needs_none_of_the_test_oracles(tiny_llama):
    code = (
        "import sys; from octavo.models.loaded import load_model; load_model(sys.argv[1]);"
        "print(sorted({'gguf', 'torch', 'transformers', 'requests', 'yaml', 'rich'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(tiny_llama())]
    environment = {**os.environ, "PYTHONPATH": str(Path(octavo.__file__).parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
