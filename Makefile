# One command for each thing a person wants. `make help` lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
# A supported Python that really starts (a version manager may leave names that do not).
PYTHON ?= $(firstword $(foreach p,python3.13 python3.12 python3.11 python3.14 python3,\
	$(shell command -v $(p) >/dev/null && $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
TORCH ?= torch==2.13.0 numpy pillow
JOB ?= examples/resnet50/job.yml
MINUTES ?= 20
RUNS ?= 1000
STEPS ?= 10000000
REAL_STEPS ?= 100000
SECONDS_OF_FUZZ ?= 1200
# How many processes run tests: two where there are two cores (tests/conftest.py); 0 is this one.
WORKERS ?= auto
# A worker that dies ends the tests: with one in its place the others may wait for ever.
PYTEST = $(BIN)/pytest -n $(WORKERS) --max-worker-restart 0
# What also runs on macOS: everything that a client of a team's server needs.
CLIENT_ROOMS := cli client sdk host job wire runtime launch control diagnosis environments clusters
BENCHES := imports start launch queue listings headroom logs reading metrics files copies tunnel memory scheduler restart kills checkpoint training environments slurm storage ray scoring rolling door portal names

.PHONY: help demo screenshots test types bare system check unit integration fuzz frameworks environments images site format bench second-kernel chaos simulate soak release sbom lock clean

help: ## list these targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.torch ## train ResNet-50 on two nodes of this machine
	$(BIN)/muster run $(JOB)

screenshots: $(VENV)/.dev ## pictures of the portal for the documents, in docs/images
	$(BIN)/python -m tools.portal_screenshots

test: $(VENV)/.dev $(VENV)/.torch ## unit and integration tests
	$(PYTEST) tests/unit tests/verdicts tests/integration

system: ## install what the tests need of the system (Debian packages, as root)
	.ci/install

bare: $(VENV)/.dev ## some of the tests as on a machine without the system's tools
	.ci/bare $(BIN)

unit: $(VENV)/.dev ## the fast tests alone
	$(BIN)/pytest tests/unit tests/verdicts

integration: $(VENV)/.dev $(VENV)/.torch ## the tests with real processes
	$(PYTEST) tests/integration

fuzz: $(VENV)/.dev ## try to make the server fail with requests made from its own document, for SECONDS_OF_FUZZ
	MUSTER_TEST_FUZZ_S=$(SECONDS_OF_FUZZ) $(BIN)/pytest -n 0 --timeout 0 tests/integration/fuzz

frameworks: $(VENV)/.dev ## train with every framework, and write down which versions ran
	$(BIN)/python tests/frameworks/environments.py
	$(BIN)/pytest tests/frameworks --record

environments: $(VENV)/.dev ## build each curated environment (NAMES="sklearn jax": some), train on two ranks in it, write the table down
	$(BIN)/python -m tests.frameworks.curated $(NAMES)

images: $(VENV)/.dev ## build an image for each framework (NAMES="pytorch": some); REGISTRY=host/team pushes, BASE=image stands in for Debian
	$(BIN)/python -m tools.images $(NAMES) $(if $(BASE),--base $(BASE)) $(if $(REGISTRY),--registry $(REGISTRY))

check: $(VENV)/.dev $(VENV)/.torch ## format, lint, types, import layers, ceilings of size, exported names
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin --follow-imports silent $(CLIENT_ROOMS:%=-p muster.%)
	$(BIN)/pytest tests/unit/test_layers.py tests/unit/test_house.py tests/unit/test_exports.py

types: $(VENV)/.dev ## the portal's modules, checked by TypeScript against the REST API
	$(BIN)/python -m tools.portal_types

site: $(VENV)/.dev ## the documents as a site, in build/site
	$(BIN)/mkdocs build --strict --quiet
	$(BIN)/python -m tools.offline_site build/site

format: $(VENV)/.dev ## put the code in form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.torch ## measure; results go to bench/results
	@for name in $(BENCHES); do $(BIN)/python -m bench.$$name || exit 1; done

release: $(VENV)/.dev ## build a wheel and an sdist, and run the quick start from the wheel in a fresh environment
	$(BIN)/python -m tools.release

sbom: $(VENV)/.dev ## print what a release is made of (CycloneDX)
	@$(BIN)/python -m tools.sbom

lock: $(VENV)/.dev ## pin the packages of releases and tests by hashes
	@mkdir -p locks
	$(BIN)/uv pip compile pyproject.toml --universal --generate-hashes --quiet --no-header --upgrade -o locks/base.txt
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --generate-hashes --quiet --no-header --upgrade -o locks/dev.txt

second-kernel: $(VENV)/.dev ## as root: a node in a virtual machine mounts a file server with its kernel's NFS client; fetches a kernel with apt
	$(BIN)/python -m tests.sites.second_kernel

chaos: $(VENV)/.dev ## inject faults by seed: GROUND=local SEED=7 repeats one; MINUTES=60 LANES=12 goes on where it stopped
	$(BIN)/python -m tests.chaos $(if $(GROUND),--ground $(GROUND)) $(if $(GROUNDS),--ground $(GROUNDS)) \
		$(if $(SEED),--seed $(SEED)) $(if $(LANES),--lanes $(LANES)) --minutes $(MINUTES)
	$(BIN)/python -m tests.chaos.report

simulate: $(VENV)/.dev ## ten million steps of the decisions, and 100,000 around the real server
	$(BIN)/python -m tests.simulated --steps $(STEPS)
	$(BIN)/python -m tests.simulated --server real --steps $(REAL_STEPS)

soak: $(VENV)/.dev ## many small runs: memory, descriptors, log and disk stay flat; MINUTES=120 RUNS=10000 is the long one
	$(BIN)/python -m tests.chaos.soak --runs $(RUNS) --minutes $(MINUTES)

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
	@$(BIN)/python -c 'import torch, numpy, PIL' 2>/dev/null || { echo "installing $(TORCH) (this takes a while)"; $(PIP) $(TORCH); }
	@touch $@
