# Two commands to start with: `make bench`, then `make test`. Both make .venv and install what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# One thread per process: workers own their cores.
export OMP_NUM_THREADS := 1
RUN ?=
RESULTS ?= results

.DEFAULT_GOAL := help
.PHONY: help bench test test-compat test-engines faults lint check reproduce-tables corrected-tables comparison calibration-tables split-by-split docs docs-outputs docs-tables figures report figure-data browser-tools bench-speed bench-cost bench-scaling bench-mixed-tables bench-engines controls extended test-objectstore theory clean

help:  ## Show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 26

# uv installs in seconds what pip takes minutes for. Compiled bytecode halves the start of every process, also where
# Python is told not to write any. uv does not read pip's settings, so a folder of wheels is passed on.
ifdef PIP_FIND_LINKS
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
endif
ifdef PIP_CERT
export SSL_CERT_FILE ?= $(PIP_CERT)
endif
INSTALL = $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraint constraints.txt --editable

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

# The newest scikit-learn, in an environment of its own; all other versions are the pinned ones.
$(VENV)-compat/ready: $(VENV)/core
	$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python $(VENV)-compat
	grep -v '^scikit-learn==' constraints.txt > $(VENV)-compat/constraints.txt
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(VENV)-compat/bin/python \
		--constraint $(VENV)-compat/constraints.txt --upgrade-package scikit-learn --editable . pytest pytest-xdist
	touch $@

bench: $(VENV)/core  ## Install, then run Anchor-MoE on boston: 20 splits beside the published numbers
	$(BIN)/anchormoe-bench dataset=boston $(RUN)

test: lint  ## Install, lint, run all tests
	$(BIN)/python -m pytest -n auto --dist loadgroup

test-compat: $(VENV)-compat/ready  ## The regressor's tests with the newest scikit-learn
	$(VENV)-compat/bin/python -m pytest -n auto tests/test_estimator.py

test-engines: $(VENV)/engines  ## The same rows on Dask, Ray and a Slurm of this machine (apt installs it where root runs this)
	ANCHORMOE_ENGINE_SPLITS=$(or $(SPLITS),1-2) $(BIN)/python -m pytest -m engines -rs tests/engines

# moto wants another python-dateutil than the pinned one, so its server has an environment of its own.
$(VENV)-moto/ready: $(VENV)/core
	$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python $(VENV)-moto
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(VENV)-moto/bin/python 'moto[s3]==5.2.5' flask flask-cors
	touch $@

test-objectstore: $(VENV)/dev $(VENV)-moto/ready  ## The tests of object stores against moto's S3 server
	ANCHORMOE_MOTO_SERVER=$(VENV)-moto/bin/moto_server $(BIN)/python -m pytest tests/objectstore

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

comparison: $(VENV)/dev  ## Run what is missing of the cross-fitted recipe and all other methods, write the tables
	$(BIN)/anchormoe-bench experiment=crossfit results_dir=$(RESULTS) $(RUN)
	$(BIN)/anchormoe-bench experiment=comparison results_dir=$(RESULTS) $(RUN)
	$(BIN)/anchormoe-bench tables results_dir=$(RESULTS) output=$(RESULTS)

calibration-tables: $(VENV)/dev  ## Run what is missing of the calibrations and of MAPIE's intervals, write their tables (hours)
	$(BIN)/anchormoe-bench experiment=calibration results_dir=$(RESULTS) $(RUN)
	$(BIN)/anchormoe-bench experiment=mapie results_dir=$(RESULTS) $(RUN)
	$(BIN)/anchormoe-bench tables form=calibration results_dir=$(RESULTS) output=$(RESULTS)

controls: $(VENV)/core  ## Run what is missing of the controls of the cross-fitted recipe, write their tables
	$(BIN)/anchormoe-bench experiment=controls results_dir=$(RESULTS) $(RUN)
	$(BIN)/anchormoe-bench tables form=controls results_dir=$(RESULTS) output=$(RESULTS)

extended: $(VENV)/dev  ## Run what is missing of the extended suite, tables that no setting was chosen on, write its tables
	$(BIN)/anchormoe-bench experiment=extended results_dir=$(RESULTS) $(RUN)
	$(BIN)/anchormoe-bench experiment=extended method=anchormoe anchor=trees results_dir=$(RESULTS) $(RUN)
	$(BIN)/anchormoe-bench tables form=extended results_dir=$(RESULTS) output=$(RESULTS)

split-by-split: $(VENV)/core  ## The published runs to the letter on the five small datasets
	$(BIN)/anchormoe-bench experiment=split_by_split results_dir=$(RESULTS) $(RUN)
	$(BIN)/anchormoe-bench check missing=ok results_dir=$(RESULTS) output=$(RESULTS)/check.txt

theory: $(VENV)/dev  ## Run what is missing of the theory's simulations, print the verdicts (an hour and a half)
	$(BIN)/anchormoe-bench theory results_dir=$(RESULTS) $(RUN)

docs-tables: $(VENV)/dev  ## Write the generated tables and figures of README.md, docs/ and results/ anew from the stored rows
	$(BIN)/anchormoe-bench tables output=results
	$(BIN)/anchormoe-bench figures only=ranks_crps_y,pit,resolution,theory output=docs/images
	$(BIN)/python scripts/refresh_tables.py

docs-outputs: $(VENV)/dev  ## Run the Python code of README.md and docs/, write anew what it prints
	$(BIN)/python scripts/refresh_outputs.py

docs: $(VENV)/dev  ## Build the documentation site in site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

figures: $(VENV)/dev  ## Draw all figures as SVG and PNG (RESULTS=folder of rows)
	$(BIN)/anchormoe-bench figures results_dir=$(RESULTS) output=figures

report: $(VENV)/dev  ## Write the report, one HTML file (RESULTS=folder of rows)
	$(BIN)/anchormoe-bench report results_dir=$(RESULTS) output=report.html

browser-tools: $(VENV)/dev  ## Install what the browser tests need: chromium (Debian, as root) and axe-core (npm)
	command -v chromium || { apt-get update -qq; apt-get install -y -qq --no-install-recommends chromium; }
	npm install --silent --no-audit --no-fund --prefix $(VENV)/browser axe-core@4

figure-data: $(VENV)/dev  ## Fit again what figures show of single splits, results/figure_data (20 minutes)
	$(BIN)/python scripts/figure_data.py

bench-engines: $(VENV)/engines
bench-speed bench-cost bench-scaling bench-mixed-tables bench-engines: $(VENV)/dev
	$(BIN)/python benchmarks/$(subst -,_,$(@:bench-%=%)).py
bench-speed:  ## Time a split of every dataset beside the plain computation and other libraries (20 minutes)
bench-cost:  ## Time a split of the cross-fitted recipe beside NGBoost (20 minutes)
bench-scaling:  ## Time and memory of the regressor from 1,000 to 1,000,000 rows (an hour)
bench-mixed-tables:  ## The regressor with its defaults on tables with categories and gaps (10 minutes)
bench-engines:  ## Overhead per task of every engine, and rows per second of the store

clean:  ## Remove the environment and caches (never results)
	rm -rf $(VENV) $(VENV)-compat $(VENV)-moto .pytest_cache .mypy_cache .ruff_cache build dist site *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
