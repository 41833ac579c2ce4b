# make run    build slowray and look at this host
# make build  slowray and slowray-lab, which is slowray lab
# make demo   plant an incident in private network namespaces and let slowray find it
# make fleet-demo   many hosts on one machine: what is slow, and where it comes from
# make test   the tests, with a sample of incidents and those that depend on what changed
#   since LAB_SINCE (a revision); make test-fast: those that take little time
# make test-all   every test: all incidents, kernels, a fresh machine, and what slowray costs
# make docs   write docs/causes anew, from the declarations of the causes
# make screenshots   the pictures of the page in docs, anew: script/screenshots.sh says what
#   it needs
# make scoreboard   docs/scoreboard.md and the table of confidence, from RESULTS, which
#   slowray lab bench --out wrote
# make test-incidents   every incident of the lab, each alone
# make deb    a Debian package, in bin
# make test-fresh   make run, test-fast and demo on a fresh Debian 12, in a root directory
#   of its own
# make test-kernels   the BPF programs on Debian's kernels from 5.10 on, in QEMU

# .toolchain is there where the first Go on PATH is none that can build this: a link to
# the one that script/setup.sh has found or downloaded.
export PATH := $(CURDIR)/.toolchain/bin:$(PATH)
export CGO_ENABLED := 0

# What the program says it is; without git it is what go build knows.
VERSION = $(shell packaging/deb version 2>/dev/null)
BUILT = $(if $(VERSION),-X main.built=$(VERSION))

GO_FILES := $(shell git ls-files '*.go' 2>/dev/null)

.PHONY: run demo fleet-demo screenshots scoreboard build deb generate docs test test-all test-fast test-fresh test-incidents test-kernels check check-generated bench fuzz clean

build: bin/slowray bin/slowray-lab

# Not with -trimpath: then all would be compiled once more for the tests.
bin/slowray bin/slowray-lab: go.mod $(GO_FILES) $(wildcard internal/bpf/*.o)
	@script/setup.sh go
	@script/build.sh $@ -ldflags '$(BUILT)' ./cmd/$(@F)

# Exit status 1 means that slowray found something: that is an answer.
run: bin/slowray
	@bin/slowray why || [ $$? -eq 1 ]
	@echo 'To record all the time, and look at it in a browser: sudo bin/slowray record, then http://127.0.0.1:7788/'

demo: build
	@script/setup.sh demo
	@bin/slowray lab demo nginx-throughput

fleet-demo: build
	@script/setup.sh fleet-demo
	@go run ./lab/fleetdemo -slowray bin/slowray

RESULTS ?= docs/scoreboard.jsonl

scoreboard:
	@script/setup.sh go
	@go run ./cmd/slowray-lab bench --results $(RESULTS) --board docs/scoreboard.md --fit internal/diagnose/confidence_table.go

# Without symbols, which only slowray itself would read, and without the trace pages of
# gRPC: they use text/template, for which the linker keeps every method of every type.
deb: go.mod
	@script/setup.sh go
	@for program in slowray slowray-lab; do \
		script/build.sh bin/package/$$program -trimpath -tags grpcnotrace -ldflags '-s -w $(BUILT)' ./cmd/$$program || exit; \
	done
	@VERSION='$(VERSION)' packaging/deb bin/package/slowray bin

generate:
	@script/setup.sh go generate
	go generate ./internal/bpf ./lab/drop

# The pages of the causes, from their declarations.
docs:
	@script/setup.sh go
	go generate ./internal/catalogue

screenshots: build
	@script/setup.sh go
	@script/screenshots.sh

# The committed objects must be what the sources compile to.
check-generated: generate
	git diff --exit-code -- internal/bpf lab/drop

check:
	@test -z "$$(gofmt -l $(GO_FILES))" || { gofmt -l $(GO_FILES); echo 'not gofmted'; exit 1; }
	go vet ./...
	go tool staticcheck ./...

test: build check check-generated
	@script/setup.sh test lab
	script/test.sh

test-all: build check check-generated
	@script/setup.sh test lab
	LAB_INCIDENTS=all script/test.sh
	script/kernels.sh
	script/fresh.sh
	$(MAKE) bench

test-fast:
	@script/setup.sh go fast
	@script/test.sh --short

# Not a part of make test: it takes more than three minutes.
test-fresh:
	@script/fresh.sh

test-incidents:
	@script/setup.sh go lab
	LAB_INCIDENTS=all go test -count=1 -timeout 150m -v -run '^TestIncidents$$' ./lab

test-kernels:
	script/kernels.sh

bench: build
	@script/setup.sh bench
	go test ./internal/observe ./internal/report ./internal/export ./internal/sense/request ./internal/sense/function ./internal/store -run '^$$' -bench . -benchmem
	go test ./bench -run '^$$' -bench . -benchtime 1x -timeout 40m

# Each fuzz target for FUZZTIME.
FUZZTIME ?= 10s
fuzz:
	@script/setup.sh go
	@FUZZTIME='$(FUZZTIME)' script/fuzz.sh

clean:
	rm -rf bin .toolchain .venv
