# SPDX-License-Identifier: Apache-2.0

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Targets on the command line, and prerequisites, are made one after the other, also with -j. Only a recipe that calls
# make with ALL_CORES has several made at a time.
ifeq ($(MAKELEVEL),0)
.NOTPARALLEL:
endif
ALL_CORES := --no-print-directory -j$(shell nproc)

# The Go that .ci/deps fetched, where the machine's own is missing or too old.
export PATH := $(CURDIR)/.cache/go/bin:$(PATH)
# The same static binaries everywhere, with a C compiler at hand or not; only the race detector needs one.
export CGO_ENABLED := 0
# The same flags everywhere, so that nothing is compiled twice. Debuggers do without the tests; vet is a part of lint.
export GOFLAGS := -trimpath -ldflags=-w -vet=off $(GOFLAGS)

VERSION := $(shell git describe --always --dirty 2>/dev/null)
PREFIX ?= /usr/local
KERNEL ?= 6.12

# sudo would drop the fetched Go from PATH.
SUDO := $(if $(filter-out 0,$(shell id -u)),sudo -E env PATH=$(PATH))
CLANG := clang-19
BPF_CFLAGS := -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -fno-strict-aliasing -mcpu=v3 -I bpf/include
LINT := go tool -modfile=.ci/tools/go.mod
# `find *` skips the dot folders, among them the cache.
C_FILES = $(shell find * -name '*.[ch]')
GO_FILES = $(shell find * -name '*.go')

.PHONY: help
help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 18

.PHONY: deps
deps: ## Install what this machine lacks: Debian packages, Go
	@.ci/deps

