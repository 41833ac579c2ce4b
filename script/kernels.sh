#!/bin/sh
# Boots Debian's kernels, from the oldest that slowray supports to the newest,
# and runs the tests of slowray's BPF programs in each.
# Usage: script/kernels.sh [--short | --instructions | --only PACKAGE] [suite ...]     (bullseye bookworm trixie sid)
# ARCH: of the kernels, amd64 (the default) or arm64 (bookworm trixie sid sid-16k; the last has
# pages of 16 KiB).
# --short: only what slowray's commands tell there, in well under a minute each.
# --instructions: how many instructions recording adds to a request: one CPU, whose clock
# counts them.
# --only: the tests of one package, ./lab/guest for the incidents; GUEST_RUN chooses among
# them, those left out elsewise included.
#
# One line per kernel and check; exit status 1 when a check fails on any kernel
# or runs on none. Each kernel runs in QEMU, emulated, with 2 CPUs and nothing
# but busybox and the tests: no network, no disk, nothing of this machine.
# Kernels come from the Debian mirror that this machine's apt uses, through
# source lists of their own; apt's own configuration is not touched. They are
# kept in .kernels, as are the logs; delete it to fetch them again.
set -eu
cd "$(dirname "$0")/.."

short=
if [ "${1:-}" = --short ]; then
	short=yes
	shift
fi
count=
if [ "${1:-}" = --instructions ]; then
	count=yes
	shift
fi
only=
if [ "${1:-}" = --only ]; then
	only=$2
	shift 2
fi
arch=${ARCH:-amd64}
keep=$PWD/.kernels
cc=gcc
# Seconds after which a machine, and the tests of a package, are taken to hang.
boot_limit=1800
test_limit=500
case $arch in
amd64) suites=${*:-bullseye bookworm trixie sid} ;;
arm64)
	suites=${*:-bookworm trixie sid sid-16k}
	keep=$keep/arm64
	cc=aarch64-linux-gnu-gcc
	boot_limit=3600
	test_limit=1500
	;;
*)
	echo "kernels: no such architecture: $arch (amd64, arm64)" >&2
	exit 2
	;;
esac
[ -z "$count" ] || suites=${*:-trixie}
# What slowray asks the kernel for by way of modules, and what the tests need.
modules='tcp_diag unix_diag nf_conntrack_netlink tun veth sch_netem zram lzo-rle null_blk'
packages='./internal/bpf ./internal/sense/request ./internal/sense/connect ./internal/sense/dns ./internal/sense/socket ./internal/sense/stack ./internal/sense/callstack ./internal/sense/callstack/interpreter ./internal/sense/function ./internal/sense/request/kerneltest ./lab/guest'
[ -z "$short" ] || packages=./internal/sense/request/kerneltest
[ -z "$count" ] || packages=./internal/sense/request
[ -z "$only" ] || packages=$only

