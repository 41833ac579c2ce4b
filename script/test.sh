#!/bin/sh
# Runs the tests, in the order that takes the least time on two CPUs.
# Usage: script/test.sh [--short]
#
# First the tests that mostly wait, two packages at a time. Then, one package after the
# other, those that measure times or load, or that change settings: they have the
# machine for themselves. make check has vetted everything already. Nothing is run
# again: a test that fails once is fixed.
# --short: leaves out what takes long.
set -eu
cd "$(dirname "$0")/.."
. script/progress.sh
alone='./bench ./internal/prove/... ./internal/sense/callstack/... ./internal/sense/function ./internal/sense/hotspot
	./internal/sense/request/... ./internal/sense/stack ./internal/sense/wait'
incidents=./lab/...
# Tests of the other packages that need it for themselves: what fails anywhere on a host at
# once is one incident, so that of another test would be theirs.
alone_of_slowray='^TestRecordAlerts'

run() { go tool gotestsum --format pkgname --format-hide-empty-pkg "$@"; }

script/build.sh --tests ./...
progress 'compiling gotestsum' go tool -n gotestsum >/dev/null
failed=0
# shellcheck disable=SC2086 # several patterns
measure=$(go list $alone $incidents)
wait_mostly=$(go list ./... | grep -vxF "$measure" | tr '\n' ' ')
if [ "${1:-}" = --short ]; then
	# Without DWARF, of which linking takes more time than the tests.
	began=$(date +%s)
	# shellcheck disable=SC2086
	run -- -short -vet=off -ldflags=-w -timeout 5m -p 2 $wait_mostly || failed=1
	# shellcheck disable=SC2086
	run -- -short -vet=off -ldflags=-w -timeout 5m -p 1 $alone $incidents || failed=1
	echo "testing took $(($(date +%s) - began)) s" >&2
	exit $failed
fi
# What a request costs, by instructions: on a machine of its own.
script/kernels.sh --instructions || failed=1
# shellcheck disable=SC2086 # several packages
run -- -count=1 -vet=off -timeout 20m -p 2 -skip "$alone_of_slowray" $wait_mostly || failed=1
run -- -count=1 -vet=off -timeout 20m -run "$alone_of_slowray" ./cmd/slowray || failed=1
# shellcheck disable=SC2086
run -- -count=1 -vet=off -timeout 20m -p 1 $alone || failed=1
# All incidents take two hours; a sample takes half an hour.
run -- -count=1 -vet=off -timeout "$([ "${LAB_INCIDENTS:-}" = all ] && echo 150m || echo 60m)" -p 1 $incidents || failed=1
# Helm is a module of its own: compiling it takes 40 s of CPU from nothing.
go -C packaging/helm test -count=1 ./... || failed=1
exit $failed
