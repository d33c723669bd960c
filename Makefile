# Each target works from a fresh clone: it makes .venv first when that is missing or older than its two lists.
# PYTHON: any Python >= 3.11. ARGS: flags for run and demo (make run ARGS="--listen 127.0.0.1:0").

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
SUITES ?=
CLUSTER_TESTS ?= tests/stream/test_life.py tests/stream/test_totals.py
PYTEST_FLAGS ?= -q --timeout=600
BENCHMARKS ?= pgbench big_result freshness jobs

BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest $(PYTEST_FLAGS)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo run broker test test-unit test-pg test-kernel test-stream test-kills test-random test-clients test-cluster test-drivers fuzz differential chaos soak leaks jars check format bless docs bench bench-peers clean

help:
	@echo "make demo     see page views flow from Kafka into a materialized view (Ctrl-C stops it)"
	@echo "make run      run the server on 127.0.0.1:5433"
	@echo "make broker   run a Kafka broker on 127.0.0.1:9092, to try things out"
	@echo "make test     all tests; by price: test-unit test-clients test-kernel test-random test-pg test-kills test-stream"
	@echo "make test-cluster  a Spark cluster whose executors and workers are killed, some stream tests on one (CLUSTER_TESTS=tests/stream: all)"
	@echo "make test-drivers  suites that drivers bring along, directly and through pgstream; SUITES=\"psycopg2 pgx\" for some"
	@echo "make fuzz     changed sessions of real clients against a real door, until Ctrl-C (ARGS=\"--minutes 60 --seed x\")"
	@echo "make differential  thousands of random queries against PostgreSQL (ARGS=\"--cases 500\", \"--case 17\" for one again)"
	@echo "make chaos    a thousand kills of worker, server, broker and PostgreSQL under load (ARGS=\"--minutes 5 --first 700\")"
	@echo "make soak     random statements and deaths against one server, looked at all the time (ARGS=\"--minutes 60 --seed x\")"
	@echo "make leaks    500 times something is made and taken away: what is left is told, and fails (ARGS=\"--cycles 60\")"
	@echo "make check    formatting, lint, types, imports"
	@echo "make format   what make check asks for, where a tool can do it"
	@echo "make bless    rewrite the expectations of the data-driven tests; read the diff"
	@echo "make docs     rewrite the pages that come from tables in the code"
	@echo "make bench    the benchmarks, one after another"
	@echo "make bench-peers  four jobs and freshness beside Flink SQL and Pathway, which are fetched"
	@echo "make clean    remove .venv and caches; data in .pgstream stays"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.x")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[dev]'
	@$(BIN)/python -m pgstream.embedded.java >/dev/null 2>&1 || { echo "no Java 17 or 21 here: installing one into $(VENV)"; $(PIP) --editable '.[dev,java]'; }
	@touch $@

install: $(READY)

demo: $(READY)
	@$(BIN)/pgstream demo $(ARGS)

run: $(READY)
	@$(BIN)/pgstream serve $(ARGS)

broker: $(READY)
	@$(BIN)/pgstream broker --port 9092 $(ARGS)

jars: $(READY)
	@$(BIN)/pgstream jars --broker --warm

test: test-unit test-stream test-pg test-kernel test-kills test-clients test-random

test-unit: $(READY)
	$(PYTEST) tests/unit

test-pg: jars
	$(PYTEST) tests/pg tests/fuzz

test-stream: jars
	$(PYTEST) tests/stream $(addprefix --ignore=tests/stream/,formats functions kernel chaos differential)

test-kernel: jars
	$(PYTEST) $(addprefix tests/stream/,formats functions kernel)

# Processes of their own: with their own broker and PostgreSQL they run beside the others (.ci/run).
test-kills: jars
	$(PYTEST) tests/stream/chaos

test-random: jars
	$(PYTEST) tests/stream/differential

test-clients: jars
	$(PYTEST) tests/clients

# Pools on a Spark standalone cluster, which PySpark's own jars are; then, where any are named, others on one. Minutes;
# not part of make test.
test-cluster: jars
	$(PYTEST) tests/cluster
	$(if $(CLUSTER_TESTS),$(BIN)/python -m tests.cluster.standalone $(PYTEST) $(CLUSTER_TESTS))

# Fetched from the registries; an hour. Not part of make test.
test-drivers: jars
	$(BIN)/python -m tests.drivers $(SUITES)

fuzz: $(READY)
	@$(BIN)/python -m tests.fuzz $(ARGS)

differential: jars
	@$(BIN)/python -m tests.stream.differential $(ARGS)

chaos: jars
	@$(BIN)/python -m tests.stream.chaos $(ARGS)

soak: jars
	@$(BIN)/python -m tests.soak $(ARGS)

leaks: jars
	@$(BIN)/python -m tests.stream.leaks $(ARGS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bless: jars
	$(PYTEST) --bless tests/unit tests/pg tests/stream

docs: $(READY)
	$(BIN)/python docs/generate.py

bench: jars
	@set -e; for benchmark in $(BENCHMARKS); do echo "== $$benchmark"; $(BIN)/python -m benchmarks.$$benchmark; done

bench-peers: jars
	$(BIN)/python -m benchmarks.jobs --peers
	$(BIN)/python -m benchmarks.freshness --peers

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
