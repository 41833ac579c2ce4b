#!/bin/sh
# Builds the parts of a Kubernetes node (lab/kube/components) and Helm (packaging/helm) from
# their modules, and prints the directory that they are in. They are kept by version under
# the user's cache directory: from nothing it takes six minutes on two CPUs, afterwards a
# moment.
# Usage: script/kube.sh [--where]
# --where: only prints the directory; exit status 1 where they have not been built.
set -eu
cd "$(dirname "$0")/../lab/kube/components"
. ../../../script/progress.sh

chart=../../../packaging/helm
version=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' go.mod)
dir=${XDG_CACHE_HOME:-$HOME/.cache}/slowray/kube/$version-$(go env GOARCH)-$(cat go.mod "$chart/go.mod" | cksum | cut -d ' ' -f 1)
if [ "${1:-}" = --where ]; then
	echo "$dir"
	exec test -d "$dir"
fi
if [ ! -d "$dir" ]; then
	export CGO_ENABLED=0
	flags="-s -w -X k8s.io/component-base/version.gitVersion=$version"
	stale=$(mktemp)
	new=$dir.$$
	trap 'rm -rf "$stale" "$new"' EXIT
	stale() { go -C "$1" list -deps -f '{{if .Stale}}{{.ImportPath}}{{end}}' tool >>"$stale"; }
	list() { stale . && stale "$chart"; }
	# In a directory of its own until all are there: who is interrupted leaves nothing that
	# looks complete.
	build() {
		mkdir -p "$new"
		nice go build -v -ldflags "$flags" -o "$new/" tool
		nice go -C "$chart" build -v -ldflags '-s -w' -o "$new/" tool
	}
	progress 'fetching the Go modules of Kubernetes' list
	say "compiling Kubernetes $version and etcd with $(go env GOVERSION) on $(nproc) CPUs (from nothing it takes six minutes on two)"
	progress_of "$(grep -c . "$stale" || :)" 'compiling Kubernetes' build
	mv "$new/server" "$new/etcd"
	mv -T "$new" "$dir"
fi
echo "$dir"
