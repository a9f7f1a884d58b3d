"""The offline `LLM` as a process: jobs as lines of JSON on stdin, times on stdout."""

import json
import sys
import time

from octavo import LLM, SamplingParams


def main() -> None:
    llm = LLM(model=sys.argv[1])
    for line in sys.stdin:
        job = json.loads(line)
        params = SamplingParams(temperature=0.0, max_tokens=job["output_tokens"], ignore_eos=True)
        prompts = [{"prompt_token_ids": prompt} for prompt in job["prompts"]]
        start = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        wall = time.perf_counter() - start
        tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
        print(json.dumps({"wall": wall, "tokens": tokens}), flush=True)


if __name__ == "__main__":
    main()
