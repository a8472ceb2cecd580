# `make demo` and `make test` need Python 3.11 or newer and make; everything else they install into .venv by themselves.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# To choose the interpreter: make PYTHON=/path/to/python3.12 demo
PYTHON ?=
PYTHONS := $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14 python

# Spark's Python workers must be this interpreter, and its driver must not depend on how the machine's name resolves.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
export SPARK_LOCAL_IP := 127.0.0.1
export SPARK_LOCAL_HOSTNAME := localhost

DEMO_ARGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
CHAOS_ARGS ?=

.PHONY: help demo demo-s3 test proof chaos lint format bench clean

help:  ## what there is
	@grep -hE '^[a-z0-9-]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: $(VENV)/demo.stamp  ## a year of flights through Spark, with crashes, reruns and races; every flight once
	@$(BIN)/python -m manifestcommit.demo $(DEMO_ARGS)

demo-s3: $(VENV)/dev.stamp  ## the same on a real S3 server (Ceph RGW), which it starts and ends
	@$(BIN)/python -m tests.servers demo $(DEMO_ARGS)

# Two runs instead of pytest-xdist's groups: under pytest 9.2, xdist 3.8 takes `--dist loadgroup` and groups nothing, silently, and
# two workers with a session and a cluster each are too much for two cores. The runs go side by side, since each waits for much;
# what the one with Spark says is printed when the other is done. Both are made, whatever either says, and both end if make does.
#
# First the real servers that tests run against, and what lets Spark start quickly: installing them may take minutes, once, and no
# test's time limit covers that.
test: lint  ## lint and all tests
	@$(BIN)/python -m tests.servers
	@$(BIN)/python -m tests.spark.archive
	@failed=; said=$$(mktemp); \
	$(BIN)/python -m pytest -m spark $(PYTEST_ARGS) >"$$said" 2>&1 & spark=$$!; \
	trap 'kill $$spark 2>/dev/null; rm -f "$$said"' EXIT; trap 'exit 130' INT TERM; \
	echo "--- tests without Spark, on two workers, beside those with Spark, one after another"; \
	$(BIN)/python -m pytest -n 2 -m "not spark" $(PYTEST_ARGS) || failed="$$failed tests-without-Spark"; \
	wait $$spark || failed="$$failed tests-with-Spark"; \
	echo "--- tests with Spark"; cat "$$said"; \
	if [ -n "$$failed" ]; then echo "--- FAILED:$$failed (ruff and mypy passed)" >&2; exit 1; fi; \
	echo "--- passed: ruff check, ruff format, mypy --strict, tests without Spark, tests with Spark"

proof: $(VENV)/dev.stamp  ## hours: every test at its full size, the model at its larger one, long chaos, races, mutants and fuzzing
	@$(BIN)/python -m tests.servers
	@$(BIN)/python -m tests.spark.archive
	@failed=; \
	PROOF=1 $(BIN)/python -m pytest -n 2 -m "not spark" $(PYTEST_ARGS) || failed="$$failed tests-without-Spark"; \
	PROOF=1 $(BIN)/python -m pytest -m spark $(PYTEST_ARGS) || failed="$$failed tests-with-Spark"; \
	$(BIN)/python -m tests.chaos $(CHAOS_ARGS) || failed="$$failed chaos"; \
	$(BIN)/python -m tests.races --rounds 100 --store both || failed="$$failed races"; \
	$(BIN)/python -m tests.mutants || failed="$$failed mutants"; \
	$(BIN)/python -m tests.fuzz --minutes 30 || failed="$$failed fuzzing"; \
	if [ -n "$$failed" ]; then echo "--- FAILED:$$failed" >&2; exit 1; fi; \
	echo "--- passed: all tests at their full size, chaos, races, mutants, fuzzing"

chaos: $(VENV)/dev.stamp  ## ten minutes of kills, stops and lost answers on a local disk, then on S3; CHAOS_ARGS="--minutes 10 --seed 7"
	@$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

lint: $(VENV)/dev.stamp  ## ruff check, ruff format --check, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp  ## put the code into its standard form
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/bench.stamp  ## every benchmark, one after another; BENCH_ARGS=--quick for a first look
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

clean:  ## remove .venv and everything that tools left behind
	@rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# One stamp per set of extras: pip runs again only when pyproject.toml has changed.
$(VENV)/demo.stamp: pyproject.toml | $(BIN)/python
	@echo "--- installing manifestcommit[demo] into $(VENV) (minutes the first time: Spark is large)"
	@$(PIP) install -e '.[demo]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	@echo "--- installing manifestcommit[dev] into $(VENV) (minutes the first time: Spark is large)"
	@$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/demo.stamp

$(VENV)/bench.stamp: $(VENV)/dev.stamp
	@echo "--- installing the peers of the benchmarks into $(VENV)"
	@$(PIP) install -e '.[bench]'
	@touch $@

$(BIN)/python:
	@for candidate in $(PYTHONS); do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    if ! "$$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
	      echo "$$candidate has no venv or no ensurepip module, so $(VENV) cannot be made." >&2; \
	      echo "On Debian and Ubuntu: apt install python3-venv (or python3.12-venv and so on, for the version used)." >&2; \
	      exit 1; \
	    fi; \
	    echo "--- creating $(VENV) with $$candidate ($$("$$candidate" --version))"; \
	    rm -rf $(VENV); \
	    exec "$$candidate" -m venv $(VENV); \
	  fi; \
	done; \
	echo "No Python 3.11 or newer was found (tried: $(PYTHONS))." >&2; \
	echo "Install one, or name it: make PYTHON=/path/to/python3.12 demo" >&2; \
	exit 1
