# One command for each thing a person wants. `make help` lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
# A supported Python that really starts (a version manager may leave names that do not).
PYTHON ?= $(firstword $(foreach p,python3.13 python3.12 python3.11 python3.14 python3,\
	$(shell command -v $(p) >/dev/null && $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
TORCH ?= torch==2.13.0 numpy
JOB ?= examples/resnet50/job.yml
# How many processes run tests: two where there are two cores (tests/conftest.py); 0 is this one.
WORKERS ?= auto
# A worker that dies ends the tests: with one in its place the others may wait for ever.
PYTEST = $(BIN)/pytest -n $(WORKERS) --max-worker-restart 0
BENCHES := imports start launch queue listings logs files tunnel memory scheduler restart kills checkpoint training environments slurm storage ray

.PHONY: help demo test check unit integration frameworks format bench clean

help: ## list these targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.torch ## train ResNet-50 on two nodes of this machine
	$(BIN)/muster run $(JOB)

test: $(VENV)/.dev $(VENV)/.torch ## unit and integration tests
	$(PYTEST) tests/unit tests/verdicts tests/integration

unit: $(VENV)/.dev ## the fast tests alone
	$(BIN)/pytest tests/unit tests/verdicts

integration: $(VENV)/.dev $(VENV)/.torch ## the tests with real processes
	$(PYTEST) tests/integration

frameworks: $(VENV)/.dev ## train with every framework, and write down which versions ran
	$(BIN)/python tests/frameworks/environments.py
	$(BIN)/pytest tests/frameworks --record

check: $(VENV)/.dev $(VENV)/.torch ## format, lint, types, import layers, ceilings of size, exported names
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest tests/unit/test_layers.py tests/unit/test_house.py tests/unit/test_exports.py

format: $(VENV)/.dev ## put the code in form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.torch ## measure; results go to bench/results
	@for name in $(BENCHES); do $(BIN)/python -m bench.$$name || exit 1; done

clean: ## remove what was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Stamp files: a part is installed again only when pyproject.toml changed.
$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "Muster needs Python 3.11 or newer. On Debian or Ubuntu: sudo apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments. On Debian or Ubuntu: sudo apt-get install $$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.base: $(VENV)/.created pyproject.toml
	@echo "installing Muster into $(VENV)"
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "installing the development tools"
	@$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.torch: $(VENV)/.base
	@$(BIN)/python -c 'import torch, numpy' 2>/dev/null || { echo "installing $(TORCH) (this takes a while)"; $(PIP) $(TORCH); }
	@touch $@
