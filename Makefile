# The entry point for every task. `make` alone lists the targets. Each target prepares its own prerequisites.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

VENV := .venv
BIN := $(VENV)/bin
# An empty file. Its modification time says when the environment last matched the two files from which the environment
# is made.
READY := $(VENV)/.ready
# pip installs the pinned packages, and never checks for a newer version of itself.
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

DURATION ?= 20
REPLAY ?=
ARGS ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(READY) ## prepare .venv with the pinned packages (does nothing if they are there)

# The build tools come first, because one pinned package (pyspark) is published as source only. pip builds it with these
# tools, without build isolation, because an isolated build would fetch tools without a pinned hash.
$(READY): constraints.txt pyproject.toml
	@python=$$(bash .ci/python.sh) && echo "environment: $(VENV), by $$("$$python" --version)" \
		&& { [ -x $(BIN)/python ] && $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
			|| "$$python" -m venv --clear $(VENV); }
	@awk '/^(pip|setuptools)==/ { take = 1 } take; !/\\$$/ { take = 0 }' constraints.txt > $(VENV)/tools.txt
	@$(PIP) install --quiet --require-hashes -r $(VENV)/tools.txt
	@echo "packages: installing the pins of constraints.txt (the first time, this takes 500 MB and a minute or two)"
	@$(PIP) install --quiet --progress-bar off --require-hashes --no-build-isolation -r constraints.txt
	@env -u INGEBORG_COMPILE $(PIP) install -qq --no-deps --no-build-isolation --editable .
	@touch $@

# The build puts each extension module next to its source. It compiles nothing if the sources have not changed.
.PHONY: compiled
compiled: $(READY) ## compile the core in place, with mypyc and a C compiler (a minute); from then on, all commands use the compiled core
	@$(BIN)/python setup.py --quiet build_ext --inplace

.PHONY: interpreted
interpreted: ## remove what `make compiled` has made
	@python3 ingeborg/form.py

# OR-tools has a separate environment, because it needs an older version of Protocol Buffers than an endpoint.
OPTIMUM := build/optimum
$(OPTIMUM)/.ready: bench/packing/optimum.txt $(READY)
	@$(BIN)/python -m venv --clear $(OPTIMUM)
	@$(OPTIMUM)/bin/python -m pip --disable-pip-version-check --no-input install --quiet --progress-bar off \
		--require-hashes -r bench/packing/optimum.txt
	@touch $@

.PHONY: optimum
optimum: $(OPTIMUM)/.ready ## make an environment with OR-tools, for bench packing --optimum $(OPTIMUM)/bin/python (60 MB to fetch)
	@echo '$(OPTIMUM)/bin/python'

.PHONY: packing
packing: optimum ## evaluate how consumer groups are packed; results in build/packing (ten minutes on two cores)
	@JAVA_HOME=$$(bash bench/java.sh) && export JAVA_HOME \
		&& $(BIN)/bench packing --out '$(or $(OUT),build/packing)' --whole --optimum $(OPTIMUM)/bin/python $(ARGS)

SIMULATOR := build/simulator
$(SIMULATOR)/.ready: bench/caching/simulator.txt $(READY)
	@$(BIN)/python -m venv --clear $(SIMULATOR)
	@$(SIMULATOR)/bin/python -m pip --disable-pip-version-check --no-input install --quiet --progress-bar off \
		--require-hashes -r bench/caching/simulator.txt
	@touch $@

.PHONY: simulator
simulator: $(SIMULATOR)/.ready ## make an environment with libcachesim, which tests compare with our cache policies (INGEBORG_TEST_LIBCACHESIM)
	@echo '$(SIMULATOR)/bin/python'

.PHONY: caching
caching: $(READY) ## evaluate caches with the document's experiments and eleven policies; results in build/caching (LOG=now-playing.csv.gz)
	@JAVA_HOME=$$(bash bench/java.sh) && export JAVA_HOME \
		&& $(BIN)/bench caching --out '$(or $(OUT),build/caching)' $(if $(LOG),--log '$(LOG)') $(ARGS)

.PHONY: java
java: ## find Java 17 or newer, or install it with apt if possible; print its home
	@bash bench/java.sh

