# `make demo` and `make test` are all a newcomer needs: each sets everything up in .venv first.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.ready

.PHONY: demo docs test test-slow test-web test-native lint format benchmark clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo       match the shipped example pictures with the default model: demo/index.html"
	@echo "make test       lint, type checks, then all ordinary tests in two processes"
	@echo "make test-slow  the tests that take long or need the real data sets"
	@echo "make test-web   the page in a real browser, its API under fuzzing and load (several minutes)"
	@echo "make test-native    the compiled kernels under the sanitizers"
	@echo "make lint       ruff and mypy only"
	@echo "make docs       update the drawings, tables and command-line reference of docs"
	@echo "make benchmark  what the paper's network costs, against the authors' way (several minutes)"
	@echo "make format     let ruff put the code in order"
	@echo "make clean      remove what make made"

# torch goes first and pinned, so that nothing else pulls in its GPU packages.
$(SETUP): pyproject.toml constraints.txt $(wildcard native/*)
	@echo "setting up .venv: PyTorch and the tools, 1.7 GB on disk; once, one to five minutes"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,train,web]"
	touch $@

demo: $(SETUP)
	$(BIN)/python examples/demo.py demo

# The drawings of README.md and docs, the command line's reference, and the tables of the results.
docs: $(SETUP)
	$(BIN)/python tools/pictures.py docs/images
	$(BIN)/python tools/cli_reference.py docs/cli.md
	$(BIN)/python tools/results_page.py docs/results.md results

# Two processes of one thread each; the one that finishes first takes over tests of the other.
test: lint
	$(BIN)/pytest -n 2 --dist worksteal

test-slow: $(SETUP)
	$(BIN)/pytest -m slow

# Debian's chromium, never a browser that playwright would download.
test-web: $(SETUP)
	command -v chromium > /dev/null || (apt-get update && apt-get install --yes chromium)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,train,web,test-web]"
	$(BIN)/pytest -m slow tests/web

test-native: $(SETUP)
	$(BIN)/pytest -m slow tests/ops/test_sanitizers.py

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(SETUP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

benchmark: $(SETUP)
	$(BIN)/chmnet benchmark

clean:
	rm -rf .venv build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
