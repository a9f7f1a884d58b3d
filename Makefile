# Every target is what CI runs. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
NATIVE_SOURCES := $(wildcard CMakeLists.txt native/* native/*/* native/*/*/*)
DEMO_PROMPT := In one short paragraph, what is a library, and why do people like to read there?
DEMO_FOLLOW_UP := In one short paragraph, what is a library, and why do people like to read there? Name one famous one.

.PHONY: help setup build bench-install bench demo test lint type fmt check wheel wheel-check lock cov mutation clients bench-core sanitize docs clean

help: ## List the targets
	@echo "make demo   sets up, fetches the default model and generates text"
	@echo "make test   sets up and runs the tests"
	@echo
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16
	@echo
	@echo "Variables: PYTHON=$(PYTHON) (3.11 or newer), CXX (a C++20 compiler)"

setup: $(VENV)/.package ## Make .venv, install the pinned dependencies, build the native library

build: $(VENV)/.dependencies ## Build the native library again, whatever has changed
	@$(PYTHON) tools/bootstrap.py package $(VENV)
	@touch $(VENV)/.package

# Asks for the interpreter by hand, since a missing one cannot report itself.
$(VENV)/.dependencies: requirements/dev.lock tools/bootstrap.py
	@command -v $(PYTHON) >/dev/null || { echo "setup: no '$(PYTHON)' found; install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) tools/bootstrap.py dependencies $(VENV)
	@touch $@

$(VENV)/.package: $(VENV)/.dependencies pyproject.toml $(NATIVE_SOURCES)
	@$(PYTHON) tools/bootstrap.py package $(VENV)
	@touch $@

demo: setup ## Answer two prompts with a common beginning: tokens stream, then tables, cached tokens and memory
	@$(BIN)/octavo fetch
	@$(BIN)/octavo generate "$(DEMO_PROMPT)" "$(DEMO_FOLLOW_UP)"

test: setup ## Run the tests (fetches the default model first)
	@$(BIN)/octavo fetch || echo "make test: the default model could not be fetched (reason above); tests that need it are skipped" >&2
	$(PY) -m pytest

lint: setup ## Style, layers, sizes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=src $(BIN)/lint-imports
	$(PY) tools/size.py

type: setup ## mypy, strict
	$(PY) -m mypy

fmt: setup ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: lint type test ## What CI runs

wheel: setup ## Build dist/octavo-…-py3-none-<platform>.whl
	rm -rf dist
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*-py3-none-*.whl

wheel-check: wheel ## Install the wheel into a fresh environment without a compiler and use it there
	$(PYTHON) tools/wheel_check.py dist/*.whl

lock: setup ## Resolve the pinned dependencies anew
	$(PYTHON) tools/lock.py

cov: setup ## Tests with branch coverage
	$(PY) -m pytest --cov --cov-report=term-missing:skip-covered

mutation: setup ## Mutation tests of kv/ (long); prints the score
	$(PY) tools/mutation.py

bench-install: wheel ## Measure the size of an install and the time to the first text
	$(PY) benchmarks/install_size.py dist/*.whl

bench: setup ## Time kernels, throughput and latency on this machine
	$(BIN)/octavo bench kernels
	$(BIN)/octavo bench throughput
	$(BIN)/octavo bench latency

clients: setup ## Run real clients against octavo serve (builds their environments); CLIENTS="openai llm" takes some
	$(BIN)/octavo fetch
	$(PY) tests/clients/run.py $(CLIENTS)

bench-core: setup ## Time the cache and the scheduler without a model
	$(PY) benchmarks/kv_core.py
	$(PY) benchmarks/scheduler_step.py

sanitize: setup ## Native tests under AddressSanitizer and UBSan
	$(PY) tools/sanitize.py

docs: setup ## Write docs/cli.md from --help, and the table of metrics
	$(PY) tools/cli_reference.py
	$(PY) tools/metrics_reference.py

clean: ## Remove everything that was built, .venv too
	rm -rf $(VENV) build dist mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find src tests tools benchmarks -name __pycache__ -prune -exec rm -rf {} +
	rm -f src/octavo/kernels/*.so
