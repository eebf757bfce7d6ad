# slurm-soda: `make demo` shows it, `make test` proves it. `make help` lists the rest.
# Every target prepares what it needs: system packages (as root on Debian/Ubuntu), then a locked virtual environment.

SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
unexport PYTHONDONTWRITEBYTECODE # tests start hundreds of short commands, which would be compiled anew each time
READY := $(VENV)/.ready
TOOLS_READY := $(VENV)/.tools-ready
SEED ?= 1
SLURM ?= 24.11
SAMPLE ?= 30
BURST := $(filter-out 0 no,$(POOLS))
SHARE := $(filter-out 0 no,$(SHARING))
SERVE := $(filter-out 0 no,$(SERVICES))
OUT ?= $(if $(BURST),build/burst,$(if $(SHARE),build/sharing,$(if $(SERVE),build/services,build/demo)))
DATA ?= ../shared/data

.PHONY: help engine demo test test-gpu test-browser cgroup2 lint counts mutants fuzz unit slurm matrix thorough venv bench reproduce evaluate install uninstall packages flags lock clean system

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

demo: engine $(READY) ## One job mix on a real Slurm cluster, stock against slurm-soda (SEED=n, OUT=dir, POOLS=1: a burst, SHARING=1: two jobs on one GPU, SERVICES=1: a day of an inference service)
	$(BIN)/sodactl demo$(if $(BURST), --pools)$(if $(SHARE), --sharing)$(if $(SERVE), --services) --seed $(SEED) --out $(OUT)

test: engine lint unit slurm ## Everything: lint and types, unit tests, tests on a real Slurm cluster

lint: $(READY) ## ruff, mypy --strict, import contracts, names by docs/glossary.md
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy install/roles.py
	$(BIN)/mypy install/deb
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m lint names

counts: $(READY) ## What is to stay rare in the source, counted (python -m lint counts NAME lists the places)
	$(BIN)/python -m lint counts

mutants: $(READY) ## Do tests fail if one line is wrong? A sample of the lines that decide, send, record, run as root (SEED=n, SAMPLE=n)
	$(BIN)/python -m lint.mutants --seed $(SEED) --sample $(SAMPLE)

# tests/slurm/conftest.py puts the files in order, long ones first. CLUSTERS: how many run at a time, on two cores.
CLUSTERS ?= 4
define SLURM_TESTS
$(BIN)/pytest -q -m slurm $(1) -n $(CLUSTERS) --dist loadfile --no-loadscope-reorder --durations=10 tests/slurm || { \
		echo "once more, one at a time: what failed (Slurm's own time-outs tell a busy machine from a fault)"; \
		$(BIN)/pytest -q -m slurm $(1) --last-failed --last-failed-no-failures none --durations=3 tests/slurm; }
endef

# One more than there are cores: some tests wait for a time limit or for another process.
WORKERS ?= $(shell echo $$(($$(nproc) + 1)))

unit: $(READY) ## Unit and property tests, of long series a sample (minutes)
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal || { \
		echo "once more, one at a time: what failed (a busy machine answers late; a fault fails again)"; \
		$(BIN)/pytest -q --last-failed --last-failed-no-failures none; }

slurm: engine $(READY) ## Tests on real Slurm clusters in containers, four at a time: they mostly wait (minutes; SLURM=22.05|24.11|26.05)
	$(call SLURM_TESTS,--slurm $(SLURM))

matrix: engine $(READY) ## The tests on real Slurm with each of its tested versions, one after the other (three quarters of an hour)
	@failed=; for version in 22.05 24.11 26.05; do \
		echo "Slurm $$version"; $(MAKE) --no-print-directory slurm SLURM=$$version || failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "failed on Slurm$$failed" >&2; exit 1; }

thorough: $(READY) ## All tests whole: every case and more examples, with branch coverage; all tests on real Slurm (half an hour)
	$(BIN)/pytest -q --thorough -n $(WORKERS) --dist worksteal --cov --cov-report=term:skip-covered
	$(call SLURM_TESTS,--slurm $(SLURM) --thorough)

cgroup2: engine $(READY) ## Tests on cgroup v2: Slurm in a machine that QEMU emulates, without KVM, in a container (a quarter of an hour)
	$(BIN)/pytest -q -m cgroup2 -n0 -s -rs --timeout 3600 tests/cgroup2

