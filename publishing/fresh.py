"""A folder loaded as a stranger would: in a fresh process that knows nothing of this package."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# Stands in the way of every import of the package, installed or not: the code must come from the folder.
_SCRIPT = """
import json, sys, time

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("arrcoc", "publishing", "training", "evaluation"):
            raise ModuleNotFoundError(f"No module named {name!r}: the folder must bring its own code", name=name)

sys.meta_path.insert(0, Absent())
where, picture, revision = sys.argv[1:]
pinned = {"trust_remote_code": True, "revision": revision}
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor, pipeline

begin = time.perf_counter()
processor = AutoProcessor.from_pretrained(where, **pinned)
model = AutoModelForImageTextToText.from_pretrained(where, **pinned).eval()
result = {"class": type(model).__name__, "load_seconds": round(time.perf_counter() - begin, 1)}
chat = [{"role": "user", "content": [
    {"type": "image", "image": Image.open(picture)}, {"type": "text", "text": "What does it say for locker?"}]}]
result["tokens"], result["answers"] = {}, {}
for budget in (9, "full"):
    inputs = processor.apply_chat_template([chat], tokenize=True, add_generation_prompt=True, return_dict=True,
                                           return_tensors="pt", processor_kwargs={"token_budget": budget})
    output = model.generate(**inputs.to(model.device), max_new_tokens=8, do_sample=False)
    text = processor.batch_decode(output[:, inputs["input_ids"].shape[1]:], skip_special_tokens=True)[0]
    result["tokens"][str(budget)] = int(inputs["image_token_counts"][0])
    result["answers"][str(budget)] = text
if result["tokens"]["9"] != 9 or result["tokens"]["full"] <= 9:
    raise SystemExit(f"the budgets 9 and 'full' gave {result['tokens']} tokens")
pipe = pipeline("image-text-to-text", model=where, device=model.device, **pinned)
answer = pipe(chat, processor_kwargs={"token_budget": 9}, max_new_tokens=8, return_full_text=False,
              generate_kwargs={"do_sample": False})  # release 5.20 takes a bare do_sample for the processor's
result["answers"]["pipeline"] = answer[0]["generated_text"]
if result["answers"]["pipeline"].strip() != result["answers"]["9"].strip():
    raise SystemExit(f"generate() and the pipeline answer differently: {result['answers']}")
print(json.dumps(result))
"""


class LoadFailed(RuntimeError):
    """A fresh process could not load the folder, or its answers are not what they must be; says the last lines."""


def load_in_fresh_process(
    where: str | Path, picture: Path, *, revision: str = "main", offline: bool = True, timeout: float = 3600, **env: str
) -> dict:
    """Loads a folder or a Hub repository by the auto classes, generates at two budgets, and runs the pipeline.

    Args:
        where: staged folder or Hub id.
        picture: what is asked about.
        revision: of a Hub id.
        offline: nothing is fetched; an allocator-only folder must fetch its base.
        timeout: seconds.
        env: environment variables to set.

    Returns:
        "class", "load_seconds", "tokens" and "answers" by budget, and the "warnings" of transformers.

    Raises:
        LoadFailed: with the last lines that the process wrote.
    """
    local = Path(where).is_dir()
    with tempfile.TemporaryDirectory() as scratch:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment |= {"HF_MODULES_CACHE": scratch, **({"HF_HUB_OFFLINE": "1"} if offline else {}), **env}
        where = str(Path(where).resolve()) if local else str(where)
        try:
            done = subprocess.run(
                [sys.executable, "-c", _SCRIPT, where, str(Path(picture).resolve()), revision],
                cwd=scratch,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise LoadFailed(f"{where} did not answer within {timeout:.0f} seconds") from None
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-12:])
        raise LoadFailed(f"{where} does not load in a fresh process:\n{last}")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    result["warnings"] = [line for line in done.stderr.splitlines() if line.startswith("[transformers]")]
    return result
