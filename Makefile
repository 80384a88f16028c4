# Everything a person does with this repository. `make` alone says what there is.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Stamps remember a finished set-up; it is redone only when pyproject.toml changes.
STAMP_RUN := $(VENV)/.stamp-run
STAMP_DEV := $(VENV)/.stamp-dev
STAMP_BENCH := $(VENV)/.stamp-bench
STAMP_SPARK := $(VENV)/.stamp-spark

TYPED := $(wildcard src simulation tests benchmarks fuzz)
FAST := not slow and not crash and not root and not nightly
SEEDS ?= 200
SECONDS ?= 60
MINUTES ?= 0
PYTEST_ARGS ?=
ARGS ?=
# Tests start `helio` a thousand times: where nothing compiled is kept, each start costs twice as much.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help run demo test check lint types imports sim sim-plants sim-partitions nightly bench bench-model bench-order bench-cluster bench-alerts bench-spark bench-verifier bench-protocols fuzz coverage-of-spec docs format clean

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(STAMP_RUN) ## start a server on this machine (options: make run ARGS="--port 7701")
	@$(BIN)/helio serve $(ARGS)

demo: $(STAMP_SPARK) ## a server, traffic, and every data pipeline once; ends with a report to look at (needs Java 17)
	@$(BIN)/helio demo pipeline $(ARGS)

# pytest ends with 5 when there was nothing to run, which is no failure here.
test: $(STAMP_DEV) lint types imports ## every check and every test but the nightly ones
	$(BIN)/pytest -m "not nightly and not alone" --numprocesses 2 --dist loadgroup $(PYTEST_ARGS) || [ $$? -eq 5 ]
	$(BIN)/pytest -m "not nightly and alone" $(PYTEST_ARGS) || [ $$? -eq 5 ]

check: $(STAMP_DEV) lint types imports ## the same, quick tests only, in under a minute: units, and what is pinned by golden files
	$(BIN)/pytest -q -m "$(FAST)" tests/unit tests/golden tests/test_repository.py $(PYTEST_ARGS)

lint: $(STAMP_DEV) ## style and format, changing nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP_DEV) ## types, strictly
	$(BIN)/mypy $(TYPED)

imports: $(STAMP_DEV) ## the direction of imports, and engines kept free of I/O
	$(BIN)/lint-imports

sim: $(STAMP_DEV) ## a cluster and its clients on virtual time, under every fault, on all cores (SEEDS=200)
	$(BIN)/python -m simulation --workload cluster --seeds 0:$(SEEDS) --shrink --processes 0 --json
	$(BIN)/python -m simulation --workload sub-clusters --seeds 0:$$(( $(SEEDS) / 4 )) --shrink --processes 0 --json
	$(BIN)/python -m simulation --workload several-buses --seeds 0:$$(( $(SEEDS) / 8 )) --shrink --processes 0 --json

sim-plants: $(STAMP_DEV) ## bugs that are planted on purpose: which seed shows each, and by which checker (hours)
	$(BIN)/python -m simulation --workload cluster --seeds 0:500 --plants --processes 0
	$(BIN)/python -m simulation --workload sub-clusters --seeds 0:500 --plants --processes 0
	$(BIN)/python -m simulation --workload partitions --seeds 0:2000 --plants --processes 0
	$(BIN)/python -m simulation --workload feed --seeds 0:500 --plants --processes 0

sim-partitions: $(STAMP_DEV) ## the same while the network is cut into parts and healed (SEEDS=2000)
	$(BIN)/python -m simulation --workload partitions --seeds 0:$(SEEDS) --shrink --story --processes 0 --json
	$(BIN)/python -m simulation --workload feed --seeds 0:$$(( $(SEEDS) / 8 )) --shrink --story --processes 0 --json

nightly: $(STAMP_DEV) ## the long tests
	HELIO_EXAMPLES=new $(BIN)/pytest -m nightly $(PYTEST_ARGS) || [ $$? -eq 5 ]

bench: $(STAMP_BENCH) ## measure Heliograph and its peers side by side
	$(BIN)/python -m benchmarks $(ARGS)

bench-model: $(STAMP_BENCH) ## measure selectors, durable subscriptions, transactions (beside ActiveMQ), a stopped consumer
	$(BIN)/python -m benchmarks.messaging_model $(ARGS)

bench-order: $(STAMP_BENCH) ## measure units of order: throughput, a million waiting, one that is stuck
	$(BIN)/python -m benchmarks.unit_of_order $(ARGS)

bench-cluster: $(STAMP_BENCH) ## measure a replicated queue beside RabbitMQ's and NATS's, and what backups and connections cost
	$(BIN)/python -m benchmarks.cluster $(ARGS)

bench-alerts: $(STAMP_BENCH) ## measure alerts: publishing, newcomers and cancels among 100,000 live and 10,000 subscriptions
	$(BIN)/python -m benchmarks.alerts $(ARGS)

bench-spark: $(STAMP_BENCH) ## measure what Spark reads from a server beside what it reads from memory (needs Java 17)
	$(BIN)/python -m benchmarks.spark $(ARGS)

bench-protocols: $(STAMP_BENCH) ## measure paho-mqtt, stomp.py and Proton through Heliograph beside Mosquitto, ActiveMQ and Artemis
	$(BIN)/python -m benchmarks.protocols $(ARGS)

bench-verifier: $(STAMP_DEV) ## measure what it costs a member of a clustered consumer to ask whose a message is
	$(BIN)/python -m benchmarks.verifier $(ARGS)

fuzz: $(STAMP_DEV) ## bytes that nobody would think of, for every parser (SECONDS=60 each; MINUTES=24 of processor time in all runs)
	$(BIN)/python -m pip install --quiet 'atheris>=2.3'
	$(BIN)/python -m fuzz --seconds $(SECONDS) --minutes $(MINUTES) $(ARGS)

coverage-of-spec: $(STAMP_DEV) ## each requirement with the tests that prove it (PYTEST_ARGS=--collect-only lists without running)
	@$(BIN)/pytest --coverage-of-spec -q -m "not nightly" $(PYTEST_ARGS) || [ $$? -eq 5 ]

docs: $(STAMP_DEV) ## build the documentation site into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(STAMP_DEV) ## put the code into our format and fix what can be fixed mechanically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the virtual environment, caches and builds
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP_RUN): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[cluster]'
	@touch $@

$(STAMP_DEV): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev,clustered,spark]'
	@touch $(STAMP_RUN) $(STAMP_SPARK) $@

$(STAMP_BENCH): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev,clustered,spark,bench]'
	@touch $(STAMP_RUN) $(STAMP_DEV) $@

$(STAMP_SPARK): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[spark]'
	@touch $(STAMP_RUN) $@
