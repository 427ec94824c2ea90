"""ARR-COC in lmms-eval: `--model arrcoc`, the benchmarks of the field in one command, and their table.

    python -m lmms_eval --model arrcoc --model_args pretrained=FOLDER,token_budget=0.1 --tasks docvqa_val
    python -m evaluation.lmms.run --model FOLDER --out results/lmms

`docs/lmms_eval.md` has the arguments.
"""

import sys
from pathlib import Path


def manifest():
    """The model as lmms-eval's entry-point group `lmms_eval.models` wants it (its `ModelManifest`)."""
    from lmms_eval.models.registry_v2 import ModelManifest

    # `evaluation` and `training` stand beside the installed package and are not installed with it.
    root = str(Path(__file__).resolve().parents[2])
    if root not in sys.path:
        sys.path.append(root)
    return ModelManifest(model_id="arrcoc", chat_class_path="evaluation.lmms.model.ARRCOC")