.PHONY: demo
demo: $(READY) ## run two endpoints with 20 s of radio traffic, and make a digest and a report (REPLAY=file.csv.gz, DURATION=seconds)
	@JAVA_HOME=$$(bash bench/java.sh) && export JAVA_HOME \
		&& DURATION='$(DURATION)' REPLAY='$(REPLAY)' bash bench/demo.sh

# The folder for the results of a comparison. Each day and each number of cores has its own folder.
RESULTS ?= bench/results/$(shell date +%F)-$(shell nproc)-cores
BENCH_ARGS := $(if $(FULL),--last 2097152) $(if $(RESUME),--resume) $(ARGS)

.PHONY: bench
bench: $(READY) ## run the thesis's benchmarks on this broker and its rivals: half an hour (FULL=1: to 2^21 topics; RESUME=1: continue)
	@JAVA_HOME=$$(bash bench/java.sh) && export JAVA_HOME \
		&& $(BIN)/bench compare bench/matrices/thesis.toml --out '$(RESULTS)' $(BENCH_ARGS)

.PHONY: pages
pages: $(READY) ## make the pages (report.html) and summaries of the result sets, and the tables of docs/, from the sets' digests
	@for digest in bench/results/*/digest.parquet; do \
		$(BIN)/bench report "$$digest" --out "$${digest%/*}/report.html"; \
	done
	@$(BIN)/python -m ingeborg.bench.text.page docs/benchmarks.md docs/comparison.md
	@for name in autoscale caching dyconits overlay packing; do for digest in bench/results/*/$$name.json.xz; do \
		$(BIN)/bench $$name --report-only --out "$${digest%/*}" >/dev/null; \
	done; done

.PHONY: bench-self
bench-self: $(READY) ## compare this broker's figures with their goals: a quarter of an hour (FULL=1: an hour, with rivals)
	@JAVA_HOME=$$(bash bench/java.sh) && export JAVA_HOME && $(BIN)/python -m ingeborg.bench.budgets $(if $(FULL),--full) $(ARGS)

# Most tests wait for something, so there are more processes than cores. Tests that share endpoints or a Spark session
# stay in one process, and long tests come first (tests/order.py). The tests start a thousand Python processes. Each
# would compile our modules again if PYTHONDONTWRITEBYTECODE were set. The seed of Python's hashes is the same as in the
# simulator's replay, so that the replay repeats a failing history exactly.
TEST_PROCESSES ?= 5

.PHONY: test
test: $(READY) ## run all tests that a change needs: about eleven minutes on two cores (ARGS="-k name" is passed to pytest)
	@[[ '$(TEST_PROCESSES)' =~ ^([0-9]+|auto)$$ ]] || { echo "TEST_PROCESSES='$(TEST_PROCESSES)' must be a number, or auto" >&2; exit 2; }
	@JAVA_HOME=$$(bash bench/java.sh) && export JAVA_HOME || echo "continuing without Java: the tests that need it are skipped" >&2; \
	env -u PYTHONDONTWRITEBYTECODE INGEBORG_PURE=1 PYTHONHASHSEED=0 $(BIN)/python -m pytest --form interpreted \
		--numprocesses '$(TEST_PROCESSES)' --dist loadfile $(ARGS)

# Compilation can break the compiled modules (ingeborg/form.py) and their callers. If no test of one of these paths
# runs, the whole run fails (tests/slices.py). Each commit runs a share of the simulator's seeds (tests/proof.py).
COMPILED_SLICE := tests/broker/core tests/autoscaler/groups tests/protocol tests/simulator \
	tests/store/test_embedded.py tests/contract/test_subscriptions.py tests/contract/test_journal.py \
	tests/fuzz/test_frames.py tests/broker/shell tests/broker/http tests/cluster/test_cluster.py tests/histories

.PHONY: test-compiled
test-compiled: compiled ## run the tests of the core on its compiled form (ARGS="-k name" is passed to pytest)
	@env -u PYTHONDONTWRITEBYTECODE -u INGEBORG_PURE PYTHONHASHSEED=0 $(BIN)/python -m pytest --form compiled \
		--proof share --slices --numprocesses '$(TEST_PROCESSES)' --dist loadfile $(COMPILED_SLICE) $(ARGS)

