# One verb each. `make demo` and `make test` work as the first command on a fresh machine with Python >= 3.10.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --no-compile
# What is imported is compiled at its first import, and only there. Where the environment forbids to keep that, as images for
# containers often do, every process would compile all of it again, for longer than the rest of its start takes.
unexport PYTHONDONTWRITEBYTECODE
# two workers, each with one end of the list: what a file's tests share is made once, and who is done takes from the other
TWO := -n 2 --dist worksteal
TORCH := torch==2.13.0
TORCHVISION := .torchvision/0.28.0
LMMS := .lmms/0.7.3
QUANT := .quant
APP := .app

HAS_BROWSER := which chromium chromium-browser google-chrome | grep -q .

IMAGE ?= demo/page.png
BUDGET ?= 16
MODEL ?= checkpoints/arrcoc-small
DATA ?= world
GEOMETRY ?= 2b
EVALUATED ?= world?grids=12x12
QUESTION ?=

# What a user passes reaches the program letter by letter: make expands no $ in it, the shell no & or quotes.
$(foreach name,IMAGE QUESTION BUDGET MODEL DATA GEOMETRY EVALUATED,$(eval override $(name) := $$(value $(name))))
quoted = '$(subst ','\'',$(1))'

.PHONY: demo app apart browser packages test app-test docs-test lmms lmms-test lint types matrix upstream train allocator evaluate figures stage check benchmark clean

demo: $(VENV)/.installed
	$(BIN)/python -m demo.answer --image $(call quoted,$(IMAGE)) $(if $(QUESTION),--question $(call quoted,$(QUESTION))) \
	    --budget $(call quoted,$(BUDGET)) --model $(call quoted,$(MODEL))

app: $(APP)/.installed
	$(APP)/bin/python -m demo.app --model $(call quoted,$(MODEL))

# with lmms-eval's own command, too, where `make lmms` has set it up
test: packages
	OMP_NUM_THREADS=1 ARRCOC_TORCHVISION=$(CURDIR)/$(TORCHVISION) ARRCOC_LMMS=$(wildcard $(CURDIR)/$(LMMS)) \
	    ARRCOC_QUANT=$(CURDIR)/$(QUANT) $(BIN)/python -m pytest $(TWO)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# all that tests need, and lint and types with them
packages: $(VENV)/.dev $(TORCHVISION) $(QUANT)

# what stands in folders of its own, beside $(VENV), and is fetched without what it depends on: may be set up while something runs
# from there
apart: $(TORCHVISION) $(QUANT)

# of the system, where it has one
browser:
	$(HAS_BROWSER) || apt-get install -y -qq chromium > /dev/null 2>&1 || true

app-test: browser $(APP)/.tested $(VENV)/.dev
	$(HAS_BROWSER) || $(APP)/bin/playwright install --with-deps chromium \
	    || echo 'no browser to be had: its tests are skipped'
	OMP_NUM_THREADS=1 $(APP)/bin/python -m pytest tests/test_app_page.py tests/test_browser_tables.py tests/test_browser_pages.py tests/test_browser_training.py

docs-test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_docs.py

lmms: $(LMMS)

lmms-test: $(VENV)/.dev $(LMMS)
	OMP_NUM_THREADS=1 ARRCOC_LMMS=$(CURDIR)/$(LMMS) $(BIN)/python -m pytest tests/test_lmms.py

matrix: $(VENV)/.dev $(QUANT)
	ARRCOC_QUANT=$(CURDIR)/$(QUANT) $(BIN)/python dev/matrix.py

# transformers' own tests of Qwen3-VL on our class; downloads the sdist of the installed release
upstream: $(VENV)/.dev
	$(BIN)/python dev/upstream_tests.py

# after MINUTES the learning rate falls and it ends, without it goes on until it is stopped; the same command takes it up again
train: $(VENV)/.train
	$(BIN)/python -m training.train_base --out runs/base $(if $(MINUTES),--minutes $(MINUTES)) $(if $(wildcard runs/base/state.pt),--resume)

allocator: $(VENV)/.train
	$(BIN)/python -m training.train_allocator --model $(call quoted,$(MODEL)) --reset \
	    --data $(foreach spec,$(DATA),$(call quoted,$(spec))) \
	    --ahead 1500 --questions 8 --steps 2000 --batch-size 64 --out runs/allocator

evaluate: $(VENV)/.train
	$(BIN)/python -m evaluation.run --model $(call quoted,$(MODEL)) --data $(call quoted,$(EVALUATED)) --limit 330 --out runs/evaluation

figures: $(VENV)/.train
	$(BIN)/python -m demo.figures

stage: $(VENV)/.installed
	$(BIN)/python upload.py stage staged --checkpoint $(call quoted,$(MODEL))

types: $(VENV)/.dev
	rm -rf build/checked
	$(BIN)/python upload.py stage build/checked --checkpoint $(call quoted,$(MODEL))
	cd build && ../$(BIN)/mypy --config-file ../pyproject.toml -p checked

check: lint types
	$(BIN)/python upload.py check build/checked

benchmark: $(VENV)/.train
	$(BIN)/python -m benchmarks.prefill --geometry $(call quoted,$(GEOMETRY)) --growth --out $(call quoted,results/prefill_$(GEOMETRY))

clean:
	rm -rf $(VENV) .torchvision .lmms .quant .app .matrix build staged demo/out

# torch comes first, in a release that is tested here; where pip knows an index of CPU builds its build without CUDA. MAKE_TORCH=torch for the newest.
$(VENV)/.installed: pyproject.toml
	python3 -m venv $(VENV)
	$(PIP) $(or $(MAKE_TORCH),$(TORCH))
	$(PIP) -e '.[demo]'
	touch $@

# Gradio asks for an older pillow than the rest runs with: an environment that sees the other's packages and holds what differs.
$(APP)/.installed: $(VENV)/.installed
	$(BIN)/python -c "from dev.matrix import share; share('$(APP)')"
	$(APP)/bin/pip install --quiet --no-compile 'arrcoc[app]'
	touch $@

$(APP)/.tested: $(APP)/.installed
	$(APP)/bin/pip install --quiet --no-compile 'playwright>=1.50'
	touch $@

# `arrcoc[...]` is what stands there already, editable, and is not built once more
$(VENV)/.train: $(VENV)/.installed
	$(PIP) 'arrcoc[train,eval]'
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(PIP) 'arrcoc[train,eval,dev]'
	touch $(VENV)/.train $@

# Video needs torchvision, which has no CPU build for this torch; its wheel without dependencies is enough for the tests.
$(TORCHVISION): $(VENV)/.installed
	$(PIP) --no-deps --upgrade --target $@ torchvision==0.28.0
	touch $@

# The extra `quant`, apart from the other packages: transformers imports torchao wherever it is installed, and all processes that
# tests start would wait for it (dev/LOG.md).
$(QUANT): $(VENV)/.installed
	$(PIP) --no-deps --upgrade --target $@ 'bitsandbytes>=0.48' 'torchao>=0.15'
	touch $@

# lmms-eval asks for CUDA's torch and more; these are enough for its command on a local task. It reaches into filelock, as that was before 4.3.
# At each start it would read all of its own tasks.
$(LMMS): $(VENV)/.installed
	$(PIP) --no-deps --upgrade --target $@ lmms-eval==0.7.3 'filelock<4.3' chardet colorama DataProperty loguru lxml mbstrdecoder \
	    pathvalidate portalocker pytablewriter pytz sacrebleu sqlitedict tabledata tabulate tcolorpy tenacity typepy
	find $@/lmms_eval/tasks -name '*.yaml' -delete
	touch $@
