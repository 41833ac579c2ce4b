#!/bin/sh
# Compiles a program, or what tests are linked from, and says how far it is.
# Usage: script/build.sh FILE [FLAG ...] PACKAGE     (flags of go build)
#        script/build.sh --tests PACKAGE ...
set -eu
cd "$(dirname "$0")/.."
. script/progress.sh

what=$1
shift
tests=
if [ "$what" = --tests ]; then
	what=tests
	tests=-test
fi
stale=$(mktemp)
trap 'rm -f "$stale"' EXIT

# What has to be compiled; to know that, go fetches the modules that it needs.
# shellcheck disable=SC2086 # no word where there are no tests
list() { go list $tests -deps -f '{{if .Stale}}{{.ImportPath}}{{end}}' "$@" >"$stale"; }
export_tests() { go list -test -deps -export -v -f '{{""}}' "$@" >/dev/null; }

progress 'fetching Go modules' list "$@"
packages=$(grep -c . "$stale" || :)
[ "$packages" -gt 0 ] || [ -z "$tests" ] || exit 0
all=
[ "$packages" -lt 500 ] || all=' (about three minutes on two)'
s=s
[ "$packages" -ne 1 ] || s=
say "compiling $what: $packages package$s with $(go env GOVERSION) on $(nproc) CPUs$all"
if [ -n "$tests" ]; then
	progress_of "$packages" compiling export_tests "$@"
else
	progress_of "$packages" compiling go build -v -o "$what" "$@"
fi