# The minutes for which `make prove` runs `make soak`.
PROVE_MINUTES ?= 60

.PHONY: prove
prove: compiled ## test everything: all seeds and histories on the interpreted and the compiled core, attacks, PROVE_MINUTES=60 of random faults (some four hours)
	@echo "all tests on the sources, the core's tests compiled, attacks, then $(PROVE_MINUTES) minutes of soak: some four hours"
	@status=0; \
	$(MAKE) --no-print-directory test ARGS='--proof all $(ARGS)' || status=1; \
	$(MAKE) --no-print-directory test-compiled ARGS='--proof all $(ARGS)' || status=1; \
	$(MAKE) --no-print-directory attack || status=1; \
	$(MAKE) --no-print-directory soak MINUTES='$(PROVE_MINUTES)' || status=1; \
	exit $$status

.PHONY: test-tools
test-tools: $(if $(KAFKA)$(RULER)$(CENTRIFUGE)$(NATS),$(READY)) ## install programs that some tests need, with apt (also: KAFKA=1, RULER=1, CENTRIFUGE=1, NATS=1)
	@KAFKA='$(KAFKA)' RULER='$(RULER)' CENTRIFUGE='$(CENTRIFUGE)' NATS='$(NATS)' bash .ci/test-tools.sh

MINUTES ?= 30
SEED ?= 1

.PHONY: soak
soak: $(READY) ## run random histories with faults on real endpoints for MINUTES=30, with new seeds from SEED=1 on
	@$(BIN)/python -m tests.histories soak --minutes '$(MINUTES)' --seed '$(SEED)' $(ARGS)

.PHONY: attack
attack: $(READY) ## send a million malformed frames and requests (COUNT=), and legal but hostile ones, to an endpoint in use, over TCP and TLS
	@status=0; \
	for over in '' --tls; do \
		$(BIN)/python -m tests.fuzz.attack --count '$(or $(COUNT),1000000)' $$over $(ARGS) || status=1; \
		$(BIN)/python -m tests.fuzz.hostile $$over || status=1; \
	done; \
	exit $$status

.PHONY: lint
lint: $(READY) ## check style, format and types
	@status=0; \
	$(BIN)/ruff check . || status=1; \
	$(BIN)/ruff format --check . || status=1; \
	$(BIN)/mypy || status=1; \
	exit $$status

.PHONY: docs
docs: pages ## make the documentation site in build/docs (a warning is an error)
	@$(BIN)/python -m sphinx -b html -c docs -W --keep-going -q . build/docs && echo "build/docs/index.html"

# The packages for compiling ([tool.ingeborg.compile] in pyproject.toml) get their versions from constraints.txt, and
# their hashes go into deploy/constraints.txt.
PIN := env -u PIP_FIND_LINKS -u PIP_INDEX_URL -u PIP_EXTRA_INDEX_URL CUSTOM_COMPILE_COMMAND='make constraints' \
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url \
	--no-emit-trusted-host --no-emit-find-links --no-emit-options --no-annotate

.PHONY: constraints
constraints: $(READY) ## renew the pins and hashes: constraints.txt (all packages), deploy/constraints.txt (the image and its build), pyproject.toml (compilation)
	@$(PIN) --upgrade --all-extras --output-file constraints.txt pyproject.toml
	@sed -i -E -f <(sed -nE 's/^([a-z0-9-]+)==([^ ]+).*/s|"\1==[^";]+|"\1==\2|/p' constraints.txt) pyproject.toml
	@INGEBORG_COMPILE=1 $(PIN) --upgrade --extra server --extra autoscale --build-deps-for wheel -c constraints.txt --output-file deploy/constraints.txt pyproject.toml
	@$(PIN) --upgrade --output-file bench/packing/optimum.txt - <<< ortools
	@$(PIN) --upgrade --output-file bench/caching/simulator.txt - <<< libcachesim
	@$(BIN)/python .ci/pins.py constraints.txt deploy/constraints.txt bench/packing/optimum.txt bench/caching/simulator.txt

.PHONY: clean
clean: ## remove the environment, caches and builds (but not runs/, which holds measurements)
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
