# `make demo` shows the main job, `make test` checks everything; each makes .venv first if it is not there, with what it
# needs: the demo less than development.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-for-demo
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: setup demo check check-parts test test-parts test-bench test-all lint types unit browser interpreted coverage soak structure format bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml bench/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[dev]' --editable bench
	touch $(STAMP) $(DEMO_STAMP)

$(DEMO_STAMP): pyproject.toml constraints.txt
	@echo "installing Siftline and Spark into $(VENV) ..."
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[spark]'
	touch $(DEMO_STAMP)

demo: $(DEMO_STAMP)
	$(BIN)/siftline demo

# An answer while one works: style, types, and the tests that need neither Spark nor a browser nor a server, nor kill
# processes or hold threads at every step, with a tenth of the random examples that `make test` draws.
check: setup
	$(BIN)/python tools/timed.py check $(MAKE) check-parts

check-parts: lint types
	SIFTLINE_EXAMPLES=20 $(BIN)/pytest -m 'not slow' -n 2 --dist loadgroup tests --ignore tests/spark --ignore tests/server --ignore tests/client \
	--ignore tests/demo --ignore tests/soak --ignore tests/cli --ignore tests/broker --ignore tests/operators \
	--ignore tests/engine/test_crowded.py --ignore tests/engine/test_sweeping.py --ignore tests/storage/test_crashes.py

test: setup
	$(BIN)/python tools/timed.py test $(MAKE) test-parts

test-parts: lint types browser unit test-bench interpreted

test-all: lint types browser interpreted
	$(BIN)/pytest -n 2 --dist loadgroup

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

unit: setup
	$(BIN)/pytest -m 'not slow' -n 2 --dist loadgroup tests src

# The laboratory: what measures, and what only its figures compare.
test-bench: setup
	$(BIN)/pytest -m 'not slow' -n 2 --dist loadgroup bench

# The console is tested in a real browser, where there is one or it may be installed.
browser:
	@command -v chromium google-chrome > /dev/null || { test "$$(id -u)" = 0 && command -v apt-get > /dev/null \
	&& apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium \
	> /dev/null; } || echo '*** no Chromium, and no way to install it: the tests of the console are SKIPPED ***'

# The kernels once more as plain Python: what compiled code silently wraps around or overruns is an error here.
interpreted: setup
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -m 'not slow' -n 2 tests/kernels tests/encoding tests/test_against_scan.py

# Which lines tests run, folder by folder: once compiled, once interpreted, which is how lines of kernels are seen.
coverage: setup
	rm -f .coverage .coverage.*
	$(BIN)/pytest -q -m 'not slow' -n 2 --dist loadgroup --cov --cov-report= tests src
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -q -m 'not slow' -n 2 --cov --cov-append --cov-report= tests/kernels tests/encoding \
	tests/test_against_scan.py
	$(BIN)/python tools/covered.py

# Uses and attacks a real server for half an hour, and compares what it did with a model; `make test-all` has five minutes.
SECONDS ?= 1800
SEED ?= 1
soak: setup
	cd tests && ../$(BIN)/python -m soak.run --seconds $(SECONDS) --seed $(SEED)

# How large and how tangled the product is, beside what it may be at most.
structure:
	$(PYTHON) tools/structure.py

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/siftline bench foundation

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
