#!/bin/sh
# Makes the corpus of saved observations anew, which internal/diagnose replays.
# Usage: script/corpus.sh fixtures          from the fixtures of package cause
#        script/corpus.sh lab DIR           from what `slowray lab run --save DIR` kept
#        script/corpus.sh reports           only the reports, for a change that is meant
# Look at the difference before you commit it: each line of it is a judgement that
# has become another one.
set -eu
cd "$(dirname "$0")/.."
corpus=$PWD/internal/diagnose/testdata/corpus

case ${1:-} in
fixtures)
	rm -rf "$corpus"/fixture-*
	go test ./internal/cause -count=1 -run '^TestWriteCorpus$' -corpus "$corpus"
	set --
	;;
lab)
	set -- -from "$(cd "${2:?the directory of lab run --save}" && pwd)"
	;;
reports) set -- ;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
go test ./internal/diagnose -count=1 -run '^TestCorpus$' -update "$@"
