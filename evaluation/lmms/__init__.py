"""ARR-COC in lmms-eval: `--model arrcoc`, the benchmarks of the field in one command, and their table.

    python -m lmms_eval --model arrcoc --model_args pretrained=FOLDER,token_budget=0.1 --tasks docvqa_val
    python -m evaluation.lmms.run --model FOLDER --out results/lmms

`docs/lmms_eval.md` has the arguments.
"""
