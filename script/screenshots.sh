#!/bin/sh -e
# screenshots.sh [DIR]: makes the pictures of the page anew, in docs or DIR:
#
#   page-*.png, fleet-page.png   of a made-up host and fleet, the same each time: they
#                                need Chromium and a Chinese font (page-timeline.zh-CN.png),
#                                and neither root nor ClickHouse
#   page-six-phases.png          of a recording of the lab's tcprt-six-phases, which needs
#                                root, two minutes, and a host that does nothing else
cd "$(dirname "$0")/.."
pictures=$(realpath "${1:-docs}")
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || {
	echo 'screenshots: Chromium is missing: apt-get install chromium' >&2
	exit 1
}
[ -n "$(fc-list :lang=zh 2>/dev/null)" ] || {
	echo 'screenshots: a Chinese font is missing: apt-get install fontconfig fonts-wqy-microhei' >&2
	exit 1
}
make() { SLOWRAY_PICTURES=$pictures go test -count=1 ./internal/web/page -run "^($1)\$"; }

go test -count=1 ./internal/flame -run '^TestGolden$' -update # docs/flame*.svg
make 'TestPicturesOfDocs|TestPictureOfFleetDocs'
if [ "$(id -u)" != 0 ]; then
	echo 'screenshots: page-six-phases.png is as it was: it needs root' >&2
	exit
fi
history=$(mktemp -d)
trap 'rm -rf "$history"' EXIT
bin/slowray record --dir "$history/six" --listen off --window 5s --budget 0 >"$history/log" 2>&1 &
recorder=$!
trap 'kill "$recorder" 2>/dev/null || :; wait "$recorder" || :; rm -rf "$history"' EXIT
sleep 3
bin/slowray-lab run tcprt-six-phases --truth-only
sleep 8 # the last window
kill -INT "$recorder"
wait "$recorder" || { cat "$history/log" >&2; exit 1; }
SLOWRAY_HISTORY=$history/six make TestPictureOfRecording
