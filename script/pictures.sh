#!/bin/sh
# Makes the pictures of docs anew: those of the page and of flame graphs from made-up
# hosts, and, as root, the one of a real recording. Usage: script/pictures.sh
# Not those of docs/cost.md, which make bench makes of what it measures.
set -eu
cd "$(dirname "$0")/.."
export SLOWRAY_PICTURES="$PWD/docs"
go test -count=1 ./internal/web/page -run '^(TestPicturesOfDocs|TestPictureOfFleetDocs)$'
go test -count=1 ./internal/flame -run '^TestGolden$' -update
if [ "$(id -u)" != 0 ]; then
	echo 'SKIP: docs/page-six-phases.png needs root' >&2
	exit
fi
dir=$(mktemp -d)
pid=
end() {
	if [ -n "$pid" ]; then
		kill -INT "$pid"
		wait "$pid" || true
	fi
	pid=
}
trap 'end; rm -rf "$dir"' EXIT
bin/slowray record --dir "$dir" --window 5s --listen off >/dev/null &
pid=$!
bin/slowray lab run tcprt-six-phases || [ $? -eq 1 ] # others may disturb it: the picture shows what was
end
bin/slowray page --dir "$dir" --listen 127.0.0.1:7797 >/dev/null &
pid=$!
SLOWRAY_PAGE=http://127.0.0.1:7797 go test -count=1 ./internal/web/page -run '^TestPictureOfRecording$'
