# Needs Python 3.11 or newer with venv, and make. Everything else is installed into .venv by the first target that needs it.
PYTHON ?= python3
PIP_ARGS ?=
LOWEST_TESTS ?= $(addprefix tests/test_,trace.py hub.py cache.py accept.py equivalence.py heads.py head_modules.py)
LAB_ARGS ?= $(if $(filter 0,$(shell id -u)),--allow-root)

# In the activated conda environment of environment.yml its own programs are used; everywhere else those of .venv.
ifeq ($(CONDA_DEFAULT_ENV),specviz)
BIN := $(CONDA_PREFIX)/bin
READY :=
READY_FOR_ALL :=
else
BIN := .venv/bin
READY := .venv/.installed
READY_FOR_ALL := .venv/.installed-all
endif

FAST := not slow and not browser
SHARE ?= 1
NBVAL = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadscope --nbval
CORE_NOTEBOOKS := $(wildcard notebooks/0[0-3]_*.ipynb)
NOTEBOOKS = $(sort $(shell find notebooks -name '*.ipynb' -not -path '*/.*'))
# All but those that need a GPU, an older checkout, a library of their own, or that draw.
SCRIPTS = $(filter-out measure tables replay corpus tables beside beside_openvino pictures,$(basename $(notdir $(wildcard figures/make/*.py))))
# Linux only; elsewhere a notebook may take all cores.
TWO_CORES = $(shell command -v taskset > /dev/null && echo taskset -c 0,1)

.DEFAULT_GOAL := help
.PHONY: help lab demo test lowest unit browser programs nightly fuzz soak lint types check-notebooks time-notebooks planted notebooks figures scripts bench families paint js licences wheel clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  PYTHON=python3.12      the interpreter to build .venv with"
	@echo "  SHARE=3                with nightly: about every third of the slow cases only"
	@echo "  PIP_ARGS='...'         more arguments for pip; torch without CUDA on Linux:"
	@echo "                         --extra-index-url https://download.pytorch.org/whl/cpu"

lab: $(READY) ## open the quickstart notebook in JupyterLab
	$(BIN)/jupyter lab $(LAB_ARGS) notebooks/00_quickstart.ipynb

demo: $(READY) ## decode a few prompts with the embedded pair
	$(BIN)/specviz demo

test: $(READY_FOR_ALL) lint types unit ## the fast checks: lint, types, unit tests, notebooks 00 to 03
	$(NBVAL) $(CORE_NOTEBOOKS)

unit: $(READY_FOR_ALL) ## the fast tests, without a browser and notebooks
	$(BIN)/python -m pytest -n auto -m "$(FAST)" --ignore tests/test_bench_ray.py

nightly: $(READY_FOR_ALL) ## what `make test` leaves out: browser, slow tests (kills, full disks, wheel, a short soak), Ray, other notebooks
	$(BIN)/python -m pytest -n auto -m "slow or browser or programs" --share $(SHARE) --ignore tests/test_bench_ray.py
	$(BIN)/python -m pytest tests/test_bench_ray.py # Ray starts workers of its own
	$(NBVAL) $(filter-out $(CORE_NOTEBOOKS),$(NOTEBOOKS))

browser: $(READY_FOR_ALL) ## the tests in Chromium or Chrome
	$(BIN)/python -m pytest -n auto -m "browser or programs"

programs: $(READY_FOR_ALL) ## of the fast tests, those that need Chromium or node
	$(BIN)/python -m pytest -n auto -m "programs and not slow"

check-notebooks: $(READY) ## run every notebook again and compare with its stored outputs
	$(NBVAL) $(NOTEBOOKS)

time-notebooks: $(READY) ## run the notebooks on two cores, one after the other, and print the seconds of each: at most 60; NOTEBOOKS=... for some
	@for each in $(NOTEBOOKS); do \
	  begin=$$(date +%s); \
	  $(TWO_CORES) $(BIN)/jupyter nbconvert --to notebook --execute --stdout --log-level ERROR \
	    --ExecutePreprocessor.kernel_name=python3 $$each > /dev/null || exit 1; \
	  echo "$$(($$(date +%s) - begin)) s  $$each"; \
	done

lowest: .venv-lowest/.installed ## a part of the tests with the oldest supported transformers and its hub library
	.venv-lowest/bin/python -m pip check
	.venv-lowest/bin/python -m pytest -o addopts=-ra -n 2 -m "not slow" $(LOWEST_TESTS)

fuzz: $(READY) ## ten minutes and 100,000 damaged records: each is refused or can be read
	PYTHONPATH=tests $(BIN)/python -m trace_fuzz --inputs 100000 --seconds 600 $(FUZZ_ARGS)

planted: $(READY) ## plant known bugs, one at a time: the fast tests have to catch each; after thinning out tests
	PYTHONPATH=tests $(BIN)/python -m planted_bugs

lint: $(READY) ## style, format, and which room imports which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: $(READY) ## types, by mypy
	$(BIN)/mypy

notebooks: $(READY) ## run all notebooks again, in order, and save their outputs
	$(BIN)/jupyter nbconvert --to notebook --execute --inplace --ExecutePreprocessor.kernel_name=python3 \
	  --ExecutePreprocessor.record_timing=False --ExecutePreprocessor.store_widget_state=False $(NOTEBOOKS)

figures: $(READY) ## draw the figures again
	$(BIN)/python figures/make/pictures.py
	PYTHONPATH=tests $(BIN)/python -m browser.screenshots

bench: $(READY) ## measure all strategies and baselines on this machine; goes on where it was interrupted
	$(BIN)/python figures/make/bench.py bench

scripts: $(READY) ## try every script of figures/make at a small size; takes half an hour
	@for each in $(SCRIPTS); do $(BIN)/python figures/make/$$each.py --small || exit 1; done

families: $(READY) ## build every family of causal LMs tiny, decode with it, and write figures/data/families.csv; takes half an hour
	PYTHONPATH=tests:figures/make OMP_NUM_THREADS=1 $(BIN)/python -m families

paint: $(READY) ## measure on this machine how fast the step-through opens and paints
	PYTHONPATH=tests $(BIN)/python -m browser.measure

js: ## check the types and style of the JavaScript, test it, and write the bundle; fails if the committed one was not current
	npm --prefix js ci --silent
	npm --prefix js run --silent check
	git diff --exit-code --stat -- specviz/views/stepper/static/stepper.js

soak: $(READY) ## decode 2,000 prompts by each valid strategy and compare all texts; takes some minutes
	$(BIN)/python -m pytest -m soak tests/test_soak.py

licences: $(READY) ## write build/licences.md from the packages that are installed
	PYTHONPATH=tests $(BIN)/python -m licences

wheel: $(READY) ## build the wheel, install it into an empty environment and run the demo there
	rm -rf build dist
	$(BIN)/python -m build --wheel
	$(BIN)/python -m venv build/venv
	build/venv/bin/python -m pip install -c constraints.txt $(PIP_ARGS) dist/*.whl
	cd build && venv/bin/specviz demo

clean: ## remove .venv, builds and caches
	rm -rf .venv .venv-lowest build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch goes first, so that nothing else can ask for another build of it.
.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "specviz needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	@echo "installing into .venv; the first time takes some minutes"
	.venv/bin/python -m pip install -q -c constraints.txt $(PIP_ARGS) torch
	.venv/bin/python -m pip install -q -c constraints.txt $(PIP_ARGS) -e '.[lab,servers,dev]'
	@touch $@

# What only some tests need.
.venv/.installed-all: .venv/.installed
	.venv/bin/python -m pip install -q -c constraints.txt $(PIP_ARGS) -e '.[lab,ray,servers,dev]'
	@touch $@

# Of constraints.txt, all but what constraints-lowest.txt pins otherwise.
.venv-lowest/.installed: pyproject.toml constraints.txt constraints-lowest.txt
	$(PYTHON) -m venv .venv-lowest
	awk -F'==' '!/==/ {next} NR == FNR {low[$$1]; print; next} !($$1 in low)' constraints-lowest.txt constraints.txt > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install -q -c .venv-lowest/constraints.txt $(PIP_ARGS) torch
	.venv-lowest/bin/python -m pip install -q -c .venv-lowest/constraints.txt $(PIP_ARGS) -e . hypothesis pytest pytest-xdist
	@touch $@
