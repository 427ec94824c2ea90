#!/usr/bin/env bash
# Asks anew every table of answers and evidence that the bundled allocator stands in, as README.md and docs/results.md give the
# commands, into runs/: after its weights, its choice or what it reads of questions have changed. Other methods' answers of
# results/world.jsonl are taken as they are but those of query_blind, which has the bundled dials; so base and baselines must not
# have changed.
#
#     OMP_NUM_THREADS=1 dev/measure_again.sh QUEUE TABLES      # QUEUE: world, stages, pages or long; TABLES as PATH in docs/results.md
#
# Run as many at once as there are cores: six on two are half as fast together. "long" asks 14,400 questions. "pages" needs what
# dev.browser_pages needs. What is in runs/ already is gone on with; compare with results/, then copy.
set -euo pipefail
cd "$(dirname "$0")/.."
queue=${1:?"pass a queue: world, stages, pages or long"} tables=${2:?"pass the folder of the tables"}
python=${PYTHON:-.venv/bin/python}
mkdir -p runs
W="world?grids=12x12" T="wikitables:$tables?page=12x16"

ask() { # NAME DATA ARGUMENTS...: with the baselines of training's first pages
    $python -m evaluation.run --model checkpoints/arrcoc-small --baseline-weights "${BASELINES:-checkpoints/baselines}" \
        --timing 0 --out "runs/$1" --data "${@:2}"
}
shown() { BASELINES=checkpoints/baselines/everyday ask "$@"; } # with those that were shown everyday pages
ranks() { $python -m dev.ranks "$@" bundled; }

world() {
    local methods="$1" budgets=0.05,0.1,0.25,0.5,full
    ask world_ours "$W" --limit 300 --budgets $budgets --methods arrcoc,two_stage,auto_stage,foveated,query_blind
    $python - "$methods" "${BASELINES:-checkpoints/baselines}" <<'JOIN'
import json, sys
from pathlib import Path
from evaluation.loading import weights_fingerprint
ours, theirs = (Path(name).read_text().splitlines() for name in ("runs/world_ours.jsonl", "results/world.jsonl"))
new, old = (json.loads(lines[0])["header"] for lines in (ours, theirs))
own, new["methods"] = new["methods"], sys.argv[1].split(",")
new["baseline_weights"] = weights_fingerprint(Path(sys.argv[2]), new["methods"])
same = ("baseline_weights", "data_content", "processor", "torch", "transformers", "seed", "limit", "dtype", "max_new_tokens")
changed = [name for name in same if new[name] != old[name]]
assert not changed, f"the other methods have to be asked anew, too: {changed}"
kept = [line for line in theirs[1:] if json.loads(line).get("method") not in (*own, "full")]
Path("runs/world.jsonl").write_text("\n".join([json.dumps({"header": new}), *ours[1:], *kept, ""]))
JOIN
    ask world "$W" --limit 300 --budgets $budgets --methods "$methods"
}

case $queue in
world)
    world arrcoc,two_stage,auto_stage,foveated,resize,random,strided,query_blind,divprune,fastv,cdpruner,cdpruner_negated,visionzip,vision_selector,glimpse_prune,pooling,tome,oracle
    ask world_reworded "$W&reworded=1" --limit 300 --methods arrcoc,resize --budgets 0.1,full
    ask world_beside "$W&beside=100" --limit 300 --methods arrcoc,resize --budgets 0.1,full
    ask world_several "world:several_fields?grids=12x12" --seed 44000000 --limit 300 --budgets 0.5,full --methods arrcoc,resize
    ask joined_world "$W&questions=4&joined=100" --seed 3000000 --limit 300 --methods arrcoc,query_blind --budgets 0.05,0.1,0.25 --max-new-tokens 1
    ask world_foveated "world:gist,scene?grids=12x12" --seed 44000000 --limit 600 --budgets 0.25,0.5,full --methods arrcoc,foveated,resize
    ask world_900_foveated "$W" --seed 23000000 --limit 900 --budgets 0.25,0.5,full --methods arrcoc,foveated
    $python -m evaluation.swap --model checkpoints/arrcoc-small --baseline-weights checkpoints/baselines --limit 240 \
        --data "world:form,table,crowded,several_fields,chart?grids=12x12&questions=4" --methods arrcoc,query_blind,random --budgets 0.1,0.25 --out runs/swap
    ;;