# fetch SUITE: the suite's newest kernel, into $keep/SUITE.
fetch() {
	[ ! -e "$keep/$1/busybox" ] || return 0
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
	if [ -z "$mirror" ]; then
		echo 'kernels: no Debian mirror among the apt sources of this machine' >&2
		return 1
	fi
	echo "kernels: fetching the kernel of $1" >&2
	case $1 in
	*-16k) image=linux-image-$arch-16k ;;
	*) image=linux-image-cloud-$arch ;;
	esac
	apt=$keep/apt/$1
	rm -rf "$apt" "$keep/$1.new"
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/deb" "$keep/$1.new/lib"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror ${1%-16k} main" >"$apt/sources.list"
	options="-q=2 -o Dir::Etc::sourcelist=$apt/sources.list -o Dir::Etc::sourceparts=/dev/null
		-o Dir::State::lists=$apt/lists -o Dir::Cache=$apt/cache
		-o APT::Architecture=$arch -o APT::Architectures=$arch -o Dir::State::status=/dev/null -o APT::Sandbox::User=root -o Acquire::Languages=none"
	apt-get $options update
	# The kernel itself is one package, or split in several (since Linux 7).
	debs=$(apt-cache $options depends --recurse -i $image | grep -E '^linux-(image|binary|modules)-[0-9]' | sort -u)
	# The guest's own; this machine's may be of another architecture.
	debs="$debs busybox-static"
	(cd "$apt/deb" && apt-get $options download $debs)
	for deb in "$apt"/deb/*.deb; do
		dpkg-deb -x "$deb" "$apt/root"
	done
	mv "$apt"/root/lib/modules "$keep/$1.new/lib/" 2>/dev/null || mv "$apt"/root/usr/lib/modules "$keep/$1.new/lib/"
	busybox depmod -b "$keep/$1.new" "$(ls "$keep/$1.new/lib/modules")"
	mv "$(find "$apt/root" -path '*/bin/busybox' -type f)" "$keep/$1.new/busybox"
	mv "$apt"/root/boot/vmlinuz-* "$keep/$1.new/vmlinuz" 2>/dev/null || mv "$keep/$1.new"/lib/modules/*/vmlinuz "$keep/$1.new/vmlinuz"
	unpack "$keep/$1.new/vmlinuz"
	rm -rf "$apt" "${keep:?}/$1"
	mv "$keep/$1.new" "$keep/$1"
}

# unpack FILE: a kernel that the EFI firmware unpacks (CONFIG_EFI_ZBOOT, as on arm64), in
# place: QEMU 7.2 cannot. drivers/firmware/efi/libstub/zboot-header.S: the offset, the
# size and the kind of what is inside.
unpack() {
	[ "$(dd if="$1" bs=1 skip=4 count=4 2>/dev/null)" = zimg ] || return 0
	# shellcheck disable=SC2046 # two numbers
	set -- "$1" $(od -A n -t u4 -j 8 -N 8 "$1") "$(dd if="$1" bs=1 skip=24 count=4 2>/dev/null | tr -d '\0')"
	tail -c "+$(($2 + 1))" "$1" | head -c "$3" | case $4 in
	gzip) gzip -dc ;;
	zstd) zstd -dc ;;
	xz | xzki*) xz -dc ;;
	*) echo "kernels: $1 is packed as $4" >&2 && false ;;
	esac >"$1.unpacked"
	mv "$1.unpacked" "$1"
}

# initramfs SUITE: the guest's files, as an archive, to standard output.
initramfs() {
	version=$(ls "$keep/$1/lib/modules")
	from=$keep/$1/lib/modules/$version
	root=$keep/root
	rm -rf "$root"
	mkdir -p "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/lib/modules/$version"
	cp "$keep/$1/busybox" "$root/bin/busybox"
	ln -s busybox "$root/bin/sh"
	ln -s bin "$root/sbin"
	cp "$keep/slowray" "$keep"/tests/*.test "$root/bin/"
	if [ -d "$keep/planted" ]; then
		cp -r "$keep/planted" "$root/planted"
		cp -r "$root/planted/lib/." "$root/"
		mkdir -p "$root/etc"
		echo 'root:x:0:0:root:/:/bin/sh' >"$root/etc/passwd" # a file that is no program
	fi
	for m in $modules; do
		sed -n "s|:| |; /\/$m\.ko[.a-z]* /p" "$from/modules.dep"
	done | tr ' ' '\n' | sort -u | while read -r file; do
		[ -n "$file" ] || continue
		mkdir -p "$root/lib/modules/$version/$(dirname "$file")"
		cp "$from/$file" "$root/lib/modules/$version/$file"
	done
	find "$root/lib/modules" -name '*.xz' -exec xz -d {} +
	cp "$from/modules.builtin" "$root/lib/modules/$version/" 2>/dev/null || :
	busybox depmod -b "$root" "$version"
	printf '#!/bin/sh\nexport GUEST_RUN="%s" SLOWRAY_INSTRUCTIONS=%s TEST_LIMIT=%s\n' "${GUEST_RUN:-.}" "$count" "$test_limit" >"$root/init"
	cat >>"$root/init" <<-'EOF'
		export PATH=/bin HOME=/tmp SLOWRAY_TEST_PLANTED=/planted SLOWRAY_TEST_EMULATED=yes
		busybox mount -t proc proc /proc
		busybox --install -s /bin
		mount -t sysfs sysfs /sys
		mount -t devtmpfs devtmpfs /dev
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
		mount -t tmpfs tmpfs /tmp
		ip link set lo up
		modprobe tun
		echo; echo "kernel $(uname -r)" # after what the firmware printed
		cd /tmp
		# Of the accuracy tests those of presence: times need a real machine.
		request='^Test(EveryRequestOnce|ConnectionsOlderThanStart|NamespacesAtOnce|LastRequestOnIdleConnection|StatusOfSentBytes)$'
		[ -z "$SLOWRAY_INSTRUCTIONS" ] || request='^TestInstructions$'
		for t in /bin/*.test; do
			name=${t##*/}
			echo "package ${name%.test}"
			case $name in
			kerneltest.test) set -- -slowray=/bin/slowray ;;
			# Left out: what judges times, or how much a ring holds of a rush, and
			# what needs Python or a compiler.
			function.test) set -- -test.skip '^(TestParse|Fuzz)|^Test(PlantedCalls|GoProgram|RequestShare|Exception)$' ;;
			interpreter.test) set -- -test.run '^TestWholeStacks$' ;;
			guest.test) set -- -slowray=/bin/slowray -test.run "$GUEST_RUN" ;;
			request.test) set -- -test.run "$request" ;;
			*) set -- -test.skip '^(TestParse|Fuzz)' ;;
			esac
			[ "$GUEST_RUN" = . ] || case $name in
			guest.test) ;;
			kerneltest.test) set -- "$@" -test.run "$GUEST_RUN" ;;
			*) set -- -test.run "$GUEST_RUN" ;;
			esac
			$t -test.v -test.timeout "${TEST_LIMIT}s" "$@" 2>&1
			echo "status $?"
		done
		echo finished
		poweroff -f
	EOF
	chmod +x "$root/init"
	(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) | gzip -1
	rm -rf "$root"
}

