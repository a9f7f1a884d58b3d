"""OpenVINO GenAI: its continuous-batching pipeline, driven step by step in this process."""

import argparse
from pathlib import Path

from protocol import Recorder, serve, take_stdout

BATCH_TOKENS = 2048
CACHE_GIB = 1


class OpenVino:
    """One pipeline with its prefix cache on."""

    def __init__(self, model: str, threads: int) -> None:
        import openvino
        import openvino_genai

        self._genai, self._openvino = openvino_genai, openvino
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GIB
        scheduler.enable_prefix_caching = True
        scheduler.max_num_seqs = 64
        scheduler.max_num_batched_tokens = BATCH_TOKENS
        scheduler.dynamic_split_fuse = True
        properties = {"INFERENCE_NUM_THREADS": threads}
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)
        self._num_requests = 0
        self.version = openvino_genai.__version__.partition("-")[0]

    def run(self, prompts: list[list[int]], output_tokens: int) -> dict[str, object]:
        """All prompts at once, greedily."""
        import numpy as np

        config = self._genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = output_tokens
        config.ignore_eos = True
        config.do_sample = False
        tensors = [self._openvino.Tensor(np.array([prompt], dtype=np.int64)) for prompt in prompts]
        recorder = Recorder(len(prompts))
        handles = []
        for tensor in tensors:
            self._num_requests += 1
            handles.append(self._pipeline.add_request(self._num_requests, tensor, config))
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for index, handle in enumerate(handles):
                while handle.can_read():
                    count = sum(len(output.generated_ids) for output in handle.read().values())
                    if count:
                        recorder.add(index, count)
        return recorder.times()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    answers = take_stdout()
    engine = OpenVino(arguments.model, arguments.threads)
    settings = {
        "threads": arguments.threads,
        "cache_gib": CACHE_GIB,
        "max_num_batched_tokens": BATCH_TOKENS,
        "prefix_caching": True,
    }
    name = f"OpenVINO {Path(arguments.model).name}"
    serve(answers, {"name": name, "version": engine.version, "settings": settings}, engine.run)


if __name__ == "__main__":
    main()
