# make demo   set up, run real vLLM on this machine, write reports/demo/index.html
# make test   set up, run the tests
# make docs   set up, build the documentation: build/docs/html/index.html
# Needs Python 3.11 to 3.13, git and make; everything else goes into $(VENV).

SHELL := /bin/sh
.SHELLFLAGS := -ec
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
# The engine: vLLM's GPU build where an NVIDIA driver answers, else its CPU build. Override with FLAVOUR=cpu or gpu.
FLAVOUR ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)

BIN := $(VENV)/bin
ENGINE := $(VENV)/.installed-$(FLAVOUR)
TORCH_CPU := torch==2.13.0+cpu
# torch's CPU build is not on PyPI; this is PyTorch's own index, asked only when pip's own sources do not have it.
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

# A file's tests stay together, in the order in which tests/conftest.py puts them; `make test PARALLEL=` runs one at a time.
PARALLEL ?= -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: help demo test test-slow lint lab docs setup clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

setup: $(ENGINE)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(f"perflab needs Python 3.11 to 3.13, this is {v[0]}.{v[1]}; name another with PYTHON=python3.12" if not (3, 11) <= v <= (3, 13) else 0)'
	@echo "[setup] making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-cpu: pyproject.toml Makefile | $(BIN)/python
	@echo "[setup 1/2] torch, CPU build (about 200 MB)"
	@$(PIP) install "$(TORCH_CPU)" 2>/dev/null || $(PIP) install "$(TORCH_CPU)" --index-url $(TORCH_CPU_INDEX)
	@echo "[setup 2/2] vLLM's CPU build, JupyterLab and perflab (a few minutes)"
	@$(PIP) install -e ".[cpu,dev]"
	@touch $@

$(VENV)/.installed-gpu: pyproject.toml Makefile | $(BIN)/python
	@echo "[setup 1/1] vLLM's GPU build, JupyterLab and perflab (several GB, some minutes)"
	@$(PIP) install -e ".[gpu,dev]"
	@touch $@

# A run that ends partial still gets its report; make then ends with the run's own status.
demo: $(ENGINE)
	@run=runs/demo-$$(date +%Y%m%d-%H%M%S); status=0; \
	$(BIN)/perflab run data/experiments/demo-$(FLAVOUR).yaml -o $$run || status=$$?; \
	$(BIN)/perflab report $$run llama3-8b-bf16 llama3-8b-tp2 llama3-70b-bf16-tp2 -o reports/demo/index.html \
	  --title "perflab demo: a run made on this machine, and recorded H200 runs"; \
	exit $$status

test: $(ENGINE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -m "not slow" $(PARALLEL) --durations=25

test-slow: $(ENGINE)
	$(BIN)/python -m pytest -m slow --timeout 3600

lint: $(ENGINE)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy
	$(BIN)/lint-imports

lab: $(ENGINE)
	$(BIN)/perflab lab

docs: $(ENGINE)
	$(BIN)/python docs/site/build.py build/docs

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
