"""vLLM on the CPU: its engine, driven step by step in this process (no HTTP, no second process)."""

import argparse
import os

from protocol import Recorder, serve, take_stdout

MAX_MODEL_LEN = 2304
MAX_NUM_SEQS = 32


class Vllm:
    """One `LLM`, eager, with its prefix cache on."""

    def __init__(self, model: str, dtype: str, threads: int) -> None:
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{threads - 1}")
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ["VLLM_NO_USAGE_STATS"] = "1"
        os.environ["HF_HUB_OFFLINE"] = "1"
        import vllm

        self._vllm = vllm
        llm = vllm.LLM(
            model=model,
            dtype=dtype,
            enforce_eager=True,
            enable_prefix_caching=True,
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=MAX_NUM_SEQS,
            seed=0,
            disable_log_stats=True,
        )
        self._engine = llm.llm_engine
        self._num_requests = 0
        self.version = vllm.__version__

    def run(self, prompts: list[list[int]], output_tokens: int) -> dict[str, object]:
        """All prompts at once, greedily."""
        sampling = self._vllm.SamplingParams(
            temperature=0,
            max_tokens=output_tokens,
            min_tokens=output_tokens,
            ignore_eos=True,
            detokenize=False,
        )
        recorder = Recorder(len(prompts))
        numbers = {}
        for index, prompt in enumerate(prompts):
            self._num_requests += 1
            request_id = str(self._num_requests)
            numbers[request_id] = index
            self._engine.add_request(request_id, {"prompt_token_ids": prompt}, sampling)
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                index = numbers[output.request_id.partition("-")[0]]
                count = len(output.outputs[0].token_ids) - recorder.tokens[index]
                if count:
                    recorder.add(index, count)
        return recorder.times()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    answers = take_stdout()
    engine = Vllm(arguments.model, arguments.dtype, arguments.threads)
    settings = {
        "threads": arguments.threads,
        "dtype": arguments.dtype,
        "eager": True,
        "prefix_caching": True,
        "max_model_len": MAX_MODEL_LEN,
        "max_num_seqs": MAX_NUM_SEQS,
    }
    name = f"vLLM {arguments.dtype}"
    serve(answers, {"name": name, "version": engine.version, "settings": settings}, engine.run)


if __name__ == "__main__":
    main()