# boot SUITE LOG. One thread for both CPUs: with one for each, QEMU 7.2 may keep
# an int3 in its translated code that the kernel has already replaced, when it
# switches a tracepoint on, and the machine hangs there. No cmpxchg16b: an
# interrupt right after it finds the flags register overwritten, and kernels up to
# 6.12, which allocate memory with it, die of a double fault. The newest need it:
# without, socket storage is refused (kmalloc_nolock, mm/slub.c).
boot() {
	console=ttyS0
	case $arch/$1 in
	arm64/*)
		# With the real algorithm, pointer authentication would take most of the time.
		machine='qemu-system-aarch64 -M virt -accel tcg -cpu max,pauth-impdef=on'
		console=ttyAMA0
		;;
	amd64/sid) machine='qemu-system-x86_64 -M pc -accel tcg,thread=single -cpu Nehalem' ;;
	*) machine='qemu-system-x86_64 -M pc -accel tcg,thread=single -cpu Nehalem,-cx16' ;;
	esac
	clock='-smp 2'
	more=
	if [ -n "$count" ]; then
		clock='-smp 1 -icount shift=0,sleep=off'
		more=nokaslr
	fi
	# shellcheck disable=SC2086 # several words
	timeout -k 5 "$boot_limit" nice -n 10 $machine $clock -m 1024 \
		-kernel "$keep/$1/vmlinuz" -initrd "$keep/$1.initramfs" \
		-append "console=$console loglevel=5 panic=-1 softlockup_panic=1 mitigations=off $more" \
		-nographic -no-reboot -nic none </dev/null | stdbuf -oL tr -d '\r' >"$2"
}

# tell LOG: one line for each check, what it skipped or missed under it; and to
# $keep/results for the verdict over all kernels.
tell() {
	awk -v results="$keep/results" '
		# A test with subtests is judged by them: it passes when they are skipped.
		function flush() {
			if (check == "") return
			printf "%-28s %-4s %s %s\n%s", kernel, tolower(verdict), check, took, notes
			print kernel, verdict, check >>results
			if (verdict == "FAIL") bad = 1
			check = notes = ""
		}
		/^kernel / { kernel = $2 }
		/^package / { package = $2; packages++ }
		/^status / { ended++; if ($2 != 0) bad = 1 }
		/^finished$/ { finished = 1 }
		/^ *[^ ]*\.go:[0-9]+: (missing: |SKIP: |instructions added )/ {
			sub(/^ *[^ ]*: /, "")
			if (!told[$0, package]++) notes = notes sprintf("%-28s   %s\n", "", $0)
		}
		/^ *--- (PASS|FAIL|SKIP): / {
			depth = index($0, "-")
			if (check != "" && depth > held) check = ""
			flush()
			held = depth
			verdict = substr($2, 1, 4)
			check = package "/" $3
			took = $4
			next
		}
		{ flush() }
		END {
			flush()
			if (!finished || ended < packages) {
				printf "%-28s the machine did not come to its end\n", kernel
				bad = 1
			}
			exit bad
		}' "$1"
}

script/setup.sh go "kernels-$arch"
mkdir -p "$keep/tests" "$keep/log"
rm -f "$keep"/tests/* "$keep/results"
export CGO_ENABLED=0 GOARCH="$arch"
go build -trimpath -o "$keep/slowray" ./cmd/slowray
for p in $packages; do
	go test -c -trimpath -ldflags=-s -o "$keep/tests/$(basename "$p").test" "$p"
done
# The programs whose calls and stacks the tests watch, since there is no compiler in
# there, and the libraries that they need.
rm -rf "$keep/planted"
case "$packages " in *sense/function\ * | *callstack/interpreter\ *)
	mkdir -p "$keep/planted/lib"
	$cc -O2 -pthread -o "$keep/planted/planted" internal/sense/function/testdata/planted.c
	go build -trimpath -o "$keep/planted/golang" ./internal/sense/function/testdata/golang
	stacks=internal/sense/callstack/interpreter/testdata
	$cc -O2 -fomit-frame-pointer -o "$keep/planted/c" $stacks/planted.c
	$cc -O1 -fno-omit-frame-pointer -fno-optimize-sibling-calls -o "$keep/planted/cfp" $stacks/planted.c
	go build -trimpath -ldflags='-s -w' -o "$keep/planted/go" ./$stacks/planted
	if [ "$arch" = arm64 ]; then
		$cc -O2 -fomit-frame-pointer -mbranch-protection=pac-ret -o "$keep/planted/cpac" $stacks/planted.c
		mkdir "$keep/planted/lib/lib"
		cp /usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1 /usr/aarch64-linux-gnu/lib/libc.so.6 "$keep/planted/lib/lib/"
	else
		ldd "$keep/planted/planted" | grep -o '/[^ ]*' | while read -r file; do
			cp --parents -L "$file" "$keep/planted/lib"
		done
	fi
	;;
esac
failed=0
for suite in $suites; do
	fetch "$suite"
	initramfs "$suite" >"$keep/$suite.initramfs"
	log=$keep/log/$suite
	# A machine that fails before it runs anything of ours is the emulator's
	# doing.
	for attempt in 1 2 3; do
		boot "$suite" "$log" || : # what it printed tells
		! grep -q '^kernel ' "$log" || break
		echo "kernels: $suite: the machine did not start (attempt $attempt of 3)" >&2
	done
	rm -f "$keep/$suite.initramfs"
	if ! tell "$log"; then
		failed=1
		echo "kernels: $suite failed; all it printed, also in $log:" >&2
		cat "$log" >&2
	fi
done
# A check that no kernel can run tests nothing.
awk -v short="$short$only$count" '{ count[$2]++; kernels[$1] } $2 == "PASS" { ran[$3] } { all[$3] }
	END {
		if (!short) for (c in all) if (!(c in ran)) { print "kernels: " c " passed on no kernel"; bad = 1 }
		printf "kernels: %d kernels: %d checks passed, %d skipped, %d failed\n", length(kernels), count["PASS"], count["SKIP"], count["FAIL"]
		exit bad
	}' "$keep/results" >&2 || failed=1
exit $failed
