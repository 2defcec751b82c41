# Two commands to start with: `make bench`, then `make test`. Both make .venv and install what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# One thread per process: workers own their cores.
export OMP_NUM_THREADS := 1
RUN ?=
RESULTS ?= results

.DEFAULT_GOAL := help
.PHONY: help bench test lint check reproduce-tables corrected-tables comparison split-by-split docs-tables test-engines faults bench-speed bench-cost bench-scaling bench-engines clean

help:  ## Show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 26

# uv installs in seconds what pip takes minutes for. It does not read pip's settings, so a folder of wheels is passed on.
ifdef PIP_FIND_LINKS
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
endif
ifdef PIP_CERT
export SSL_CERT_FILE ?= $(PIP_CERT)
endif
INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable

$(VENV)/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt uv
	$(INSTALL) .
	touch $@

$(VENV)/dev: $(VENV)/core
	$(INSTALL) '.[dev]'
	touch $@

$(VENV)/engines: $(VENV)/dev
	$(INSTALL) '.[dev,ray,slurm]'
	touch $@

bench: $(VENV)/core  ## Install, then run Anchor-MoE on boston: 20 splits beside the published numbers
	$(BIN)/anchormoe-bench dataset=boston $(RUN)

test: lint  ## Install, lint, run all tests
	$(BIN)/python -m pytest -n auto --dist loadgroup

test-engines: $(VENV)/engines  ## The same rows on Dask, Ray and a Slurm of this machine (apt installs it where root runs this)
	$(BIN)/python -m pytest -m engines -rs tests/engines

faults: $(VENV)/engines  ## Kill and break everything at random, count what is lost, write docs/reliability.md (an hour)
	$(BIN)/python tests/faults/campaign.py $(RUN)

lint: $(VENV)/dev  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: $(VENV)/core  ## Compare the stored rows with the published numbers, recompute a few splits
	$(BIN)/anchormoe-bench check

reproduce-tables: $(VENV)/core  ## Run what is missing of the paper's tables, write them, check them (RESULTS=folder)
	$(BIN)/anchormoe-bench experiment=tables results_dir=$(RESULTS) $(RUN)
	$(BIN)/anchormoe-bench tables results_dir=$(RESULTS) output=$(RESULTS)
	$(BIN)/anchormoe-bench check results_dir=$(RESULTS) output=$(RESULTS)/check.txt

corrected-tables: $(VENV)/core  ## Run what is missing of the corrected form (protocol=clean), write the tables
	$(BIN)/anchormoe-bench experiment=corrected results_dir=$(RESULTS) $(RUN)
	$(BIN)/anchormoe-bench tables results_dir=$(RESULTS) output=$(RESULTS)

comparison: $(VENV)/dev  ## Run what is missing of the cross-fitted recipe and all other methods, write tables and figures
	$(BIN)/anchormoe-bench experiment=crossfit results_dir=$(RESULTS) $(RUN)
	$(BIN)/anchormoe-bench experiment=comparison results_dir=$(RESULTS) $(RUN)
	$(BIN)/anchormoe-bench tables results_dir=$(RESULTS) output=$(RESULTS) figures=on

split-by-split: $(VENV)/core  ## The published runs to the letter on the five small datasets
	$(BIN)/anchormoe-bench experiment=split_by_split results_dir=$(RESULTS) $(RUN)
	$(BIN)/anchormoe-bench check missing=ok results_dir=$(RESULTS) output=$(RESULTS)/check.txt

docs-tables: $(VENV)/core  ## Write the generated tables of README.md, docs/ and results/ anew from the stored rows
	$(BIN)/anchormoe-bench tables output=results
	$(BIN)/python scripts/refresh_tables.py

bench-engines: $(VENV)/engines
bench-speed bench-cost bench-scaling bench-engines: $(VENV)/dev
	$(BIN)/python benchmarks/$(@:bench-%=%).py
bench-speed:  ## Time a split of every dataset beside the plain computation and other libraries (20 minutes)
bench-cost:  ## Time a split of the cross-fitted recipe beside NGBoost (20 minutes)
bench-scaling:  ## Time and memory from 1,000 to 1,000,000 rows
bench-engines:  ## Overhead per task of every engine, and rows per second of the store

clean:  ## Remove the environment and caches (never results)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
