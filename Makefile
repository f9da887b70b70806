# Everything a fresh clone needs: Python 3.11+ and make. `make` alone lists the targets.

PYTHON    ?= $(shell command -v python3.11 || command -v python3)
VENV      := .venv
BENCH     := .venv-bench

# One stamp per environment: a changed dependency list reinstalls, an unchanged one costs nothing.
USER_ENV  := $(VENV)/.installed-all
DEV_ENV   := $(VENV)/.installed-dev
DOCS_ENV  := $(VENV)/.installed-docs
BENCH_ENV := $(BENCH)/.installed
LISTS     := pyproject.toml viewer/pyproject.toml paper/pyproject.toml constraints.txt
PARALLEL  := --numprocesses auto --dist worksteal
# Python compiles what it imports, and keeps it: pip would compile every module of every package, for a minute.
PIP       := -m pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-triton test-gpu coverage lint format types bench bench-gpu bench-compare results docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' Makefile

demo: $(USER_ENV) ## install, denoise real digits with every decoder, write out/digits/report.html
	$(VENV)/bin/locpmap reproduce digits --output out/digits

test: $(DEV_ENV) ## install, run the whole suite on all cores
	$(VENV)/bin/python -m pytest $(PARALLEL) $(ARGS)

test-triton: $(DEV_ENV) ## the kernels for GPUs in Triton's interpreter, on the CPU
	TRITON_INTERPRET=1 $(VENV)/bin/python -m pytest $(PARALLEL) tests/triton $(ARGS)

test-gpu: ## the same on a GPU, recorded, with whatever Python has torch and triton: make test-gpu PYTHON=python3
	PYTHONPATH=src:. $(PYTHON) -m benchmarks.gpu_tests $(ARGS)

coverage: $(DEV_ENV) ## the suite with line coverage of all packages; fails below the floor in pyproject.toml
	$(VENV)/bin/python -m pytest $(PARALLEL) --cov --cov-report=term:skip-covered -m "not slow" $(ARGS)

lint: $(DEV_ENV) ## ruff (rules and format), codespell, and proselint on the pages
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/codespell
	$(VENV)/bin/proselint check --config .proselintrc.json --output-format compact *.md docs/*.md docs/decisions benchmarks viewer/README.md paper/README.md

format: $(DEV_ENV) ## ruff: rewrite the files in place
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

types: $(DEV_ENV) ## mypy on sources, tests, benchmarks and examples
	$(VENV)/bin/mypy

bench: $(BENCH_ENV) ## time against other libraries in their own environment (FAST=1: a smoke run)
	$(BENCH)/bin/python -m benchmarks.cpu $(if $(FAST),--fast)
	$(BENCH)/bin/python -m benchmarks.learning $(if $(FAST),--n-images 500)

bench-gpu: ## time decoding and learning on a GPU, recorded, likewise (PEERS=folder: see benchmarks/gpu_peers.py)
	PYTHONPATH=src:. $(PYTHON) -m benchmarks.gpu $(if $(PEERS),--peers $(PEERS)) $(ARGS)

bench-compare: $(DEV_ENV) ## compare the records under benchmarks/results with those of the last commit
	$(VENV)/bin/python -m benchmarks.compare $(ARGS)

results: $(USER_ENV) ## the full report of the runs recorded under results/: out/results/results.md; and docs/results.md
	mkdir -p out/results
	$(VENV)/bin/locpmap report results/mnist results/caltech results/stanford --markdown out/results/results.md
	$(VENV)/bin/python docs/result_tables.py

docs: $(DOCS_ENV) ## the pages and their gallery: docs/_build/html/index.html
	rm -rf docs/generated/api  # pages of names that are gone would stay
	$(VENV)/bin/python docs/decoder_tables.py
	$(VENV)/bin/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html $(ARGS)

clean: ## remove environments, caches and results of the demo
	rm -rf $(VENV) $(BENCH) out build dist docs/_build docs/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src viewer paper tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/bin/python $(BENCH)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and neither python3.11 nor python3 was found."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed; $(PYTHON) is older. Name another: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(patsubst %/bin/python,%,$@)
	$@ $(PIP) --upgrade pip  # the one that Python 3.11 bundles takes 25 seconds longer for what follows

# The interpreter is an order-only prerequisite: its date changes with every package that touches bin/.
$(USER_ENV): $(LISTS) | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP) --editable '.[all]' --editable viewer --editable paper
	@touch $@

$(DEV_ENV): $(LISTS) | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP) --editable '.[all,dev]' --editable viewer --editable paper
	@touch $@ $(USER_ENV)

$(DOCS_ENV): $(LISTS) | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP) --editable '.[docs]' --editable viewer --editable paper
	@touch $@ $(USER_ENV)

$(BENCH_ENV): $(LISTS) benchmarks/install_peers.py | $(BENCH)/bin/python
	$(BENCH)/bin/python -m benchmarks.install_peers
	@touch $@