stages)
    ask world_stages "$W" --limit 300 --budgets 0.05,0.1,0.25 --methods arrcoc,two_stage_40,two_stage_30
    ask world_900 "$W" --seed 3000000 --limit 900 --budgets 0.1 --methods arrcoc,two_stage,auto_stage
    for seed in 13000000:fresh 23000000:new; do
        ask world_900_${seed#*:} "$W" --seed ${seed%:*} --limit 900 --budgets 0.1,full --methods arrcoc,two_stage_40,two_stage,two_stage_30
    done
    ask world_3600_stages "$W" --seed 43003600 --limit 3600 --budgets 0.1 --methods arrcoc,two_stage_40,two_stage
    ;;
pages)
    ask tables "$T" --limit 300 --methods arrcoc,query_blind --budgets 0.05,0.1,0.25,full
    ask tables_compared "$T&compared=1" --limit 300 --methods arrcoc,query_blind --budgets 0.05,0.1,0.25,full
    shown tables_shown "$T" --limit 300 --methods arrcoc,query_blind,glimpse_prune --budgets 0.05,0.1,0.25 --max-new-tokens 1
    ask joined_tables "$T&together=4&joined=100" --seed 3000000 --limit 300 --methods arrcoc,query_blind --budgets 0.05,0.1,0.25 --max-new-tokens 1
    ask reason "$T&questions=lookup&reason=3" --limit 400 --methods arrcoc,query_blind --budgets 0.05,0.1,0.25 --max-new-tokens 1
    $python -m dev.label_places --out runs/labels
    shown label_places runs/labels --methods arrcoc,query_blind --budgets 0.05,0.1,0.25 --max-new-tokens 1
    ranks --data "world?grids=12x12&reworded=1=280" --data "$T&questions=lookup&reworded=1=120" --data "$T&questions=human&reworded=1=200" > runs/ranks_reworded.txt
    ranks --data "world?grids=12x12&beside=100=280" --data "$T&questions=lookup&beside=100=120" --data "$T&questions=human&beside=100=200" > runs/ranks_beside.txt
    ranks --tables "$tables" > runs/ranks.txt
    drawn=${BROWSER_PYTHON:-.app/bin/python}
    PYTHONPATH=. $drawn -m dev.browser_tables --tables "$tables" --out runs/browser
    PYTHONPATH=. $drawn -m dev.browser_pages --out runs/pages
    PYTHONPATH=. $drawn -m dev.browser_pages --size 384 512 --pages 72 --seed 2 --out runs/pages_big
    PYTHONPATH=. $drawn -m dev.browser_pages --size 192 192 --pages 100 --seed 1 --out runs/pages_square
    ask browser_tables runs/browser --methods arrcoc,query_blind,glimpse_prune,random --budgets 0.05,0.1,0.25 --max-new-tokens 1
    ask everyday runs/pages --limit 300 --methods arrcoc,query_blind,random --budgets 0.05,0.1,0.25 --max-new-tokens 1
    shown everyday_shown runs/pages --limit 300 --methods arrcoc,query_blind,glimpse_prune --budgets 0.05,0.1,0.25 --max-new-tokens 1
    ask everyday_two_stage runs/pages --limit 300 --methods two_stage --budgets 0.1,0.25 --max-new-tokens 1
    ranks --data runs/pages=600 --data runs/pages_big=600 --data runs/pages_square=600 > runs/everyday_ranks.txt
    ;;
long)
    ask world_14400 "$W" --seed 43000000 --limit 14400 --budgets 0.05,0.1,0.25 --methods arrcoc
    ;;
*)
    echo "there is no queue $queue; pass world, stages, pages or long" >&2
    exit 2
    ;;
esac
