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

VERSION := $(shell git describe --always --dirty 2>/dev/null)
PREFIX ?= /usr/local
KERNEL ?= 6.12
FUZZ_SECONDS ?= 3

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
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 18

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
	$(patsubst test/e2e/bpf/%.bpf.c,test/e2e/%.o,$(wildcard test/e2e/bpf/*.bpf.c)))
MAP_TYPES := mpcc_subflow mpcc_total_key mpcc_total mpcc_counter_set mpcc_energy_key mpcc_energy_profile \
	mpcc_sched_connection mpcc_sched_total_key mpcc_sched_total mpcc_sched_counter_set

# The objects have to be the same on any machine: no paths of it, no compiler's version, and of what -g adds only
# BTF.
define compile
	@mkdir -p $(@D)
	$(CLANG) -target bpfel $(BPF_CFLAGS) -fno-ident -fdebug-prefix-map=$(CURDIR)=. -fdebug-compilation-dir=. -c $< -o $@
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
$(OUT)/bpf/obj/maps_bpfel.go: bpf/maps.bpf.c $(HEADERS)
	@mkdir -p $(@D)
	go tool bpf2go -cc $(CLANG) -strip llvm-strip-19 -target bpfel -output-dir $(@D) -go-package obj \
		$(addprefix -type ,$(MAP_TYPES)) Maps $< -- $(BPF_CFLAGS)

.PHONY: objects
objects: $(OBJECTS) $(OUT)/bpf/obj/maps_bpfel.go ## Compile the BPF programs that have changed

.PHONY: generate
generate: ## Write all generated files: BPF objects, their Go types, tables, docs
	go run ./bpf/gen | clang-format-19 >bpf/include/mpcc/logistic.h
	rm -f bpf/obj/*.o bpf/obj/*_bpfel.go test/bench/*.o test/e2e/*.o
	$(MAKE) $(ALL_CORES) objects
	go run ./docs/gen >docs/algorithms.md
	go run ./docs/gen/results
	go run ./docs/gen/scenarios

.PHONY: check-generated
check-generated: ## Fail if a generated file is not what its sources give
	@diff bpf/include/mpcc/logistic.h <(go run ./bpf/gen | clang-format-19)
	@diff docs/algorithms.md <(go run ./docs/gen)
	@mkdir -p docs/results/plots && go run ./docs/gen/results -out .cache/docs && \
		diff docs/results.md .cache/docs/results.md && diff -rq docs/results/plots .cache/docs/results/plots || \
		{ echo "docs/results.md is not what docs/results gives: run make generate and commit" >&2; exit 1; }
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

.PHONY: lint
lint: ## Check formatting, licence lines, Go code and the public API
	clang-format-19 --dry-run -Werror $(C_FILES)
	@unformatted=$$(gofmt -l $(GO_FILES)); [ -z "$$unformatted" ] || \
		{ echo "not as gofmt writes it: $$unformatted" >&2; exit 1; }
	@unlicensed=$$(grep -L 'SPDX-License-Identifier: GPL-2.0-only' $(C_FILES); \
		grep -L -e 'SPDX-License-Identifier: Apache-2.0' -e '^// Code generated .* DO NOT EDIT' $(GO_FILES); :); \
		[ -z "$$unlicensed" ] || { echo "without its SPDX line: $$unlicensed" >&2; exit 1; }
	go vet -tags vm,e2e ./...
	$(LINT) staticcheck -tags vm,e2e ./...
	$(LINT) golangci-lint run
	@.ci/api

# These tests compute for long in a single goroutine. The race detector would find nothing there, and slow them from
# 25 seconds to two minutes. All other tests run once, under the race detector.
LONG := ^(TestRandomConnections|TestRandomScenes|TestNoSceneStalls)$$

.PHONY: unit
unit: ## Run the tests that need no VM (as root: some load BPF)
	@$(MAKE) $(ALL_CORES) race long

.PHONY: long
long:
	go test -count=1 -exec "$(SUDO)" -run '$(LONG)' ./loader

.PHONY: race
race: ## Run the tests that need no VM, but for long computations, under Go's race detector
	CGO_ENABLED=1 go test -race -count=1 -exec "$(SUDO)" -skip '$(LONG)' ./...

FUZZ_SANITIZERS := address,undefined,unsigned-integer-overflow,unsigned-shift-base,implicit-unsigned-integer-truncation

# All congestion controls share two files, which are told the name, and all schedulers one; other files are one each.
HARNESSES := $(addprefix fuzz/, \
	$(patsubst bpf/cc/%.bpf.c,cc-%,$(wildcard bpf/cc/*.bpf.c)) \
	$(patsubst bpf/cc/%.bpf.c,live-%,$(wildcard bpf/cc/*.bpf.c)) \
	$(patsubst bpf/sched/%.bpf.c,sched-%,$(wildcard bpf/sched/*.bpf.c)) \
	$(patsubst test/fuzz/%.c,%,$(filter-out $(addprefix test/fuzz/,eval.c live.c sched.c),$(wildcard test/fuzz/*.c))))

define harness
	@mkdir -p .cache/fuzz
	@harness=.cache/$@; \
	$(CLANG) -g -O1 -Wall -Wextra -Werror -Wno-unused-parameter -fno-strict-aliasing -I bpf -I bpf/include \
		-fsanitize=fuzzer,$(FUZZ_SANITIZERS) -fno-sanitize-recover=all \
		$(if $(filter-out test/fuzz/$*.c,$<),-DALGORITHM=$*) -o $$harness $< -lm; \
	$$harness -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=$$harness- >$$harness.log 2>&1 || \
		{ tail -n 60 $$harness.log >&2; echo "$@: failed" >&2; exit 1; }; \
	echo "$@: $$(grep ^Done $$harness.log)"
endef

fuzz/cc-%: test/fuzz/eval.c
	$(harness)
fuzz/live-%: test/fuzz/live.c
	$(harness)
fuzz/sched-%: test/fuzz/sched.c
	$(harness)
fuzz/%: test/fuzz/%.c
	$(harness)

.PHONY: fuzz
fuzz: ## Fuzz the BPF arithmetic natively, FUZZ_SECONDS for each harness
	@$(MAKE) $(ALL_CORES) $(HARNESSES)

.PHONY: vm
vm: ## Run the end-to-end tests in VMs with stock Debian kernels
	go test -count=1 -tags vm -timeout 60m ./test/kernels

.PHONY: vm-shell
vm-shell: ## Open a shell in such a VM (KERNEL=6.12)
	go run ./test/kernels/cmd/vm shell -kernel $(KERNEL)

.PHONY: selftests
selftests: deps ## Run the kernel's MPTCP selftests with each congestion control (CC="cubic lia", KERNEL=6.12)
	go run ./test/kernels/cmd/selftests -kernel $(KERNEL) $(CC)

.PHONY: verdicts
verdicts: deps ## Print how well couple=shared tells shared bottlenecks, in many conditions, and what its errors cost
	go run ./test/kernels/cmd/vm run -own-time -kernel $(KERNEL) /usr/bin/e2e.test -test.run '^TestOwnTimeVerdicts$$' \
		-test.timeout 2h -verdicts

.PHONY: test
test: deps build check-generated lint unit fuzz vm ## Run every check and test

.PHONY: bench
bench: deps build ## Compare goodput and cost per ACK with other controls (BENCH_FLAGS=-json FILE)
	go build -o bin/bench ./test/bench
	$(SUDO) nice -n -10 bin/bench $(BENCH_FLAGS)

.PHONY: demo
demo: deps build ## Load dts, run a transfer over two paths and show it live
	go build -o bin/demo ./test/demo
	$(SUDO) bin/demo

bin/mpcc:
	$(MAKE) build

.PHONY: install
install: bin/mpcc ## Install bin/mpcc, man pages and completions (PREFIX, DESTDIR)
	install -D -m 755 bin/mpcc $(DESTDIR)$(PREFIX)/bin/mpcc
	install -d $(DESTDIR)$(PREFIX)/share/{man/man8,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
	bin/mpcc man $(DESTDIR)$(PREFIX)/share/man/man8
	bin/mpcc completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/mpcc
	bin/mpcc completion zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_mpcc
	bin/mpcc completion fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/mpcc.fish

.PHONY: uninstall
uninstall: ## Remove what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/mpcc $(DESTDIR)$(PREFIX)/share/man/man8/mpcc{,-*}.8 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/mpcc \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_mpcc \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/mpcc.fish

.PHONY: clean
clean: ## Remove what was built; the cache of downloads stays
	rm -rf bin .cache/objects .cache/fuzz .cache/docs
