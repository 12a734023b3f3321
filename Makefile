# `make demo` and `make test` are all a newcomer needs: each sets everything up in .venv first.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.ready

.PHONY: demo test test-slow lint format benchmark clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo       match the shipped example pictures with the default model"
	@echo "make test       all ordinary tests, with lint and type checks before them"
	@echo "make test-slow  the tests that take long or need the real data sets"
	@echo "make lint       ruff and mypy only"
	@echo "make benchmark  speed and memory of the n-dimensional convolution"

# torch goes first and pinned, so that nothing else pulls in its GPU packages.
$(SETUP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: $(SETUP)
	$(BIN)/chmnet demo --output demo --overwrite

test: lint
	$(BIN)/pytest

test-slow: $(SETUP)
	$(BIN)/pytest -m slow

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(SETUP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

benchmark: $(SETUP)
	$(BIN)/python -m benchmarks.conv_nd

clean:
	rm -rf .venv build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
