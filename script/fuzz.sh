#!/bin/bash
# Runs every fuzz target for a while, one after the other, and prints a line for each:
# how many inputs it was given and how many of them the fuzzer keeps.
#
#   FUZZTIME=60s script/fuzz.sh [PACKAGE[:TARGET]…]    # ./internal/web, ./internal/web:FuzzKey; all of them without
#
# FUZZPARALLEL is how many inputs are tried at a time (1). What a target fails with
# is printed below its line, and its input is kept in the package's testdata/fuzz:
# fix it, and commit the input. Exit status 1 when any target failed.
set -u
cd "$(dirname "$0")/.." || exit 2
time=${FUZZTIME:-10s} parallel=${FUZZPARALLEL:-1}

targets() { # PACKAGE…: package and target, a line each
	local package file
	for package; do
		for file in "$package"/*_test.go; do
			sed -n "s|^func \(Fuzz[A-Za-z0-9_]*\)(f \*testing.F).*|$package \1|p" "$file"
		done
	done
}

if [ $# -eq 0 ]; then
	# shellcheck disable=SC2046 # packages have no spaces in their names
	list=$(targets $(grep -rl --include='*_test.go' '^func Fuzz' internal cmd lab | xargs -n1 dirname | sort -u | sed 's|^|./|'))
else
	list=
	for want; do
		package=${want%%:*}
		list+=$(targets "$package" | { [ "$package" = "$want" ] && cat || grep " ${want#*:}\$"; })$'\n'
	done
fi

# Before Go 1.27 a target fails now and then when its time is over, with these words for
# a reason and no input (go.dev/issue/75804).
over() { # OUTPUT
	[ "$(sed -n '/^--- FAIL: /,/^FAIL/p' <<<"$1" | sed '1d;$d')" = '    context deadline exceeded' ]
}

# An input is made smaller for 2 s at most, not for a minute: of a target whose coverage
# is not the same each time the fuzzer would otherwise do little else.
failed=0
while read -r package target; do
	[ -n "$target" ] || continue
	begun=$SECONDS
	if out=$(go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 2s -parallel "$parallel" 2>&1) || over "$out"; then
		inputs=$(sed -n 's/^fuzz: elapsed: .* execs: \([0-9]*\) .*/\1/p' <<<"$out" | tail -1)
		kept=$(sed -n 's/^fuzz: elapsed: .* new interesting: \([0-9]*\) .*/\1/p' <<<"$out" | tail -1)
		printf 'ok    %-36s %-24s %4d s %10s inputs, %s kept\n' "${package#./}" "$target" $((SECONDS - begun)) "${inputs:-0}" "${kept:-0}"
	else
		failed=1
		printf 'FAIL  %-36s %-24s %4d s\n' "${package#./}" "$target" $((SECONDS - begun))
		sed 's/^/      /' <<<"$out"
	fi
done <<<"$list"
exit $failed
