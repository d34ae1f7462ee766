"""An offline engine for Nsight Compute: run in the engine's Python as `ncu ... python ncu_host.py TASK.json`.

The counters are switched on only around one call of `generate`, after another one has compiled and warmed up
everything. With several GPUs the kernels are in worker processes: the engine's own `cuda` profiler switches there.
"""

import dataclasses
import json
import random
import sys
from pathlib import Path


def main(task_file: str) -> None:
    """Generate once to warm up, then once with the counters on."""
    from vllm import LLM, SamplingParams
    from vllm.engine.arg_utils import EngineArgs

    task = json.loads(Path(task_file).read_text(encoding="utf-8"))
    # What only a server has (its name in the API, say) an offline engine does not take.
    known = {field.name for field in dataclasses.fields(EngineArgs)}
    arguments = {name: value for name, value in task["llm"].items() if name in known}
    llm = LLM(**arguments, profiler_config={"profiler": "cuda"})
    vocabulary = llm.llm_engine.vllm_config.model_config.get_vocab_size()
    sampling = SamplingParams(temperature=0.0, max_tokens=task["output_len"], ignore_eos=True)
    source = random.Random(0)

    def prompts() -> "list[dict[str, list[int]]]":
        ids = range(task["prompts"])
        return [{"prompt_token_ids": source.choices(range(vocabulary), k=task["input_len"])} for _ in ids]

    llm.generate(prompts(), sampling, use_tqdm=False)
    llm.start_profile()
    llm.generate(prompts(), sampling, use_tqdm=False)
    llm.stop_profile()


if __name__ == "__main__":
    main(sys.argv[1])
