"""What lmms-eval finds of this package: its entry point of the group `lmms_eval.models`.

`--model arrcoc` is `evaluation.lmms.model.ARRCOC`, which stands beside the package in the repository and is not installed with it.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def models():
    """lmms-eval's `ModelManifest` of `--model arrcoc`; none where the package is installed without the repository, as a wheel is:
    lmms-eval loads every entry point that it finds, whatever model is asked for."""
    if not (ROOT / "evaluation").is_dir():
        return ()
    from lmms_eval.models.registry_v2 import ModelManifest

    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    return ModelManifest(model_id="arrcoc", chat_class_path="evaluation.lmms.model.ARRCOC")
