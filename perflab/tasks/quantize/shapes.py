"""Checkpoints of models that are shapes only: a config.json that says how weights are stored, and no weights.

With `load_format: dummy` vLLM makes the weights up, in the format the config names. Speed and memory are real then.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from perflab.errors import InputError
from perflab.experiment.study import Study, Variant
from perflab.messages import say
from perflab.tasks.quantize.folder import StudyFolder

_TOKENIZER = ("tokenizer", "vocab", "merges", "special_tokens", "generation_config", "chat_template", "spiece")


def make_shape(study: Study, variant: Variant, folder: StudyFolder) -> Path:
    """The checkpoint of a variant without weights: the study's config.json and tokenizer, and how weights are stored.

    Raises
    ------
    InputError
        When the study's model is not a folder with a config.json.
    """
    target = folder.checkpoint(variant.name)
    if (target / "config.json").is_file():
        return target
    source = Path(study.model.name)
    if study.model.kind != "path" or not (source / "config.json").is_file():
        raise InputError(say("quantize.shape_needs_folder", name=variant.name), path=study.path, line=variant.line)
    config: dict[str, Any] = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = dict(variant.format.config)
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.iterdir()):
        if file.is_file() and file.name.startswith(_TOKENIZER):
            shutil.copyfile(file, target / file.name)
    made = {"made_by": "perflab", "weights": "none: shape only", "format": variant.format.name}
    (target / "perflab-made.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    (target / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    return target


def needs_shape(study: Study, variant: Variant) -> bool:
    """Whether a variant's checkpoint is a config.json that can be made at once."""
    return study.is_shape_only and variant.checkpoint is None and variant.format.how in ("make", "ready")
