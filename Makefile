# Fuselab: `make run` serves the playground, `make test` tests everything; both set up .venv and node_modules first.

PYTHON ?= python3
PORT ?= 8000
BIN := .venv/bin
TORCH := torch==2.13.0
TRITON := triton==3.9.0
TIMM := timm==1.0.31 torchvision==0.28.0 pillow==13.0.0
STAMPS := .venv/.stamps

.PHONY: help setup run test quick lint models bench-latency screenshots clean

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(STAMPS)/tools $(STAMPS)/python static/dist/version.txt ## everything that running and testing needs, in .venv and node_modules (a few minutes once, then at once)

$(STAMPS)/tools: bin/check-tools
	@PYTHON=$(PYTHON) sh bin/check-tools
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/python: $(STAMPS)/tools pyproject.toml constraints.txt
	@echo "Installing Python packages into .venv (PyTorch first; this takes a few minutes once)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -c "import triton" 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check $(TRITON)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[web,worker,dev]"
	@touch $@

node_modules/.stamp: $(STAMPS)/tools package.json package-lock.json
	@echo "Installing front-end packages into node_modules"
	npm ci --no-audit --no-fund --loglevel=error
	@touch $@

static/dist/version.txt: node_modules/.stamp $(wildcard static/src/*)
	@echo "Bundling the front end into static/dist"
	node static/src/build.mjs

run: setup ## serve the playground on http://127.0.0.1:8000, or PORT=...
	@echo "Fuselab on http://127.0.0.1:$(PORT) (its worker is ready some seconds later); Ctrl+C ends it"
	FUSELAB_PORT=$(PORT) exec $(BIN)/python -m app.main

test: setup ## all tests (about twenty minutes on two cores)
	$(BIN)/python -m pytest

quick: setup ## the tests of every day: without attacks, browser and whole servers
	$(BIN)/python -m pytest -m "not sandbox and not browser and not slow"

lint: setup ## ruff and mypy (the order of imports is a test)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# timm needs torchvision, whose wheels fit one PyTorch each: both are kept apart, where only the models find them.
models: setup ## whole models through the compiler, beside eager and Inductor (an hour); installs timm and torchvision in .venv/timm
	test -d .venv/timm/timm || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target .venv/timm $(TIMM)
	$(BIN)/python -m bench.models

bench-latency: setup ## how long a warm run takes from POST to each stage, beside a cold torch.compile
	$(BIN)/python -m bench.latency

screenshots: setup ## the pictures in docs/, from a real run (needs chromium)
	$(BIN)/python -m bench.screenshots

clean: ## remove what setup and run have made, except stored runs in data/
	rm -rf .venv node_modules static/dist
