# Two commands do everything: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
READY := .venv/ready
SUITE ?= scoreboard
# Compiled files are kept, whatever the shell says: without, every process of the tests compiles all sources again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test types fast-tests test-slow coverage versions torture audit bench tables docs lock clean

help:            ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## create .venv with everything pinned in requirements.lock, and checked by requirements.hashes

# torch alone has no hash: its build differs from machine to machine. It comes last, when all that it needs is there, and
# exactly pinned: a looser request, made by another package, may fetch a build of several gigabytes.
$(READY): requirements.lock requirements.hashes pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install --no-deps --require-hashes -r requirements.hashes
	$(PIP) install "$$(grep '^torch==' requirements.lock)"
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $(READY)

demo: setup      ## draw rows and documents, train on them, show scores, tag documents, write demo/report.html
	@rm -rf demo
	$(BIN)/labelfield synth --out demo/data
	$(BIN)/labelfield info demo/data
	$(BIN)/labelfield train demo/data --out demo/model --device cpu
	$(BIN)/labelfield evaluate popularity demo/data
	$(BIN)/labelfield evaluate demo/model demo/data
	$(BIN)/labelfield report demo/model demo/data --out demo/report.html
	$(BIN)/labelfield synth --kind texts --rows 600 --out demo/documents
	$(BIN)/labelfield train demo/documents --out demo/tagger --device cpu
	$(BIN)/labelfield tag demo/tagger demo/documents --out demo/tags.jsonl
	$(BIN)/labelfield explain demo/tagger demo/documents --row 0 -k 2

# Types are checked while the tests run. Two tests run at a time, each on one core: arrays in tests are too small for two.
test: setup      ## lint, type-check and test (about three minutes on two cores)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory --jobs 2 types fast-tests

types:
	$(BIN)/mypy

fast-tests:
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

test-slow: setup ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

coverage: setup  ## run the fast tests under coverage; fails if the package can raise an error that no test raises
	rm -rf build/coverage && mkdir -p build/coverage
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run -m pytest --numprocesses 0
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage json --quiet -o build/coverage.json
	$(BIN)/python -m coverage report --format total
	$(BIN)/python tests/messages.py build/coverage.json

# The versions that pyproject.toml begins with, with the newest of all others. Their warnings about each other are not ours.
versions:        ## test the lowest versions of dependencies (build/lowest), and the newest (build/newest)
	for which in lowest newest; do \
	  $(PYTHON) -m venv --clear build/$$which && $(PYTHON) tests/versions.py $$which > build/$$which.txt && \
	  build/$$which/bin/python -m pip install --quiet --disable-pip-version-check -r build/$$which.txt && \
	  build/$$which/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e . && \
	  OMP_NUM_THREADS=1 build/$$which/bin/python -m pytest -o filterwarnings=default --numprocesses 2 || exit 1; \
	done

torture: setup   ## hours of hostile files, odd numbers, kills, full disks, little memory, signals, crowds (SECONDS=14400)
	$(BIN)/python -m torture all --seconds $(or $(SECONDS),14400)

audit:           ## look for known weaknesses of what requirements.lock pins; asks a database on the network
	$(PYTHON) -m venv --clear build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	build/audit/bin/pip-audit --strict --disable-pip --no-deps -r requirements.lock

bench: setup     ## measure a suite (SUITE=scoreboard by default, 40 minutes on 2 cores) and update the tables
	$(BIN)/python -m benchmarks bench $(SUITE)
	$(BIN)/python -m benchmarks table

tables: setup    ## make the tables and pictures of README.md and docs/ from the records
	$(BIN)/python -m benchmarks table
	$(BIN)/python -m benchmarks plots

docs: setup      ## build the documentation site into build/docs/html; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going -n -q -d build/docs/read docs build/docs/html
	@echo "open build/docs/html/index.html"

lock:            ## resolve pyproject.toml in a fresh environment, and pin the result with hashes
	rm -rf .venv && $(PYTHON) -m venv .venv
	$(PIP) install torch==2.13.0 setuptools
	$(PIP) install --no-build-isolation -e '.[dev]'
	{ echo '# Every dependency, pinned; made by `make lock` from pyproject.toml.'; \
	  $(BIN)/python -m pip freeze --exclude-editable --all | grep -v '^pip==' | sed 's/+cpu$$//'; } > requirements.lock
	$(PIP) install uv
	{ echo '# Every dependency but torch, with the hashes of all its files; made by `make lock` from requirements.lock.'; \
	  grep -v '^torch==' requirements.lock | $(BIN)/uv pip compile --python $(BIN)/python --quiet --no-deps --generate-hashes --no-header \
	    --no-annotate -; } > requirements.hashes

clean:           ## remove what these commands made
	rm -rf .venv demo build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
