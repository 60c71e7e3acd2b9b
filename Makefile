# Each target does its own set-up, without root, into .venv, and is quick the second time.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UV_VERSION := 0.13.8

.PHONY: help setup run test test-real lint format bench docs build clean

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## install what the other targets need, into .venv (PYTHON=... chooses a Python)

$(READY): uv.lock pyproject.toml tools/setup
	@UV_VERSION=$(UV_VERSION) tools/setup $(VENV)

# `make PYTHON=python3.13` is heard at any time, not only the first.
ifdef PYTHON
ifneq ($(shell ($(PYTHON) --version) 2>/dev/null),$(shell ($(BIN)/python --version) 2>/dev/null))
.PHONY: $(READY)
endif
endif

run: $(READY) ## serve this node on :9835; without an NVIDIA driver, a simulated one
	@tools/run $(BIN) $(ARGS)

test: $(READY) lint ## lint, and every test that needs neither root nor a GPU
	@echo "== tests"
	@$(BIN)/python -m pytest $(ARGS)

test-real: $(READY) ## the tests with real components: Debian, as root
	@tools/setup-real
	@echo "== tests with real components"
	@$(BIN)/python -m pytest -m real $(ARGS)

lint: $(READY) ## style, types, and who may import whom
	@echo "== lint"
	@mkdir -p build
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > build/imports.log 2>&1 || { cat build/imports.log; exit 1; }

format: $(READY) ## put the code in form
	@$(BIN)/ruff check --quiet --fix
	@$(BIN)/ruff format --quiet

bench: $(READY) ## what the agent costs, on a fake node
	@$(BIN)/python -m bench $(ARGS)

docs: $(READY) ## write the documents that are made from tables
	@$(BIN)/python -m docs.generate

build: $(READY) ## the wheel and the source distribution, into dist/
	@$(BIN)/uv build --quiet --no-build-isolation && ls dist

clean: ## remove what was made
	rm -rf $(VENV) build dist
