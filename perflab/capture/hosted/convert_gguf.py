"""Turns a GGUF file into a plain Hugging Face model folder, in the engine's Python.

Run as `python convert_gguf.py FILE.gguf OUT DTYPE`. The weights are unpacked from their quantized blocks to
DTYPE; the tokenizer comes out of the same file.
"""

import sys
from pathlib import Path


def convert(file: Path, out: Path, dtype: str) -> None:
    """Write the model and the tokenizer of `file` into the folder `out`."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, name = str(file.parent), file.name
    # Older versions of transformers always unpack; newer ones keep the blocks unless told.
    config = getattr(transformers, "GgufConfig", None)
    extra = {} if config is None else {"quantization_config": config(dequantize=True)}
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, **extra)
    for key in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(model.config, key):
            delattr(model.config, key)
    model = model.to(getattr(torch, dtype))
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(out)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