# What the BPF sources compile to, and the maps' types in Go, at the same paths below OUT as in this folder.
OUT := .
HEADERS := $(wildcard bpf/include/mpcc/*.h)
OBJECTS := $(addprefix $(OUT)/, \
	$(patsubst bpf/cc/%.bpf.c,bpf/obj/cc-%.o,$(wildcard bpf/cc/*.bpf.c)) \
	$(patsubst bpf/sched/%.bpf.c,bpf/obj/sched-%.o,$(wildcard bpf/sched/*.bpf.c)) \
	$(patsubst bpf/sched/%.bpf.c,bpf/obj/sched-%-native.o,$(wildcard bpf/sched/*.bpf.c)) \
	$(patsubst test/bench/cc/%.bpf.c,test/bench/%.o,$(wildcard test/bench/cc/*.bpf.c)) \
	$(patsubst test/e2e/bpf/%.bpf.c,test/e2e/%.o,$(wildcard test/e2e/bpf/*.bpf.c)) \
	test/e2e/roomy.o)
MAP_TYPES := mpcc_subflow mpcc_total_key mpcc_total mpcc_counter_set mpcc_energy_key mpcc_energy_profile \
	mpcc_sched_connection mpcc_sched_total_key mpcc_sched_total mpcc_sched_counter_set \
	mpcc_path_rule mpcc_path_use

# The objects have to be the same on any machine: no paths of it, no compiler's version, and of what -g adds only
# BTF.
define compile
	@mkdir -p $(@D)
	$(CLANG) -target bpfel $(BPF_CFLAGS) -fno-ident '-fdebug-prefix-map=$(CURDIR)=.' -fdebug-compilation-dir=. -c $< -o $@
	@llvm-strip-19 -g $@
endef

$(OUT)/bpf/obj/cc-%.o: bpf/cc/%.bpf.c $(HEADERS)
	$(compile)
$(OUT)/bpf/obj/sched-%-native.o: BPF_CFLAGS += -DMPCC_NATIVE
$(OUT)/bpf/obj/sched-%-native.o: bpf/sched/%.bpf.c $(HEADERS)
	$(compile)
$(OUT)/bpf/obj/sched-%.o: bpf/sched/%.bpf.c $(HEADERS)
	$(compile)
$(OUT)/test/bench/%.o: test/bench/cc/%.bpf.c $(HEADERS)
	$(compile)
$(OUT)/test/e2e/oracle.o: bpf/cc/lia.bpf.c
$(OUT)/test/e2e/%.o: test/e2e/bpf/%.bpf.c $(HEADERS)
	$(compile)
# What `mpcc new sched roomy` writes.
.cache/template/roomy.bpf.c: bpf/template/sched/NAME.bpf.c
	@mkdir -p $(@D)
	sed s/NAME/roomy/g $< >$@
$(OUT)/test/e2e/roomy.o: .cache/template/roomy.bpf.c $(HEADERS)
	$(compile)
# The Go types of a source, and what it compiles to: $(call bpf2go,NAME,TYPES).
define bpf2go
	@mkdir -p $(@D)
	go tool bpf2go -cc $(CLANG) -strip llvm-strip-19 -target bpfel -output-dir $(@D) -go-package obj \
		$(addprefix -type ,$(2)) $(1) $< -- $(BPF_CFLAGS) -fno-ident
endef

$(OUT)/bpf/obj/maps_bpfel.go: bpf/maps.bpf.c $(HEADERS)
	$(call bpf2go,Maps,$(MAP_TYPES))
$(OUT)/bpf/obj/sockets_bpfel.go: bpf/sockets.bpf.c $(HEADERS)
	$(call bpf2go,Sockets,mpcc_socket)
$(OUT)/bpf/obj/use_bpfel.go: bpf/use.bpf.c $(HEADERS)
	$(call bpf2go,Use)

.PHONY: objects
objects: $(OBJECTS) $(addprefix $(OUT)/bpf/obj/,maps_bpfel.go sockets_bpfel.go use_bpfel.go) ## Compile the BPF programs that have changed

.PHONY: generate
generate: ## Write all generated files: BPF objects, their Go types, tables, docs
	go run ./bpf/gen | clang-format-19 >bpf/include/mpcc/logistic.h
	rm -f bpf/obj/*.o bpf/obj/*_bpfel.go test/bench/*.o test/e2e/*.o
	$(MAKE) $(ALL_CORES) objects
	go run ./docs/gen >docs/algorithms.md
	go run ./docs/gen/results
	go run ./docs/gen/scenarios
	go run ./docs/gen/config
	go run ./docs/gen/simulated
	go run ./docs/gen/choose
	go run ./docs/gen/reliability

.PHONY: check-generated
check-generated: ## Fail if a generated file is not what its sources give
	@diff bpf/include/mpcc/logistic.h <(go run ./bpf/gen | clang-format-19)
	@diff docs/algorithms.md <(go run ./docs/gen)
	@mkdir -p .cache/docs && go run ./docs/gen/choose -out .cache/docs/choose.md && diff docs/choose.md .cache/docs/choose.md || \
		{ echo "docs/choose.md is not what internal/choose gives: run make generate and commit" >&2; exit 1; }
	@rm -rf .cache/docs/verified && mkdir -p .cache/docs/verified && go run ./docs/gen/reliability -out .cache/docs/verified && \
		diff <(sed 's/ (older)//g' docs/reliability.md) <(sed 's/ (older)//g' .cache/docs/verified/reliability.md) && diff docs/performance.md .cache/docs/verified/performance.md || \
		{ echo "docs/reliability.md or docs/performance.md is not what the records and the sources give: run make generate and commit" >&2; exit 1; }
	@rm -rf .cache/docs/results && go run ./docs/gen/results -out .cache/docs && \
		diff docs/results.md .cache/docs/results.md && diff -rq -x '*.json' -x '*.csv' docs/results .cache/docs/results || \
		{ echo "docs/results.md is not what docs/results gives: run make generate and commit" >&2; exit 1; }
	@go run ./docs/gen/simulated -out .cache/docs/simulator.md && diff docs/simulator.md .cache/docs/simulator.md || \
		{ echo "docs/simulator.md is not what docs/results gives: run make generate and commit" >&2; exit 1; }
	@rm -rf .cache/objects && $(MAKE) $(ALL_CORES) objects OUT=.cache/objects >/dev/null
	@for folder in bpf/obj test/bench test/e2e; do \
		diff <(cd $$folder && sha256sum *.o *_bpfel.go 2>/dev/null) <(cd .cache/objects/$$folder && sha256sum *.o *_bpfel.go 2>/dev/null) || \
		{ echo "$$folder is not what the BPF sources compile to: run make generate and commit" >&2; exit 1; }; \
	done
	@rm -rf .cache/vectors
	@go run ./test/reference/gen -out .cache/vectors
	@diff -r testdata/vectors/derived .cache/vectors || \
		{ echo "testdata/vectors/derived is not what test/reference gives: run make vectors and commit" >&2; exit 1; }

.PHONY: vectors
vectors: ## Derive testdata/vectors/derived from the floating-point reference
	go run ./test/reference/gen

.PHONY: build
build: ## Build bin/mpcc, static
	go build -trimpath -ldflags "-s -w -X main.release=$(VERSION)" -o bin/mpcc ./cmd/mpcc

.PHONY: fmt
fmt: ## Format all C and Go
	clang-format-19 -i $(C_FILES)
	gofmt -w $(GO_FILES)

.PHONY: formatted
formatted:
	clang-format-19 --dry-run -Werror $(C_FILES)
	@unformatted=$$(gofmt -l $(GO_FILES)); [ -z "$$unformatted" ] || \
		{ echo "not as gofmt writes it: $$unformatted" >&2; exit 1; }

.PHONY: lint
lint: formatted ## Check formatting, licence lines, Go code, Kubernetes manifests and the public API
	@unlicensed=$$(grep -L 'SPDX-License-Identifier: GPL-2.0-only' $(C_FILES); \
		grep -L -e 'SPDX-License-Identifier: Apache-2.0' -e '^// Code generated .* DO NOT EDIT' $(GO_FILES); :); \
		[ -z "$$unlicensed" ] || { echo "without its SPDX line: $$unlicensed" >&2; exit 1; }
	$(LINT) golangci-lint run # with vet and staticcheck
	go -C test/manifests test -count=1 .
	@.ci/api

.PHONY: vulnerabilities
vulnerabilities: ## Fail if mpcc calls code with a vulnerability that Go's database knows (asks vuln.go.dev)
	go tool -modfile=.ci/tools/vuln.mod govulncheck ./...

# Packages in which goroutines or processes meet: their tests run under the race detector.
CONCURRENT := ./cmd/... ./loader ./internal/lockfile ./internal/netns ./internal/kmod ./internal/watch/... \
	./internal/experiment/lab ./internal/experiment/run ./internal/experiment/traffic ./pkg/...
OTHERS = $(shell go list ./... | grep -vxF "$$(go list $(CONCURRENT))")
# These compute for long in a single goroutine, in which the race detector would find nothing.
LONG := ^(TestRandomConnections|TestRandomScenes|TestNoSceneStalls)$$
# These start mpcc some hundred times, or look at all that is loaded: no test that loads BPF runs beside them.
ALONE := ^Test(Host|ObjectScripts)
# These draw their inputs: make test always with seed 1, make native with new seeds.
SEEDED := ^Test(RandomConnections|RandomScenes|RandomProgramsAsInKernel|EvaluationsAsInKernel|SchedulersAsInKernel|MapsAsInKernel|CallbacksAsNative|SchedulersAsNative)$$
# What these see hangs on how fast the machine is, on a browser or on containers: make verify runs them (PARTS=native).
MEASURING := ^(TestHostPages|TestHostKubernetes|TestForeignPeer|TestWatchLive|TestLearnFindsTheProfile|TestLearnFromABattery|TestPageInBrowser|TestCrowdInBrowser|TestTransferOverTwoPaths|TestFastTransfer|TestBackupFallsSilent|TestSubflowBackup|TestFatTree)$$

.PHONY: unit
unit: ## Run the tests that need no VM (as root: some load BPF), and fuzz the BPF arithmetic
	@$(MAKE) $(ALL_CORES) race plain
	@$(MAKE) $(ALL_CORES) alone $(HARNESSES)

.PHONY: race
race:
	CGO_ENABLED=1 go test -race -count=1 -exec "$(SUDO)" -skip '$(LONG)|$(ALONE)|$(MEASURING)' $(CONCURRENT)

.PHONY: plain
plain:
	go test -count=1 -exec "$(SUDO)" -skip '$(ALONE)|$(MEASURING)' $(OTHERS)
	go test -count=1 -exec "$(SUDO)" -run '$(LONG)' ./loader

# Where the tests of test/e2e find the project's files.
E2E_FILES := MPCC_BIN=$(CURDIR)/bin/mpcc MPCC_TESTDATA=$(CURDIR)/testdata MPCC_DEPLOY=$(CURDIR)/deploy MPCC_PAGES=$(CURDIR)

.PHONY: alone
alone: build
	$(E2E_FILES) go test -count=1 -p 1 -tags e2e -exec "$(SUDO)" -run '$(ALONE)' -skip '$(MEASURING)' ./test/e2e ./cmd/mpcc

.PHONY: native
native: test-deps build ## Run the tests whose outcome hangs on this machine's speed, and random connections with new seeds
	@.ci/deps buildah chromium runc
	go test -v -count=1 -p 1 -exec "$(SUDO)" -run '$(MEASURING)' ./...
	go test -v -count=1 -p 1 -exec "$(SUDO)" -run '$(SEEDED)' ./loader ./internal/bytecode ./internal/experiment/sim/control -seed 0
	$(E2E_FILES) go test -v -count=1 -tags e2e -exec "$(SUDO)" -run '$(MEASURING)' ./test/e2e

FUZZ_SANITIZERS := address,undefined,unsigned-integer-overflow,unsigned-shift-base,implicit-unsigned-integer-truncation

# All congestion controls share two files, which are told the name, and all schedulers one; those whose rule whole.c reckons
# apart from the code share one more. Other files are one each.
HARNESSES := $(addprefix fuzz/, \
	$(patsubst bpf/cc/%.bpf.c,cc-%,$(wildcard bpf/cc/*.bpf.c)) \
	$(patsubst bpf/cc/%.bpf.c,live-%,$(wildcard bpf/cc/*.bpf.c)) \
	$(patsubst bpf/sched/%.bpf.c,sched-%,$(wildcard bpf/sched/*.bpf.c)) \
	$(addprefix whole-,dts dtsx ewtcp lia mpcubic wvegas) \
	$(patsubst test/fuzz/%.c,%,$(filter-out $(addprefix test/fuzz/,eval.c live.c sched.c whole.c),$(wildcard test/fuzz/*.c))))

# Each FuzzX of a package is one target too: fuzz/go/FOLDER/FuzzX. make unit runs it on the inputs in the tree.
GO_FUZZERS = $(shell grep -o '^func Fuzz[A-Za-z]*' $$(find * -name '*_test.go') | sed 's|\(.*\)/.*_test.go:func |fuzz/go/\1/|')
# In seconds, as libFuzzer wants it.
FUZZ_SECONDS = $(shell echo $$(($(subst s,,$(subst m,*60,$(subst h,*3600,$(FUZZTIME)))))))
# So many inputs, the same in each run and on each machine, or new ones for FUZZTIME. Values that the code compares, from which
# libFuzzer also makes inputs, may be addresses on the stack and the heap, which differ from run to run: not with a seed.
RUNS = 80000
fuzz/cc-%: RUNS = 50000
fuzz/bottleneck: RUNS = 20000
fuzz/live-%: RUNS = 200000
fuzz/whole-%: RUNS = 10000
fuzz/verdicts: RUNS = 5000
fuzz/sched-%: RUNS = 300000
FUZZ_LENGTH = $(if $(FUZZTIME),-max_total_time=$(FUZZ_SECONDS),-seed=1 -runs=$(RUNS) -use_cmp=0)

# All harnesses are built by this, from their source and what it includes. The address of the code is fixed (-no-pie), and the
# depth of the stack does not count as coverage: libFuzzer chooses inputs by both, and a random address moves both.
define harness
	@mkdir -p $(@D)
	$(CLANG) -g -O1 -Wall -Wextra -Werror -Wno-unused-parameter -fno-strict-aliasing -I bpf -I bpf/include \
		-fsanitize=fuzzer,$(FUZZ_SANITIZERS) -fno-sanitize-recover=all -fno-pie -no-pie -fno-sanitize-coverage=stack-depth \
		$(if $(filter-out test/fuzz/$*.c,$<),-DALGORITHM=$*) -MMD -MP -MT $@ -o $@ $< -lm
endef
DEPENDENCIES := $(wildcard .cache/fuzz/bin/*.d)
-include $(DEPENDENCIES)
# The compiler writes them; without this, make would take them for harnesses.
$(DEPENDENCIES): ;
.SECONDARY: $(HARNESSES:fuzz/%=.cache/fuzz/bin/%)

.cache/fuzz/bin/cc-%: test/fuzz/eval.c
	$(harness)
.cache/fuzz/bin/live-%: test/fuzz/live.c
	$(harness)
.cache/fuzz/bin/whole-%: test/fuzz/whole.c
	$(harness)
.cache/fuzz/bin/sched-%: test/fuzz/sched.c
	$(harness)
.cache/fuzz/bin/%: test/fuzz/%.c
	$(harness)

# A harness that does not say at its end how many inputs it was run on has failed.
fuzz/%: .cache/fuzz/bin/%
	@log=.cache/fuzz/$*.log; \
	$< $(FUZZ_LENGTH) -artifact_prefix=.cache/fuzz/$*- >$$log 2>&1 && grep -q '^Done ' $$log || \
		{ tail -n 60 $$log >&2; echo "$@: failed" >&2; exit 1; }; \
	echo "$@: $$(grep '^Done ' $$log), $$(grep -o 'Seed: [0-9]*' $$log)"

# Before 1.27 Go's fuzzer may call the end of its time a failure (go.dev/issue/75804).
fuzz/go/%: export GOTOOLCHAIN := go1.27.1
fuzz/go/%:
	@[ "$(FUZZTIME)" ] || { echo "fuzz/go/$*: say for how long: FUZZTIME=10m" >&2; exit 1; }
	@log=.cache/fuzz/$(subst /,-,$*).go.log; mkdir -p .cache/fuzz; \
	go test -run '^$$' -fuzz '^$(notdir $*)$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 100x -parallel 1 ./$(dir $*) >$$log 2>&1 && \
		grep -q 'execs: [1-9]' $$log || { tail -n 60 $$log >&2; echo "fuzz/go/$*: failed" >&2; exit 1; }; \
	echo "$@: $$(grep -o 'execs: [0-9]*' $$log | tail -n 1)"

.PHONY: fuzz
fuzz: ## Fuzz the BPF arithmetic natively, always with the same inputs; with FUZZTIME (10m for each) also all that mpcc reads
	@$(MAKE) $(ALL_CORES) $(HARNESSES) $(if $(FUZZTIME),$(GO_FUZZERS))

.PHONY: vm
vm: ## Run in VMs with stock Debian kernels the end-to-end tests whose verdict hangs on nothing but the code
	go test -count=1 -tags vm -timeout 85m -skip '^TestE2E$$' ./test/kernels

VM ?=

.PHONY: e2e
e2e: ## Run all end-to-end tests in VMs, or those of one (VM=6.12, 7.x, own-time-1, packages)
	@.ci/deps lintian qemu-system-arm
	go test -v -count=1 -tags vm -timeout 3h -run '^TestE2E$$/$(if $(VM),^$(subst .,[.],$(VM))$$)' ./test/kernels

.PHONY: vm-shell
vm-shell: ## Open a shell in such a VM (KERNEL=6.12)
	go run ./test/kernels/cmd/vm shell -kernel $(KERNEL)

.PHONY: selftests
selftests: deps ## Run the kernel's MPTCP selftests with each congestion control (CONTROLS="cubic lia+minrtt", KERNEL=6.12)
	go run ./test/kernels/cmd/selftests -kernel $(KERNEL) $(CONTROLS)

.PHONY: debug-deps
debug-deps: # what building a debug kernel takes
	@.ci/deps $$(sed 's/#.*//' internal/vm/debug-packages.txt)

# What runs in the kernel: the module, the schedulers and the congestion controls, while they come and go. Tests that
# compare rates are left out: a kernel that watches itself is too slow for them.
SOAKED := ^Test(Module|SchedulerUnder|SchedulerOf|SchedulersNever|Redundant|Subflow|Switch|LifeUnder|Transfer)
ROUNDS ?= 3
SOAK_KERNELS ?= debug rt

.PHONY: soak
soak: deps debug-deps ## Run the kernel's part ROUNDS times on a kernel with KASAN and lockdep, built here, and on PREEMPT_RT
	for kernel in $(SOAK_KERNELS); do go run ./test/kernels/cmd/vm run -kernel $$kernel /usr/bin/e2e.test \
		-test.v -test.run '$(SOAKED)' -test.count $(ROUNDS) -test.timeout 12h; done

# The kernel's source from which soak has built its debug kernel.
KERNEL_SOURCE := .cache/vm/kernel-debug/build

.PHONY: checkpatch
checkpatch: ## Check the module's source with the kernel's checkpatch.pl, from the source that soak has fetched
	@[ -e $(KERNEL_SOURCE)/scripts/checkpatch.pl ] || \
		{ echo "no $(KERNEL_SOURCE)/scripts/checkpatch.pl: run make soak SOAK_KERNELS=debug" >&2; exit 1; }
	perl $(KERNEL_SOURCE)/scripts/checkpatch.pl --root=$(KERNEL_SOURCE) --strict -f bpf/kmod/src/*.[ch]

PARTS ?=

.PHONY: verify
verify: deps $(if $(filter all kernels kernels/debug%,$(PARTS)),debug-deps) ## Run what takes long or measures, and is missing or older in docs/reliability (PARTS="kernels churn", or none to list them)
	$(SUDO) go run ./test/verify $(PARTS)

.cache/site/installed: docs/site/requirements.txt
	python3 -m venv --clear $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

.PHONY: site
site: .cache/site/installed ## Build the documentation's site in .site; fail on dead links there and in all pages
	.cache/site/bin/python -m mkdocs build --strict --config-file docs/site/mkdocs.yml --site-dir $(CURDIR)/.site
	@! grep -rEl '<(script|img|link|iframe)[^>]* (src|href)="?(https?:)?//' .site --include '*.html' || \
		{ echo "these pages take something from elsewhere" >&2; exit 1; }
	.cache/site/bin/lychee --quiet --offline --include-fragments --no-progress --exclude-path 404.html --exclude-path docs/gen/ \
		$$(find * -name '*.md' -not -path 'docs/site/*') '.site/**/*.html'

# Since which commit make check looks for changes.
SINCE ?= HEAD
CHANGED_PACKAGES = $(shell git diff --name-only --diff-filter=d $(SINCE) -- '*.go' ':!test/manifests' | xargs -r -n1 dirname | sort -u | sed 's|^|./|')

.PHONY: check
check: deps build check-generated formatted ## Two minutes: build, generated files, lint of what changed (SINCE=HEAD), unit tests of what it touches
	$(if $(CHANGED_PACKAGES),$(LINT) golangci-lint run $(CHANGED_PACKAGES))
	go test -exec "$(SUDO)" -skip '$(LONG)|$(ALONE)|$(MEASURING)' ./...

.PHONY: test-deps
test-deps: ## Install also what only the tests need
	@.ci/deps curl mptcpize patch procps python3 python3-venv

.PHONY: test
test: test-deps build check-generated lint site unit vm ## Run every check and test

.PHONY: bench
bench: deps build ## Compare goodput and cost per ACK with other controls (BENCH_FLAGS=-json FILE); time scrapes
	go build -o bin/bench ./test/bench
	$(SUDO) nice -n -10 bin/bench $(BENCH_FLAGS)
	@$(MAKE) --no-print-directory bench-scrape

.PHONY: bench-instructions
bench-instructions: deps build ## Count, in a VM, the instructions of an ACK that docs/algorithms.md shows (an hour)
	go build -o bin/bench ./test/bench
	mkdir -p .cache/bench
	go run ./test/kernels/cmd/vm run -own-time -instruction 1ns -kernel $(KERNEL) -mpcc=false -results .cache/bench \
		-file /bench=bin/bench /bench -instructions -rounds 1 -seconds 1.5 -json /results/instructions.json
	cp .cache/bench/instructions.json docs/

.PHONY: bench-sched
bench-sched: deps build ## Measure, in a VM, what a decision of each packet scheduler takes, as docs/algorithms.md shows (a quarter of an hour)
	go build -o bin/bench-sched ./test/bench/sched
	for n in 2 8; do go run ./test/kernels/cmd/vm run -own-time -mpcc=false -kernel $(KERNEL) -file /bench=bin/bench-sched \
		-- sh -c "modprobe mpcc_sched && /bench -rounds 5 -bytes 268435456 -subflows $$n" || exit 1; done

.PHONY: bench-scrape
bench-scrape:
	go test -exec "$(SUDO)" -run '^$$' -bench . -benchmem ./test/bench/scrape

NS3 := .cache/ns3

$(NS3)/installed:
	python3 -m venv --clear $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --no-deps ns3==3.44.post0
	@touch $@

$(NS3)/network: test/ns3/network/network.cc $(NS3)/installed
	package=$$(echo $(CURDIR)/$(NS3)/lib/python3*/site-packages/ns3) && \
	$(CXX) -std=c++20 -O2 -I$$package/include -o $@ $< -L$$package/lib64 -Wl,-rpath,$$package/lib64 -Wl,--allow-shlib-undefined \
		$(addprefix -lns3.44-,core network internet applications point-to-point traffic-control)

.PHONY: bench-sim
bench-sim: ## Measure how many packets the simulator passes over links in a second of processor time, beside ns-3
	go test -run '^$$' -bench FatTree ./internal/experiment/sim
	@$(MAKE) --no-print-directory $(NS3)/network
	go run ./test/ns3 $(NS3)/network

.PHONY: acks
acks: deps build ## Record again, in a VM, the kernel's windows by ACKs with which a test of the simulator compares
	go build -o bin/acks ./test/acks
	mkdir -p .cache/acks
	go run ./test/kernels/cmd/vm run -own-time -kernel $(KERNEL) -mpcc=false -results .cache/acks \
		-file /usr/bin/mpcc=bin/mpcc -file /usr/bin/acks=bin/acks /usr/bin/acks -out /results reno cubic lia
	for cc in reno cubic lia; do gzip -9nc .cache/acks/$$cc >internal/experiment/sim/testdata/acks/$$cc.gz; done

# What docs/choose.md is made of: each condition with every control as it comes, as its paper has it, and with
# couple=always; and with every scheduler under the kernel's cubic and under dwc, which of ours does most as cubic does.
CONDITIONS = $(patsubst internal/experiment/conditions/%.yaml,%,$(wildcard internal/experiment/conditions/*.yaml))
CONTROLS = $(patsubst bpf/cc/%.bpf.c,%,$(wildcard bpf/cc/*.bpf.c))
SCHEDULERS = $(patsubst bpf/sched/%.bpf.c,%,$(wildcard bpf/sched/*.bpf.c))
comma := ,
empty :=
commas = $(subst $(empty) ,$(comma),$(strip $(1)))

.PHONY: choose
choose: build ## Measure in the simulator what docs/choose.md says, and write it (some 30 minutes of processor time)
	rm -rf .cache/choose && mkdir -p .cache/choose
	for c in $(CONDITIONS); do \
		bin/mpcc run $$c --sim --out .cache/choose/$$c >/dev/null; \
		bin/mpcc run $$c --sim --set tuning=paper --cc $(call commas,$(CONTROLS)) --out .cache/choose/$$c-paper >/dev/null; \
		[ $$c = choose-plain ] || bin/mpcc run $$c --sim --set tuning=couple=always --cc $(call commas,$(CONTROLS)) --out .cache/choose/$$c-couple >/dev/null; \
		[ $$c = choose-plain ] || bin/mpcc run $$c --sim --cc cubic,dwc --sched $(call commas,$(SCHEDULERS)) --out .cache/choose/$$c-sched >/dev/null; \
	done
	bin/mpcc run choose-wifi --sim --set what=web --repeats 300 --out .cache/choose/choose-wifi-web >/dev/null
	bin/mpcc run choose-wifi --sim --set what=web --repeats 300 --cc cubic,dwc --sched $(call commas,$(SCHEDULERS)) --out .cache/choose/choose-wifi-web-sched >/dev/null
	go run ./docs/gen/choose .cache/choose/*
	go run ./docs/gen/choose

.PHONY: slurm
slurm: build ## Run a sweep as a job array under Debian's Slurm, on this machine
	$(SUDO) test/slurm/check

.PHONY: demo
demo: deps build ## Load dts, run a transfer over two paths and show it live
	go build -o bin/demo ./test/demo
	$(SUDO) bin/demo

bin/mpcc:
	$(MAKE) build

.PHONY: install
install: bin/mpcc ## Install bin/mpcc, headers, man pages and completions (PREFIX, DESTDIR)
	install -D -m 755 bin/mpcc $(DESTDIR)$(PREFIX)/bin/mpcc
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include/mpcc $(HEADERS)
	install -d $(DESTDIR)$(PREFIX)/share/{man/man8,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
	bin/mpcc man $(DESTDIR)$(PREFIX)/share/man/man8
	bin/mpcc completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/mpcc
	bin/mpcc completion zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_mpcc
	bin/mpcc completion fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/mpcc.fish

.PHONY: packages
packages: deps ## Write the deb and rpm packages into bin/packages, with what mpcc is made of (SBOM)
	deploy/packages/build bin/packages

.PHONY: reproducible
reproducible: deps ## Build the commit twice, in unlike places, and compare program, objects and packages
	@.ci/reproducible

.PHONY: uninstall
uninstall: ## Remove what install put there
	rm -rf $(DESTDIR)$(PREFIX)/include/mpcc
	rm -f $(DESTDIR)$(PREFIX)/bin/mpcc $(DESTDIR)$(PREFIX)/share/man/man8/mpcc{,-*}.8 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/mpcc \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_mpcc \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/mpcc.fish

.PHONY: clean
clean: ## Remove what was built; the cache of downloads stays
	rm -rf bin .site .cache/objects .cache/fuzz .cache/docs