test-gpu: $(READY) ## Tests on a machine with an NVIDIA GPU, as root: NVML, MPS by the hooks (SODA_GPU_TESTS=emulated: without one)
	$(BIN)/pytest -q -m gpu -rs tests/gpu

test-browser: $(READY) ## The web page in a real browser (Chromium without a window), at 10 000 jobs too (a minute)
	$(BIN)/pytest -q --thorough -n0 -rs tests/daemon/page/test_browser.py

HOURS ?= 1
fuzz: $(READY) ## Fuzz targets (tests/fuzz) with new examples, HOURS=n in total: parsers, flags, messages, files, C programs
	targets=$$($(BIN)/pytest -q --collect-only tests/fuzz 2>/dev/null | grep -c '::'); \
	FUZZ_S=$$((3600 * $(HOURS) / targets)) $(BIN)/pytest -q --timeout 0 tests/fuzz

bench: $(READY) ## Measure: decisions at scale, simulations, hooks and flags, cycles over a long queue
	$(BIN)/sodactl bench decide
	$(BIN)/python -m benchmarks.simulate --data $(DATA)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.hooks
	$(BIN)/python -m benchmarks.lua
	$(BIN)/python -m benchmarks.queue
	$(BIN)/python -m benchmarks.cpu_fit
	$(BIN)/python -m benchmarks.services
	$(BIN)/python -m benchmarks.metrics

reproduce: $(READY) ## Figures of papers and other simulators beside ours: docs/reproduction.md (DATA=dir with the traces)
	$(BIN)/python -m benchmarks.reproduce --data $(DATA)

SEEDS ?=
EVALUATE ?=
evaluate: $(READY) ## Policies on a matrix of generated workloads, against stock Slurm (hours, resumable; QUICK=1: minutes, SEEDS=21-40): docs/evaluation.md
	$(BIN)/python -m benchmarks.evaluate --data $(DATA)$(if $(filter-out 0 no,$(QUICK)), --quick)$(if $(SEEDS), --seeds $(SEEDS)) $(EVALUATE)

# On a machine of a Slurm site; ROLE=all is for a site of one machine. A site without a registry says where its wheels are:
# make install ROLE=agent PIP_FLAGS='--no-index --find-links DIR'
# STORE=postgresql adds the driver for a store that several controllers share.
ROLE ?= all
STORE ?=
PREFIX ?= /opt/slurm-soda
UNITS ?= /etc/systemd/system
# Where commands are in everybody's PATH; empty: no links there.
LINKS ?= /usr/local/bin
# What is installed there already is renewed too.
ROLES := $(ROLE) $(if $(filter install,$(MAKECMDGOALS)),$(shell install/installed.sh '$(PREFIX)'))
ON_CONTROLLER := $(filter all controller,$(ROLES))
ON_NODE := $(filter all agent,$(ROLES))
# Whom sodad runs as; asked of slurmctld once, and only where something is installed for him.
SLURM_USER ?= $(eval SLURM_USER := $(or $(shell timeout 20 scontrol show config 2>/dev/null | \
	sed -n 's/^SlurmUser *= *\([A-Za-z0-9._-]*\).*/\1/p'),slurm))$(SLURM_USER)
