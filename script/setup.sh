#!/bin/sh
# Installs what a part of the project needs on Debian 12, and nothing that is
# there already. Usage: script/setup.sh go|test|lab|kernels|generate ...
set -eu

apt_install() {
	missing=
	for p in "$@"; do
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
	done
	[ -n "$missing" ] || return 0
	if [ "$(id -u)" -ne 0 ]; then
		echo "setup: these Debian packages are missing, and installing them needs root:$missing" >&2
		exit 1
	fi
	echo "setup: installing$missing" >&2
	# Servers are for the lab only: none may be started by its package.
	policy=/usr/sbin/policy-rc.d
	made=
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod 755 $policy
		made=$policy
	fi
	trap '[ -z "$made" ] || rm -f "$made"' EXIT
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
	[ -z "$made" ] || rm -f "$made"
	trap - EXIT
}

# Debian 12's Go is too old to fetch a newer one by itself, but it can download
# the toolchain as the module it is published as.
install_go() {
	want=$(awk '$1 == "toolchain" { print substr($2, 3) }' go.mod)
	tool=$(dirname "$0")/../.toolchain/bin/go
	for go in go /usr/local/go/bin/go "$tool"; do
		if command -v "$go" >/dev/null 2>&1 && "$go" version | awk '{ split(substr($3, 3), v, "."); exit !(v[1] > 1 || v[2] >= 21) }'; then
			return 0 # new enough to fetch what go.mod asks for
		fi
	done
	apt_install golang-go ca-certificates
	arch=$(dpkg --print-architecture)
	module=golang.org/toolchain@v0.0.1-go$want.linux-$arch
	echo "setup: downloading Go $want" >&2
	tmp=$(mktemp -d)
	(cd "$tmp" && go mod init setup >/dev/null 2>&1 && GOFLAGS=-mod=mod GONOSUMDB=golang.org/toolchain go mod download "$module")
	rm -rf "$tmp"
	dir=$(go env GOMODCACHE)/$module
	chmod -R u+w "$dir"
	chmod 755 "$dir"/bin/* "$dir"/pkg/tool/*/* 2>/dev/null || true
	ln -sfn "$dir" "$(dirname "$0")/../.toolchain"
}

# DuckDB and pandas are Python packages: they get a folder of their own. Without
# them two tests are skipped.
install_duckdb() {
	venv=$(dirname "$0")/../.venv
	if "$venv/bin/python" -c 'import duckdb, pandas, pyarrow' 2>/dev/null; then return 0; fi
	apt_install python3-venv
	echo "setup: installing DuckDB and pandas" >&2
	if ! { python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check duckdb==1.4.1 pandas==2.3.3 pyarrow==22.0.0; }; then
		echo "setup: DuckDB and pandas could not be installed: the tests that need them are skipped" >&2
	fi
}

# The engine of a present ClickHouse, for tests of fleets: chdb is a Python package.
# Without it some tests are skipped.
install_chdb() {
	venv=$(dirname "$0")/../.venv
	if "$venv/bin/python" -c 'import chdb; assert chdb.__version__ == "4.4.0"' 2>/dev/null; then return 0; fi
	apt_install python3-venv
	echo "setup: installing chdb" >&2
	if ! { python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check chdb==4.4.0; }; then
		echo "setup: chdb could not be installed: the tests that need it are skipped" >&2
	fi
}

# A ZooKeeper, for replicated tables in tests: jars, as Maven finds them. Without it
# some tests are skipped.
install_zookeeper() {
	jars=$(dirname "$0")/../.zookeeper
	[ ! -e "$jars/zookeeper-3.8.4.jar" ] || return 0
	command -v mvn >/dev/null 2>&1 || apt_install maven
	command -v java >/dev/null 2>&1 || apt_install openjdk-17-jre-headless
	echo "setup: fetching ZooKeeper" >&2
	tmp=$(mktemp -d)
	cat >"$tmp/pom.xml" <<-'EOF'
		<project><modelVersion>4.0.0</modelVersion><groupId>slowray</groupId><artifactId>zookeeper</artifactId><version>1</version><dependencies>
		<dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>3.8.4</version></dependency>
		<dependency><groupId>org.xerial.snappy</groupId><artifactId>snappy-java</artifactId><version>1.1.10.5</version></dependency>
		<dependency><groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId><version>4.1.12.1</version></dependency>
		</dependencies></project>
	EOF
	mkdir -p "$jars"
	if ! mvn -q -B -f "$tmp/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(cd "$jars" && pwd)" >&2; then
		echo "setup: ZooKeeper could not be fetched: the tests that need it are skipped" >&2
		rm -rf "$jars"
	fi
	rm -rf "$tmp"
}

# VictoriaLogs, for tests of what is sent to it: built from its Go module, of which a
# copy is needed because it replaces modules. Without it those tests are skipped.
install_victorialogs() {
	bin=$(dirname "$0")/../.victorialogs
	[ ! -x "$bin/victoria-logs" ] || return 0
	echo "setup: building VictoriaLogs" >&2
	mkdir -p "$bin"
	bin=$(cd "$bin" && pwd)
	tmp=$(mktemp -d)
	if ! (
		cd "$tmp" && echo "module fetch" >go.mod &&
			cp -r "$(go mod download -json github.com/VictoriaMetrics/VictoriaLogs@v1.43.1 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')" src &&
			chmod -R u+w src && cd src &&
			CGO_ENABLED=0 timeout 600 go build -mod=mod -trimpath -ldflags "-s -w" -o "$bin/victoria-logs" ./app/victoria-logs
	) >&2; then
		echo "setup: VictoriaLogs could not be built: the tests that need it are skipped" >&2
	fi
	rm -rf "$tmp"
}

for part in "$@"; do
	case $part in
	go) install_go ;;
	test)
		apt_install nginx-light php8.2-fpm wrk iproute2 nftables iptables conntrack procps util-linux tcpdump sysbench mariadb-server chromium prometheus zsh fish groff-base
		apt_install clickhouse-server clickhouse-client clickhouse-common
		install_duckdb
		install_chdb
		install_zookeeper
		;;
	lab)
		apt_install postgresql memcached
		# The packages of Docker's own repository are not to be replaced.
		engine=docker.io
		if command -v dockerd >/dev/null 2>&1; then engine=; fi
		apt_install gcc libc6-dev python3 redis-server hping3 bindfs e2fsprogs strace $engine
		apt_install apache2-bin lua-socket haproxy uwsgi-core uwsgi-plugin-python3 gunicorn tomcat10-common openjdk-17-jdk-headless
		apt_install dnsmasq-base
		install_victorialogs
		;;
	kernels) apt_install qemu-system-x86 busybox-static xz-utils gcc libc6-dev ;;
	generate) apt_install clang-19 llvm-19 libbpf-dev ;;
	*)
		echo "setup: unknown part $part (go, test, lab, kernels, generate)" >&2
		exit 1
		;;
	esac
done
