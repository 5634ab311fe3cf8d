# GNU make on Linux and macOS. Every target does its own set-up; nothing is needed before but Python 3.11+.
.DEFAULT_GOAL := help
.PHONY: help setup dev lock run demo-taxi demo-sensors demo-shop test test-services test-adapters test-thorough services services-stop check format whole faults soak bench scale wheel clean

PYTHON ?= python3
JOBS ?= 2
SEED ?= $(shell date +%s)
BIN := .venv/bin
ECOMMERCE := pipelines/ecommerce
TAXI := pipelines/taxi

help: ## Show what there is
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Prepare: an isolated environment in .venv, the jars, Java if there is none
	@$(PYTHON) scripts/setup.py

dev: ## Prepare for work on icefield itself: the same, and what tests and checks need
	@$(PYTHON) scripts/setup.py --dev

lock: dev ## Resolve the dependencies of pyproject.toml anew into requirements.lock and requirements-dev.lock
	@$(BIN)/python scripts/lock.py

run: setup ## Build the e-commerce lakehouse, or take in what is new
	@test -d $(ECOMMERCE)/landing || $(BIN)/python $(ECOMMERCE)/generate.py
	@$(BIN)/icefield run -p $(ECOMMERCE)

demo-taxi: setup ## Generate some months of taxi trips, take them in month by month, show the history
	@test -d $(TAXI)/landing || $(BIN)/python $(TAXI)/generate.py
	@$(BIN)/icefield run -p $(TAXI)
	@$(BIN)/icefield table history -p $(TAXI) raw.yellow_trips

demo-sensors: dev ## Start Kafka and sensors that send readings, and watch them come in, until Ctrl-C
	@$(BIN)/python scripts/demo.py sensors

demo-shop: dev ## Start Postgres, Debezium, Kafka and a shop that sells, and watch its changes come in, until Ctrl-C
	@$(BIN)/python scripts/demo.py shop

test: dev ## Run the test suite, which needs no server (JOBS=2 processes; ARGS="-k name" to choose)
	@$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not services and not adapters and not thorough" $(ARGS)

test-services: dev ## Run the tests that start real servers: a Spark cluster, Kafka, Postgres, Kafka Connect
	@$(BIN)/pytest -m services $(ARGS)

test-adapters: dev ## Run the tests with Dagster, Airflow and dbt, each in an environment of its own that is made first
	@$(BIN)/pytest -m adapters $(ARGS)

test-thorough: dev ## Run the tests that repeat a rule at more sizes, limits and orders than make test does
	@$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m thorough $(ARGS)

services: dev ## Start Kafka, Postgres and Kafka Connect with Debezium, until Ctrl-C or services-stop
	@$(BIN)/python scripts/services.py start $(ARGS)

services-stop: dev ## Stop what `make services` has started
	@$(BIN)/python scripts/services.py stop

check: dev ## Lint, formatting, types, import directions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: dev ## Let ruff format and mend what it can
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

whole: dev ## Compare every table with DuckDB at 3.8 million rows: first run, more days, full refresh
	@ICEFIELD_E2E_ROWS=3800000 $(BIN)/pytest tests/e2e $(ARGS)

faults: dev ## Stop runs at every failpoint, in every way
	@ICEFIELD_FAULTS=all $(BIN)/pytest -m faults $(ARGS)

soak: dev ## Concurrency for a minute, then random histories of a lake for about an hour (SEED=n repeats one)
	@ICEFIELD_SOAK_SECONDS=60 $(BIN)/pytest -m soak $(ARGS)
	@ICEFIELD_STREAM_SECONDS=600 ICEFIELD_STREAM_RATE=5000 ICEFIELD_STREAM_KILLS=20 \
		$(BIN)/pytest -m services tests/services/test_exactly_once.py -s $(ARGS)
	@ICEFIELD_EXACT_SEED=$(SEED) ICEFIELD_EXACT_STEPS=2400 $(BIN)/pytest tests/run/test_exact.py -s $(ARGS)
	@ICEFIELD_EXACT_SEED=$(SEED) ICEFIELD_ORDER_EXAMPLES=100 $(BIN)/pytest tests/cdc/test_order_free.py tests/run/test_order_free.py $(ARGS)

bench: dev ## Measure against PySpark, DuckDB, dbt and Polars (ARGS="--only startup" to choose); results in bench/results
	@$(BIN)/python bench/run.py $(ARGS)

scale: dev ## Take in 380 million rows slice by slice; results in bench/results
	@$(BIN)/python bench/scale.py $(ARGS)

wheel: dev ## Build the wheel, reference projects included, into dist/
	@$(BIN)/python -m build --wheel --no-isolation

clean: ## Remove the environment, builds and caches; data and lakes stay
	@rm -rf .venv .bench-venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests pipelines bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +
