SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

# What and how much: `make test PACKAGES=./redirect/... ARGS='-run Echo'`, `make fuzz FUZZTIME=5m FUZZ=Parse`, ...
PACKAGES ?= ./...
ARGS     ?=
BENCH    ?= .
FUZZ     ?= .
FUZZTIME ?= 30s

# program=folder; a folder that is not there yet is passed over
programs := sidecar-cni=plugin sidecar-cni-installer=installer sidecarctl=sidecarctl

lint      := go tool -modfile=tools/go.mod golangci-lint
summarize := go run ./test/summary

# owners turns the answer of `go test -list` (names, then the package they are of) into lines of "package name"
owners := awk '/^ok / { for (i = 0; i < n; i++) print $$2, names[i]; n = 0; next } /^(Fuzz|Benchmark)/ { names[n++] = $$1 }'

##@ See

demo: ## the plugin at work, without a cluster; needs root
	@go build -o bin/demo ./test/demo
	@bin/demo

##@ Build

build: ## static programs into bin/
	@mkdir -p bin
	for program in $(programs); do
	  folder=$${program#*=} binary=bin/$${program%=*}
	  compgen -G "$$folder/*.go" >/dev/null || continue
	  CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$$binary" "./$$folder"
	  printf '%-28s %6d KiB\n' "$$binary" $$(($$(stat -c %s "$$binary") / 1024))
	done

generate: ## everything that is generated from the code
	@go generate ./...

clean: ## remove what building, testing and fuzzing left behind
	@rm -rf bin coverage.* *.cover *.prof *.test
	go clean -fuzzcache

##@ Check

lint: ## linters, formatting, package boundaries, tidy go.mod
	@$(lint) run
	go mod tidy -diff

format: ## bring the code into the form that lint asks for
	@$(lint) fmt

test: ## all tests, none from the cache; those on the kernel need root
	@go test -count=1 -json -timeout 20m $(ARGS) $(PACKAGES) | $(summarize)

race: ## all tests under the race detector; needs gcc
	@CGO_ENABLED=1 go test -json -race -timeout 20m $(ARGS) $(PACKAGES) | $(summarize)

fuzz: ## each fuzz target for FUZZTIME (30s); FUZZ=regexp picks
	@go test -list '^Fuzz' $(PACKAGES) | $(owners) | while read -r package target; do
	  [[ $$target =~ $(FUZZ) ]] || continue
	  echo "$$package $$target"
	  go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $(ARGS) "$$package" </dev/null
	done

##@ Measure

bench: ## all benchmarks, one package at a time, then the table of the plugin's speed; BENCH=regexp picks
	@packages=$$(go test -list '^Benchmark' $(PACKAGES) | $(owners) | cut -d' ' -f1 | sort -u)
	table=$$(go list $(PACKAGES) | grep '/test/bench$$' || true)
	[[ -n $$packages$$table ]] || { echo 'no benchmarks'; exit; }
	[[ -z $$packages ]] || go test -p 1 -run '^$$' -bench '$(BENCH)' -benchmem -timeout 1h $(ARGS) $$packages | sed -u '/^PASS$$/d; /^ok /d'
	[[ -z $$table || ! Plugin =~ $(BENCH) ]] || go run ./test/bench

##@ Help

help: ## this list
	@awk -F ':.*## ' '/^##@ / { printf "%s%s\n", sep, substr($$0, 5); sep = "\n" } \
	  /^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.ONESHELL:
.PHONY: build generate clean lint format test race fuzz bench help demo
