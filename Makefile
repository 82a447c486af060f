SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory
# Debian's users have no folder of the administrator's programs on their PATH.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin

# What and how much: `make test PACKAGES=./redirect/... ARGS='-run Echo'`, `make fuzz FUZZTIME=5m FUZZ=Parse`, ...
PACKAGES ?= ./...
ARGS     ?=
BENCH    ?= .
FUZZ     ?= .
FUZZTIME ?= 30s
REBOOTS  ?= 10
WRITES   ?= 50

# program=folder; a folder that is not there yet is passed over
programs := sidecar-cni=plugin sidecar-cni-installer=installer sidecar-cni-injector=injector sidecarctl=sidecarctl

lint      := go tool -modfile=tools/go.mod golangci-lint
summarize := go run ./test/summary

# The first line of what needs more of the machine than Go: names what is missing, or installs it.
needs := @test/needs/needs.sh $(if $(INSTALL),--install)

# owners turns the answer of `go test -list` (names, then the package they are of) into lines of "package name"
owners := awk '/^ok / { for (i = 0; i < n; i++) print $$2, names[i]; n = 0; next } /^(Fuzz|Benchmark)/ { names[n++] = $$1 }'

##@ See

demo: ## the plugin at work, without a cluster; needs root
	$(needs) demo
	((EUID == 0)) || { echo 'run sudo -E env PATH=$$PATH make demo: it needs root' >&2; exit 1; }
	echo 'The plugin at work, on pods made of network namespaces. A first build takes a minute.'
	go build -o bin/demo ./test/demo
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

# Layers, configuration and index have the time of the commit, so that two builds of one tree have one digest.
image: ## the images of agent and sidecarctl for amd64 and arm64 into bin/*.oci.tar; needs buildah
	$(needs) image
	store=$$(mktemp -d)
	trap 'rm -rf "$$store"' EXIT
	buildah() { command buildah --root "$$store/root" --runroot "$$store/run" --storage-driver vfs "$$@"; }
	version=$$(sed -n 's/^appVersion: //p' deployments/chart/Chart.yaml)
	for arch in amd64 arm64; do
	  rm -rf bin/linux-$$arch && mkdir -p bin/linux-$$arch
	  for program in $(programs); do
	    CGO_ENABLED=0 GOARCH=$$arch go build -trimpath -ldflags '-s -w' -o "bin/linux-$$arch/$${program%=*}" "./$${program#*=}"
	  done
	  for target in agent=sidecar-cni sidecarctl=sidecarctl; do
	    buildah build --quiet --platform linux/$$arch --target "$${target%=*}" --manifest "$${target#*=}" \
	      --timestamp "$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}" --format oci \
	      --build-arg VERSION="$$version" --build-arg REVISION="$$(git rev-parse HEAD)" . >/dev/null
	  done
	done
	for name in sidecar-cni sidecarctl; do
	  archive=bin/$$name.oci.tar
	  rm -f "$$archive"
	  buildah manifest push --quiet --all --digestfile "$$store/digest" "$$name" "oci-archive:$$archive:sidecar-cni/$$name:$$version" >/dev/null
	  printf '%-28s %6d KiB, %s\n' "$$archive" $$(($$(stat -c %s "$$archive") / 1024)) "$$(cat "$$store/digest")"
	done

release: ## sidecarctl for Linux, macOS and Windows into bin/dist, with checksums and krew's manifest
	go run ./deployments/release -out bin/dist -version "$$(sed -n 's/^appVersion: //p' deployments/chart/Chart.yaml)"

generate: ## everything that is generated from the code
	@go generate ./...

clean: ## remove what building, testing and fuzzing left behind
	@rm -rf bin coverage.* *.cover *.prof *.test
	go clean -fuzzcache

##@ Check

lint: ## linters, formatting, package boundaries, tidy go.mod
	@$(lint) run
	go mod tidy -diff
	go -C test/nriserver/old mod tidy -diff
	go -C test/nriserver/old vet .
	for os in darwin windows; do GOOS=$$os go vet ./sidecarctl/...; done

format: ## bring the code into the form that lint asks for
	@$(lint) fmt

test: ## all tests, none from the cache; those on the kernel need root
	$(needs) test
	go test -count=1 -json -timeout 1h $(ARGS) $(PACKAGES) | $(summarize)

# Those of e2e are the tests in files with that tag; the others of their packages are make test's. One test program at a time:
# each has clusters of its own, which take what the machine has.
tagged = $$(grep -rl '^//go:build e2e' --include='*_test.go' test/cluster deployments test/e2e | xargs sed -n 's/^func \(Test[^(]*\)(t .*/\1/p' | paste -sd'|')

e2e: ## a real cluster: kubelets on two generations of containerd, our chart and image; needs root; RUN=name picks
	$(needs) e2e
	go run ./test/cluster/setup
	go test -tags e2e -count=1 -p 1 -json -timeout 3h -run "$(or $(RUN),^($(tagged))$$)" $(ARGS) ./test/cluster/... ./deployments/... ./test/e2e/... | $(summarize)

# What is to be read is what it measured, which the summary of a run that passes leaves out.
soak: ## a node rebooted REBOOTS (10) times, an entry taken out WRITES (50) times, what the guard costs; needs root
	$(needs) soak e2e
	go run ./test/cluster/setup
	REBOOTS=$(REBOOTS) go test -tags e2e -count=1 -v -timeout 2h -run '^TestBoot$$' $(ARGS) ./test/e2e
	WRITES=$(WRITES) go test -tags e2e -count=1 -v -timeout 1h -run '^TestGuard$$/entry' $(ARGS) ./test/e2e
	go test -tags e2e,soak -count=1 -v -timeout 1h -run '^TestGuardCrowd$$' $(ARGS) ./test/e2e

race: ## all tests under the race detector; needs gcc
	$(needs) race
	CGO_ENABLED=1 go test -json -race -timeout 2h $(ARGS) $(PACKAGES) | $(summarize)

fuzz: ## each fuzz target for FUZZTIME (30s); FUZZ=regexp picks
	@go test -list '^Fuzz' $(PACKAGES) | $(owners) | while read -r package target; do
	  [[ $$target =~ $(FUZZ) ]] || continue
	  echo "$$package $$target"
	  go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $(ARGS) "$$package" </dev/null
	done

# What they claim is small and pure enough for their own tests to notice in seconds.
mutated := redirect plugin plugin/podsource contract/netconf contract/record installer/chain

mutate: ## which changes of the code the tests do not notice; MUTATE=folder picks; needs root
	$(needs) mutate
	tools/mutate/run.sh $(or $(MUTATE),$(mutated))

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
	  /^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	echo
	echo 'INSTALL=1 behind a target installs first what it needs of Debian, Ubuntu or Fedora.'

.ONESHELL:
.PHONY: build image release generate clean lint format test e2e soak race fuzz mutate bench help demo
