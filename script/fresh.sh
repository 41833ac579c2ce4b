#!/bin/bash
# Does on a fresh machine what somebody does there who has just heard of slowray:
# clones it and runs make, with nothing installed but git, make and certificates.
# Usage: script/fresh.sh [target ...]     (run test-fast demo deb)
#
# The machine is a root directory with Debian 12's minimal base, made by debootstrap,
# with the mounts that a machine has, a host name and a mount namespace of its own; the
# kernel, its processes and the network are this machine's: slowray is to see what the
# kernel sees. How packages and modules are
# reached is copied from this machine: the apt mirror and its proxy, Go's proxy,
# certificates, nameservers. HEAD is cloned. Targets run as root; test-fast once more as
# an ordinary user. The package that deb makes is installed, and removed.
#
# A target fails when it prints nothing for a minute, or takes 45 minutes. Lines are printed with the second
# they came in, then a verdict with the time of each step. Exit status 1 when anything
# failed. It needs root and 6 GB below TMPDIR, and leaves nothing, however it ends.
set -euo pipefail
cd "$(dirname "$0")/.."
patience=60 limit=2700 # seconds
home=/home/dev
targets=("$@")
[ $# -gt 0 ] || targets=(run test-fast demo deb)

say() { echo "fresh: $*"; }

# mirror LABEL: where this machine's apt gets Debian from, or its security updates.
mirror() {
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' "Label: $1" | head -n 1
}

# make_root: the base system, and how this machine reaches registries.
make_root() {
	local debian security
	debian=$(mirror Debian) security=$(mirror Debian-Security)
	[ -n "$debian" ] || { say 'no Debian mirror among the apt sources of this machine'; return 1; }
	( # debootstrap does not ask apt for a proxy
		eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
		[ -z "${http_proxy:-}" ] || export http_proxy
		[ -z "${https_proxy:-}" ] || export https_proxy
		debootstrap --variant=minbase --include=git,make,ca-certificates bookworm "$root" "$debian"
	) || return 1
	{
		echo "deb $debian bookworm main"
		echo "deb $debian bookworm-updates main"
		[ -z "$security" ] || echo "deb $security bookworm-security main"
	} >"$root/etc/apt/sources.list"
	apt-config dump | grep -E '^Acquire::(https?|Retries|Check-Valid-Until)\b' >"$root/etc/apt/apt.conf.d/90host" || :
	cp -L /etc/resolv.conf "$root/etc/resolv.conf"
	printf '127.0.0.1\tlocalhost\n::1\tlocalhost\n' >"$root/etc/hosts"
	cp -rL /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || :
	cp -L "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$root/etc/ssl/certs/ca-certificates.crt"
	chroot "$root" useradd --create-home --home-dir $home --shell /bin/bash dev || return 1
	cp "$work/slowray.bundle" "$root/mnt/"
}

# mount_all: what a machine has mounted. It ends with the mount namespace.
mount_all() {
	mount --bind "$root" "$root" # / is a mount point
	mount --rbind /dev "$root/dev"
	mount --rbind /sys "$root/sys"
	mount -t proc proc "$root/proc"
	mount -t tmpfs -o mode=755 tmpfs "$root/run"
	local fs
	for fs in bpf:fs/bpf tracefs:kernel/tracing debugfs:kernel/debug; do
		mountpoint -q "$root/sys/${fs#*:}" || mount -t "${fs%:*}" "${fs%:*}" "$root/sys/${fs#*:}"
	done
	grep -q ' cgroup2\? ' /proc/self/mounts || mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
}

# within USER DIRECTORY COMMAND ...: in the fresh root, with the environment of a new
# login and what says how registries are reached.
within() {
	local user=$1 dir=$2 name
	shift 2
	local env=(HOME=$home USER="$user" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
	for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
		[ -z "${!name:-}" ] || env+=("$name=${!name}")
	done
	# Not how this machine builds: a fresh one knows nothing of that.
	for name in GOPROXY GONOPROXY GOSUMDB GONOSUMDB GOPRIVATE GOINSECURE GOAUTH; do
		local value=${!name:-}
		[ -n "$value" ] || value=$(go env "$name" 2>/dev/null) || :
		[ -z "$value" ] || env+=("$name=$value")
	done
	# A root of its own and not only a chroot, which who joins a mount namespace leaves, as container
	# runtimes do. FRESH_WORK is what the end of this script knows by what still runs.
	unshare --mount bash -c 'cd "$0" && pivot_root . mnt && umount -l /mnt && exec "$@"' "$root" \
		chroot --userspec="$user" / env -i -C "$dir" FRESH_WORK="$work" "${env[@]}" "$@"
}

# step NAME COMMAND ...: runs it, prints its lines with the second they come in, and
# notes the time, and what the command says of its parts. Fails with the command, or when
# that prints nothing for too long.
step() {
	local name=$1 began=$SECONDS last=$SECONDS longest=0 line status=0 parts=''
	shift
	say "$name"
	exec 3< <("$@" 2>&1)
	local pid=$!
	while IFS= read -r -t $patience -u 3 line || { status=$? && [ $status -le 128 ] && [ -n "$line" ]; }; do
		printf '%5d s  %s\n' $((SECONDS - began)) "$line"
		((SECONDS - last <= longest)) || longest=$((SECONDS - last))
		last=$SECONDS
		if ((SECONDS - began > limit)); then
			verdict+=("$name: not done after $limit s")
			return 1
		fi
		[[ ! $line =~ ^(fetching|compiling|testing).*' took '[0-9]+' s'$ ]] || parts+="; $line"
	done
	if [ $status -gt 128 ]; then
		say "$name printed nothing for $patience s"
		verdict+=("$name: silent for $patience s")
		return 1
	fi
	exec 3<&-
	status=0
	wait $pid || status=$?
	if [ $status -ne 0 ]; then
		verdict+=("$name: exit status $status after $((SECONDS - began)) s")
		return 1
	fi
	verdict+=("$name: $((SECONDS - began)) s, never silent for more than $longest s$parts")
}

# refused: who is not root and has nothing installed reads what to do about it.
refused() {
	local printed
	if printed=$(within dev $home/slowray make run 2>&1); then
		echo "$printed"
		echo 'make run works where nothing is installed' >&2
		return 1
	fi
	echo "$printed"
	grep -q 'apt-get install .*golang-go' <<<"$printed"
}

# installed: apt installs and purges the package.
installed() {
	within root $home/slowray sh -ec '
		apt-get install -y -q --no-install-recommends ./bin/slowray_*.deb
		slowray version
		slowray lab list >/dev/null
		apt-get purge -y -q slowray
		left=$(find /usr /etc -name "*slowray*")
		[ -z "$left" ] || { echo "purging leaves $left"; exit 1; }'
}

try() {
	local target
	step debootstrap make_root || return 1
	mount_all
	step 'git clone' within root $home git clone -q /mnt/slowray.bundle slowray || return 1
	step 'make run, no root and nothing installed' refused || return 1
	for target in "${targets[@]}"; do
		step "make $target" within root $home/slowray make "$target" || return 1
	done
	[[ " ${targets[*]} " != *' deb '* ]] || step 'the package, installed and purged' installed || return 1
	[[ " ${targets[*]} " == *' test-fast '* ]] || return 0
	chroot "$root" chown -R dev: $home
	# Not the results that root's run has left in the cache.
	step 'make test-fast, no root' within dev $home/slowray env GOFLAGS=-count=1 make test-fast
}

if [ "${FRESH_WORK:-}" != '' ]; then # in the namespaces
	work=$FRESH_WORK root=$FRESH_WORK/root verdict=() status=0
	hostname fresh
	try || status=1
	say "$FRESH_COMMIT on a fresh Debian 12, $(nproc) CPUs:"
	printf 'fresh:   %s\n' "${verdict[@]}"
	[ $status -eq 0 ] && say 'green' || say 'FAILED'
	exit $status
fi

[ "$(id -u)" -eq 0 ] || { say 'needs root, for a root directory and mounts of its own'; exit 1; }
script/setup.sh fresh
work=$(mktemp -d "${TMPDIR:-/tmp}/slowray-fresh-XXXXXX")
# When this script has ended, however, nobody has the pipe open for writing any more: then
# what still runs in the fresh root is killed, and all is removed.
exec 9> >(exec setsid sh -c '
	trap "" INT TERM HUP
	cat >/dev/null
	alive=yes
	while [ -n "$alive" ]; do
		alive=
		for p in /proc/[0-9]*; do
			case $(readlink "$p/root") in
			"$1"/*) kill -9 "${p#/proc/}" && alive=yes ;;
			*) # debootstrap
				if grep -qzxF "FRESH_WORK=$1" "$p/environ"; then kill -9 "${p#/proc/}" && alive=yes; fi
				;;
			esac
		done 2>/dev/null
		[ -z "$alive" ] || sleep 0.1
	done
	rm -rf --one-file-system "$1"' sh "$work")
remover=$!
status=0
free=$(df -Pk "$work" | awk 'NR == 2 { print int($4 / 1e6) }')
if [ "$free" -lt 6 ]; then
	say "$free GB are free in ${TMPDIR:-/tmp}, and 6 are needed (TMPDIR names another place)"
	status=1
else
	[ -z "$(git status --porcelain)" ] || say 'what is not committed is left out'
	commit=$(git rev-parse --short HEAD)
	git bundle create -q "$work/slowray.bundle" HEAD
	FRESH_WORK=$work FRESH_COMMIT=$commit setpriv --pdeathsig KILL unshare --mount --uts "$0" "${targets[@]}" 9>&- || status=$?
fi
exec 9>&-
wait $remover || :
exit $status
