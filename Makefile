# make help lists the targets: those with a ## comment.

# .toolchain is there where the first Go on PATH is none that can build this: a link to
# the one that script/setup.sh has found or downloaded.
export PATH := $(CURDIR)/.toolchain/bin:$(PATH)
export CGO_ENABLED := 0

# What the program says it is; without git it is what go build knows.
VERSION = $(shell packaging/package version 2>/dev/null)
BUILT = $(if $(VERSION),-X main.built=$(VERSION))

# What is printed is to be typed.
AS_ROOT = $(if $(filter-out 0,$(shell id -u)),sudo )

GO_FILES := $(shell git ls-files '*.go' 2>/dev/null)

.PHONY: help run demo fleet-demo k8s-demo screenshots scoreboard build deb rpm image plugin release release-check generate manifests docs test test-all test-fast test-fresh test-incidents test-kernels check check-generated bench fuzz clean

build: bin/slowray bin/slowray-lab  ## build slowray and slowray-lab, which is slowray lab
	@$(if $(filter-out build,$(MAKECMDGOALS)),:,echo "built bin/slowray: $(AS_ROOT)bin/slowray, or make demo")

# The list is in the order of this file.
help: ## list the targets
	@sed -n 's/^\([a-z][a-z0-9-]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

# Not with -trimpath: then all would be compiled once more for the tests.
bin/slowray bin/slowray-lab: go.mod $(GO_FILES) $(wildcard internal/bpf/*.o)
	@script/setup.sh go
	@script/build.sh $@ -ldflags '$(BUILT)' ./cmd/$(@F)

# Exit status 1 means that slowray found something: that is an answer.
run: bin/slowray bin/slowray-lab  ## build slowray and look at this host
	@bin/slowray why || [ $$? -eq 1 ]
	@echo 'All the time, with a page at http://127.0.0.1:7788/: $(AS_ROOT)bin/slowray record'
	@echo 'A fault and its cause, in network namespaces of their own (one setting of the host is lowered until it ends): make demo'

demo: build  ## inject an incident in private network namespaces and let slowray find it
	@script/setup.sh demo
	@bin/slowray lab demo nginx-throughput

fleet-demo: build  ## many hosts on one machine: what is slow, and where it comes from
	@script/setup.sh fleet-demo
	@script/build.sh bin/fleetdemo ./lab/fleetdemo
	@bin/fleetdemo -slowray bin/slowray

k8s-demo: build  ## a Kubernetes node on this machine, with slowray on it by its chart, and a fault by manifest
	@script/setup.sh go k8s
	@parts=$$(script/kube.sh) && script/build.sh bin/kubedemo ./lab/kubedemo && bin/kubedemo -parts "$$parts" -slowray bin/slowray

RESULTS ?= docs/scoreboard.jsonl

scoreboard:  ## write docs/scoreboard.md and the table of confidence from RESULTS (slowray lab bench --out)
	@script/setup.sh go
	@go run ./cmd/slowray-lab bench --results $(RESULTS) --board docs/scoreboard.md --fit internal/diagnose/confidence_table.go

deb: go.mod  ## build a Debian package for this architecture, in bin
rpm: go.mod  ## build an rpm for this architecture, in bin
deb rpm:
	@script/setup.sh go
	@VERSION='$(VERSION)' packaging/package build "$$(go env GOHOSTARCH)" bin/package
	@VERSION='$(VERSION)' packaging/package $@ "$$(go env GOHOSTARCH)" bin/package bin

image: go.mod  ## build an OCI image for amd64 and arm64, as a tar in bin, for ctr, podman, skopeo
	@script/setup.sh go
	@VERSION='$(VERSION)' packaging/package build amd64 bin/package
	@VERSION='$(VERSION)' packaging/package build arm64 bin/package
	@VERSION='$(VERSION)' packaging/package image bin/package bin

plugin: go.mod  ## build kubectl-slowray for this machine, in bin
	@script/setup.sh go
	@script/build.sh bin/kubectl-slowray -ldflags '$(if $(VERSION),-X main.built=$(VERSION))' ./cmd/kubectl-slowray

release:  ## packages, tarballs, an image, SBOMs and checksums of VERSION, for amd64 and arm64
	@packaging/release '$(VERSION)'

release-check:  ## two clones must give the same release, byte by byte
	@packaging/release-check

generate:  ## compile the BPF programs, whose objects are committed
	@script/setup.sh go generate
	go generate ./internal/bpf ./lab/drop

manifests:  ## write packaging/kubernetes/slowray.yaml and the golden files, from the Helm chart
	@script/setup.sh go
	go -C packaging/helm test -count=1 . -update

docs:  ## write docs/causes, from the declarations of the causes
	@script/setup.sh go
	go generate ./internal/catalogue

screenshots: build  ## make the pictures of docs (script/screenshots.sh says what it needs)
	@script/setup.sh go
	@script/screenshots.sh

check-generated: generate  ## fail where the committed objects are not what the sources compile to
	git diff --exit-code -- internal/bpf lab/drop

check:  ## gofmt, go vet, staticcheck
	@unformatted=$$(git ls-files '*.go' | xargs gofmt -l) && test -z "$$unformatted" || { echo "$$unformatted"; echo 'not gofmted'; exit 1; }
	go vet ./...
	go tool staticcheck ./...

test: build check check-generated  ## the tests, with a sample of incidents and those that depend on changes since LAB_SINCE
	@script/setup.sh test lab
	script/test.sh

test-all: build check check-generated  ## every test: all incidents, kernels, a Kubernetes node, a fresh machine, and what slowray costs
	@script/setup.sh test lab k8s
	script/kube.sh >/dev/null
	LAB_INCIDENTS=all script/test.sh
	$(MAKE) k8s-demo
	script/kernels.sh
	ARCH=arm64 script/kernels.sh
	script/fresh.sh
	packaging/release-check
	$(MAKE) bench

test-fast:  ## the tests that take little time
	@script/setup.sh go fast
	@script/test.sh --short

# Not a part of make test: it takes more than three minutes.
test-fresh:  ## make run, test-fast and demo on a fresh Debian 12, in a root directory of its own
	@script/fresh.sh

test-incidents:  ## every incident of the lab, each alone
	@script/setup.sh go lab
	LAB_INCIDENTS=all go test -count=1 -timeout 150m -v -run '^TestIncidents$$' ./lab

test-kernels: export ARCH ?= amd64
test-kernels:  ## the BPF programs on Debian's kernels in QEMU, from 5.10 on; with ARCH=arm64 from 6.1 on
	script/kernels.sh

bench: build  ## what slowray costs: benchmarks, and services with and without it
	@script/setup.sh bench
	go test ./internal/observe ./internal/report ./internal/export ./internal/sense/request ./internal/sense/function ./internal/sense/kube ./internal/store -run '^$$' -bench . -benchmem
	go test ./bench -run '^$$' -bench . -benchtime 1x -timeout 60m

FUZZTIME ?= 10s
fuzz:  ## each fuzz target for FUZZTIME
	@script/setup.sh go
	@FUZZTIME='$(FUZZTIME)' script/fuzz.sh

clean:  ## remove what was built or downloaded here
	rm -rf bin .toolchain .venv
