# `make demo` and `make test` are all a newcomer needs: each sets everything up in .venv first.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.ready

.PHONY: demo test test-slow test-web test-native lint format benchmark clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo       match the shipped example pictures with the default model"
	@echo "make test       all ordinary tests, with lint and type checks before them"
	@echo "make test-slow  the tests that take long or need the real data sets"
	@echo "make test-web   the page in a real browser, its API under fuzzing and load (several minutes)"
	@echo "make test-native    the compiled kernels under the sanitizers"
	@echo "make lint       ruff and mypy only"
	@echo "make benchmark  what the paper's network costs, against the authors' way (several minutes)"
	@echo "make format     let ruff put the code in order"
	@echo "make clean      remove what make made"

# torch goes first and pinned, so that nothing else pulls in its GPU packages.
$(SETUP): pyproject.toml constraints.txt $(wildcard native/*)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,train,web]"
	touch $@

demo: $(SETUP)
	@mkdir -p demo
	$(BIN)/chmnet match examples/donkey.png examples/zebra.png --overwrite -o demo/donkey-zebra.png \
		--points "7,72 5,3 85,44 178,38 70,157 172,153 110,80"
	$(BIN)/chmnet match examples/european-bear.png examples/black-bear.png --overwrite -o demo/bears.png \
		--points "301,164 244,69 196,14 26,89 178,278 38,248 130,120"
	$(BIN)/chmnet match examples/sedan.png examples/sportscar.png --overwrite -o demo/cars.png \
		--points "54,48 178,48 94,6 7,41 208,34 110,45"
	@echo "Look at the pictures in the folder demo."

test: lint
	$(BIN)/pytest

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
