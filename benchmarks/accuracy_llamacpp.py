"""llama.cpp's part of accuracy.py: JSON on stdin, a line of JSON on stdout; needs its Python binding."""

import json
import sys

import llama_cpp
import numpy as np


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """In float64 [num_rows, vocab_size]."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def main() -> None:
    job = json.load(sys.stdin)
    longest = max(map(len, job["sequences"]))
    model = llama_cpp.Llama(job["model"], n_ctx=longest + 8, logits_all=True, verbose=False)
    scores = []
    for tokens in job["sequences"]:
        model.reset()
        model.eval(tokens)
        logits = np.array(model.scores[: len(tokens)])
        logprobs = log_softmax(logits)
        following = logprobs[np.arange(len(tokens) - 1), tokens[1:]]
        scores.append([following.tolist(), logits.argmax(axis=1).tolist()])
    print(json.dumps({"name": f"llama.cpp, binding {llama_cpp.__version__}", "scores": scores}))


if __name__ == "__main__":
    main()
