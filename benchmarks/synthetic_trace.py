"""A valid Kineto trace of as many kernels as wanted: steps of 400 in one CUDA graph each, 300 names, five streams."""

import json
import random
from pathlib import Path

PER_STEP, NAMES = 400, 300
WHAT = (
    "nvjet_sm90_tst_{0}x8_64x16_2x1_v_bz_TNT", "void flash::FlashAttnFwdSm90<cute::C<{0}>, cutlass::bfloat16_t>(int)",
    "triton_red_fused_add_rms_norm_{0}", "void vllm::reshape_and_cache_flash_kernel<{0}>(float const*)",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::C<{0}>>>(int)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL_{0}", "void at::native::vectorized_elementwise_kernel<{0}, float>(int)",
)  # fmt: skip


def write_trace(path: Path, kernels: int) -> None:
    """A trace of one rank; times in microseconds with nanoseconds behind the point."""
    chance = random.Random(1)
    names = [json.dumps(WHAT[i % len(WHAT)].format(i)) for i in range(NAMES)]
    at, row = 1_000_000, 0
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],')
        file.write('"distributedInfo": {"rank": 0, "world_size": 1}, "baseTimeNanoseconds": 1790000000000000000,')
        file.write('"traceEvents": [\n')
        for step in range(-(-kernels // PER_STEP)):
            begin, events = at, []
            for _ in range(min(PER_STEP, kernels - row)):
                dur = int(chance.lognormvariate(9, 1))
                stream = 7 if chance.random() < 0.9 else 11 + row % 4
                events.append(_event("kernel", names[chance.randrange(NAMES)], at, dur, 0, stream, step + 1, stream))
                at += dur + (chance.randrange(1500) if chance.random() < 0.8 else -min(dur // 8, 500))
                row += 1
            mark = (
                "execute_context_1(512)_generation_0(0)" if step % 50 == 0 else "execute_context_0(0)_generation_8(8)"
            )
            # As Kineto writes it: only device work has the argument `stream`, by which HTA knows it.
            events.append(_event("gpu_user_annotation", json.dumps(mark), begin, at - begin - 100, 0, 7, None, None))
            events.append(_event("user_annotation", json.dumps(mark), begin - 90_000, 60_000, 9, 9, None, None))
            events.append(_event("cuda_runtime", '"cudaGraphLaunch"', begin - 80_000, 40_000, 9, 9, step + 1, None))
            file.write(",\n".join(events) + (",\n" if row < kernels else "\n"))
            at += chance.randrange(200_000)
        file.write("]}")


def _event(
    kind: str, name: str, at: int, dur: int, pid: int, tid: int, correlation: int | None, stream: int | None
) -> str:
    args = {"device": 0, "stream": stream} if stream is not None else {}
    args |= {"correlation": correlation} if correlation is not None else {}
    what = f'"ph": "X", "cat": "{kind}", "name": {name}, "pid": {pid}, "tid": {tid}'
    times = f'"ts": {at // 1000}.{at % 1000:03d}, "dur": {dur // 1000}.{dur % 1000:03d}'
    return f'{{{what}, {times}, "args": {json.dumps(args)}}}'