SLURM_GROUP ?= $(eval SLURM_GROUP := $(or $(shell id -gn -- '$(SLURM_USER)' 2>/dev/null),$(SLURM_USER)))$(SLURM_GROUP)
# For the administrator, on the controller: examples, and what other programs take.
SHARED := $(wildcard install/monitoring/*) slurm_ext/lua/job_submit.lua
LUA := soda_hints.lua soda_routes.lua soda_guests.lua soda.lua
# Prolog and epilog first: they do with parts of any version, older ones end with the status of newer parts.
NODE_HOOKS := prolog/prolog epilog/epilog $(wildcard prolog/share-* prolog/mps-*) epilog/share-end epilog/mps-stop
CONTROLLER_HOOKS := epilog/epilogctld daemon/soda-release-lifts
HOOKS := $(if $(ON_NODE),$(NODE_HOOKS)) $(if $(ON_CONTROLLER),$(CONTROLLER_HOOKS))
UNIT_FILES := $(if $(ON_CONTROLLER),$(addprefix daemon/,sodad.service sodad-expiry.service sodad-expiry.timer)) $(if $(ON_NODE),agent/soda-agent.service)
# One make at a time builds. Whoever can open a file or directory, if only to read it, can lock it for ever; this file only its owner opens.
ALONE = (umask 077 && : >>.make.lock) && chmod 600 .make.lock && flock .make.lock
# The plugin first, and anew: that tells whether Slurm's headers are here, and it belongs to the Slurm that is installed now.
install: | system ## Install on a Slurm machine (as root; ROLE=all|agent|controller|login, PREFIX=/opt/slurm-soda)
	$(ALONE) $(MAKE) -s -B -C slurm_ext/spank
	@echo "installing the role '$(ROLE)' at $(PREFIX): fetching packages, which takes minutes (without a network: PIP_FLAGS, docs/install.md)"
	PYTHON='$(PYTHON)' TOOLS='$(TOOLS)' PIP_FLAGS='$(PIP_FLAGS)' install/python.sh '$(ROLE)' '$(PREFIX)' '$(STORE)'
	install -d -m 755 $(PREFIX)/lib $(PREFIX)/libexec /etc/slurm-soda
	$(ALONE) $(MAKE) -s -C slurm_ext/spank install LIBDIR=$(PREFIX)/lib
	$(if $(ON_CONTROLLER),install -d -o '$(SLURM_USER)' -g '$(SLURM_GROUP)' -m 755 /var/lib/slurm-soda)
	$(if $(ON_CONTROLLER),install/place.sh 644 $(PREFIX)/lib $(LUA:%=slurm_ext/lua/%))
	$(if $(ON_CONTROLLER),install -d -m 755 $(PREFIX)/share $(PREFIX)/share/slurm-soda)
	$(if $(ON_CONTROLLER),install/place.sh 644 $(PREFIX)/share/slurm-soda $(SHARED))
	$(if $(strip $(HOOKS)),install/place.sh 755 $(PREFIX)/libexec $(HOOKS))
	$(if $(ON_NODE),[ -e /etc/slurm-soda/sharing.conf ] || install/place.sh 644 /etc/slurm-soda install/sharing.conf)
	$(if $(ON_NODE),$(ALONE) $(MAKE) -s -C wire install LIBEXECDIR=$(PREFIX)/libexec)
	$(if $(strip $(UNIT_FILES)),[ ! -d $(UNITS) ] || install/place.sh 644 $(UNITS) -e 's|=/opt/slurm-soda/|=$(PREFIX)/|' \
		$(if $(ON_CONTROLLER),-e 's|^User=slurm$$|User=$(SLURM_USER)|; s|^Group=slurm$$|Group=$(SLURM_GROUP)|') $(UNIT_FILES))
	install/links.sh '$(PREFIX)' '$(LINKS)'

uninstall: ## Remove what install made on this machine, once Slurm no longer names it (as root; PREFIX=…): docs/install.md
	FORCE='$(FORCE)' HOOKS='$(notdir $(NODE_HOOKS) $(CONTROLLER_HOOKS)) soda-deliver-event' \
		install/uninstall.sh '$(PREFIX)' '$(UNITS)' sodad.service sodad-expiry.timer sodad-expiry.service soda-agent.service
	install/links.sh '$(PREFIX)' '$(LINKS)' remove

# For the Python and the Slurm of this machine: build on each suite of Debian that the site has. REVISION=n: the same version anew.
DEB_PYTHON ?= /usr/bin/python3
PACKAGES_OUT ?= build/packages
REVISION ?= 1
ONLY ?=
packages: ## Debian packages of each role, wheel and sdist, for this machine's Python and Slurm (PACKAGES_OUT=build/packages): docs/install.md
	SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null)}" NODE_HOOKS='$(NODE_HOOKS)' \
		CONTROLLER_HOOKS='$(CONTROLLER_HOOKS)' LUA='$(LUA:%=slurm_ext/lua/%)' SHARED='$(SHARED)' STORE='$(STORE)' REVISION='$(REVISION)' ONLY='$(ONLY)' \
		TOOLS='$(TOOLS)' PIP_FLAGS='$(PIP_FLAGS)' SLURM_CFLAGS='$(SLURM_CFLAGS)' PACKAGES_STORE='$(PACKAGES_STORE)' \
		PYTHONPATH='$(CURDIR)' $(DEB_PYTHON) -m install.deb.build $(PACKAGES_OUT)

venv: $(if $(wildcard $(READY)),$(READY),$(TOOLS_READY)) ## sodactl with its simulator in a virtual environment (.venv), without the tools of development

flags: $(READY) ## Write the tables of --soda-... flags for C and lua from slurm_ext/hints/flags.py
	$(BIN)/python -m slurm_soda.slurm_ext.hints.flag_tables

COMPILE := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --allow-unsafe --no-strip-extras
lock: $(READY) ## Renew all locks: of development, and of each role the part of it that it needs
	$(COMPILE) --upgrade --extra dev pyproject.toml -o requirements-dev.lock
	@set -o pipefail; for role in agent controller login postgresql serving build; do \
		file=requirements-$$role.lock; [ $$role != login ] || file=requirements.lock; \
		$(BIN)/python install/roles.py requirements $$role | $(COMPILE) --upgrade -c requirements-dev.lock - -o $$file || exit; \
	done

clean: ## Remove the virtual environment and everything built
	rm -rf $(VENV) build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# System packages: a Python of 3.11 or newer that can make virtual environments, a C compiler, and for tests PostgreSQL,
# HAProxy and Prometheus.
# `make venv` does without the compiler: only what tests and a Slurm machine run is compiled.
WITH_POSTGRESQL := $(filter test unit thorough,$(MAKECMDGOALS))
WITH_HAPROXY := $(WITH_POSTGRESQL)
WITH_PROMETHEUS := $(WITH_POSTGRESQL)
WITH_BROWSER := $(filter test-browser thorough,$(MAKECMDGOALS))
system:
	@missing=; [ "$(MAKECMDGOALS)" = venv ] || command -v gcc >/dev/null || missing="gcc libc6-dev"; \
	[ -n "$(PYTHON)" ] && $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3 python3-venv"; \
	[ -z "$(WITH_POSTGRESQL)" ] || command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
		missing="$$missing postgresql"; \
	[ -z "$(WITH_HAPROXY)" ] || command -v haproxy >/dev/null || [ -x /usr/sbin/haproxy ] || missing="$$missing haproxy"; \
	[ -z "$(WITH_PROMETHEUS)" ] || command -v promtool >/dev/null || missing="$$missing prometheus"; \
	[ -z "$(WITH_BROWSER)" ] || command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || \
		missing="$$missing chromium-headless-shell"; \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing $$missing"; \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
		else echo "missing: $$missing. Install them, on Debian or Ubuntu with: sudo apt-get install $$missing" >&2; exit 1; fi; \
	fi

# Asked for before minutes of downloads. Root on Debian gets one installed by `sodactl`.
engine:
	@[ -n "$$DOCKER_HOST" ] || [ -S /var/run/docker.sock ] || [ -x /usr/sbin/dockerd ] || command -v dockerd >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || { \
		echo "no Docker engine is installed; run: sudo apt-get install docker.io && sudo usermod -aG docker $$USER, then log in again (not on Debian: https://docs.docker.com/engine/install/)" >&2; exit 1; }

# MAKE_VENV: a virtual environment with what these locks name, and slurm-soda itself as it lies here.
define MAKE_VENV
	@python=$$(for p in $(PYTHON) python3; do command -v $$p && break; done); \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "slurm-soda needs Python 3.11 or newer; this is $$($$python --version). Debian 12, Ubuntu 24.04 and later have it; or: make PYTHON=/path/to/python" >&2; exit 1; }; \
	echo "preparing $(VENV): fetching $$(cat $(filter-out -r,$(1)) | grep -c '^[A-Za-z0-9].*==') packages, which takes minutes"; $$python -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes $(1)
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib || true # every command starts twice as fast
	@touch $@
endef

$(READY): requirements-dev.lock pyproject.toml | system
	$(call MAKE_VENV,-r requirements-dev.lock)

$(TOOLS_READY): requirements.lock requirements-build.lock pyproject.toml | system
	$(call MAKE_VENV,-r requirements-build.lock -r requirements.lock)
