"""One start of Octavo for load_and_memory.py."""

import json
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

from load_llamacpp import memory


def main() -> None:
    job = json.loads(sys.argv[1])
    from octavo import LLM, SamplingParams

    llm = LLM(
        job["model"],
        quantization=job["quantization"],
        max_model_len=2048,
        kv_cache_memory="68MiB",
        kv_dtype="float16",
        num_threads=job["threads"],
    )
    loaded = time.time()
    params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
    outputs = llm.generate({"prompt_token_ids": job["tokens"]}, params, use_tqdm=False)
    first = time.time()
    token = outputs[0].outputs[0].token_ids[0]
    print(json.dumps({"loaded": loaded, "first_token": first, "token": token, **memory()}))
    llm.close()


if __name__ == "__main__":
    main()
