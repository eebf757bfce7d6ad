# slurm-soda: `make demo` shows it, `make test` proves it. `make help` lists the rest.
# Every target prepares what it needs: system packages (as root on Debian/Ubuntu), then a locked virtual environment.

SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SEED ?= 1
BURST := $(filter-out 0 no,$(POOLS))
OUT ?= $(if $(BURST),build/burst,build/demo)
DATA ?= ../shared/data
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help demo test lint counts unit slurm bench reproduce install lock clean system

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

demo: $(READY) ## One job mix on a real Slurm cluster, stock against slurm-soda (SEED=n, OUT=dir, POOLS=1: a burst)
	$(BIN)/sodactl demo$(if $(BURST), --pools) --seed $(SEED) --out $(OUT)

test: lint unit slurm ## Everything: lint and types, unit tests, tests on a real Slurm cluster

lint: $(READY) ## ruff, mypy --strict, import contracts, names by docs/glossary.md
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m lint names

counts: $(READY) ## What is to stay rare in the source, counted (python -m lint counts NAME lists the places)
	$(BIN)/python -m lint counts

unit: $(READY) ## Unit and property tests (seconds), with branch coverage
	$(BIN)/pytest -q -n auto --dist worksteal --cov --cov-report=term:skip-covered

slurm: $(READY) ## Tests on real Slurm clusters in containers, two at a time (minutes)
	$(BIN)/pytest -q -m slurm -n 2 --dist loadfile --durations=10 tests/slurm || { \
		echo "once more, one at a time: what failed (Slurm's own time-outs tell a busy machine from a fault)"; \
		$(BIN)/pytest -q -m slurm --last-failed --last-failed-no-failures none --durations=3 tests/slurm; }

bench: $(READY) ## Measure: decisions at scale, simulations, hooks and flags, cycles over a long queue
	$(BIN)/sodactl bench decide
	$(BIN)/python -m benchmarks.simulate --data $(DATA)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.hooks
	$(BIN)/python -m benchmarks.queue

reproduce: $(READY) ## Figures of papers and other simulators beside ours: docs/reproduction.md (DATA=dir with the traces)
	$(BIN)/python -m benchmarks.reproduce --data $(DATA)

# On a controller, a login node or a compute node. A site without a registry says where its wheels are:
# make install PIP_FLAGS='--no-index --find-links DIR'
PREFIX ?= /opt/slurm-soda
LOCK ?= requirements.lock
UNITS ?= /etc/systemd/system
install: | system ## Install on a Slurm machine (as root; PREFIX=/opt/slurm-soda)
	[ -x $(PREFIX)/bin/pip ] || $(PYTHON) -m venv $(PREFIX)
	$(PREFIX)/bin/pip install -q --disable-pip-version-check $(PIP_FLAGS) --no-deps -r $(LOCK)
	$(PREFIX)/bin/pip install -q --disable-pip-version-check $(PIP_FLAGS) --no-deps .
	rm -rf build/lib build/bdist.* ./*.egg-info
	install -d -m 755 $(PREFIX)/lib $(PREFIX)/libexec /etc/slurm-soda
	install -d -o slurm -g slurm -m 755 /var/lib/slurm-soda
	install -m 755 prolog/prolog epilog/epilog epilog/epilogctld $(PREFIX)/libexec
	install -m 644 slurm_ext/lua/soda_hints.lua slurm_ext/lua/soda_routes.lua slurm_ext/lua/soda.lua $(PREFIX)/lib
	$(MAKE) -s -C slurm_ext/spank install LIBDIR=$(PREFIX)/lib
	$(MAKE) -s -C wire install LIBEXECDIR=$(PREFIX)/libexec
	[ ! -d $(UNITS) ] || install -m 644 daemon/sodad.service agent/soda-agent.service $(UNITS)

lock: $(READY) ## Renew requirements.lock and requirements-dev.lock
	$(BIN)/pip install -q uv
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--upgrade pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--upgrade --allow-unsafe --extra dev pyproject.toml -o requirements-dev.lock

clean: ## Remove the virtual environment and everything built
	rm -rf $(VENV) build *.egg-info

# System packages: a Python of 3.11 or newer that can make virtual environments, and a C compiler.
system:
	@missing=; command -v gcc >/dev/null || missing="gcc libc6-dev"; \
	[ -n "$(PYTHON)" ] && $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3 python3-venv"; \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing $$missing"; \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
		else echo "missing: $$missing. Install them, on Debian or Ubuntu with: sudo apt-get install $$missing" >&2; exit 1; fi; \
	fi

$(READY): requirements-dev.lock pyproject.toml | system
	@python=$$(for p in $(PYTHON) python3; do command -v $$p && break; done); \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "slurm-soda needs Python 3.11 or newer; this is $$($$python --version). Debian 12, Ubuntu 24.04 and later have it; or: make PYTHON=/path/to/python" >&2; exit 1; }; \
	echo "preparing $(VENV)"; $$python -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib || true # every command starts twice as fast
	@touch $@
