package packaging_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// fedora has a root that dnf fills, as Fedora's installer and builders of images do: with
// nothing of this machine in it and nothing of Debian. $1 is a package with the userland,
// $2 and $3 two versions of slowray, $4 what is done with the first one.
const fedora = `
set -eu
dir=$(mktemp -d)
trap 'umount -l "$dir" 2>/dev/null || :; rmdir "$dir"' EXIT
mount -t tmpfs tmpfs "$dir"
root=$dir/root
mkdir -p "$root/dev" "$root/proc" "$root/sys" "$dir/log"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"

# No repository of this machine, nothing that plugins of its dnf bring along.
do_step() { # NAME DNF'S ARGUMENTS
	name=$1
	shift
	dnf -y -q --noplugins --installroot="$root" --releasever=40 --setopt=reposdir=/dev/null --setopt=cachedir="$dir/cache" \
		--setopt=logdir="$dir/log" --setopt=tsflags= --setopt=install_weak_deps=False --nogpgcheck "$@" >"$dir/said" 2>&1 || { cat "$dir/said" >&2; exit 1; }
	! grep -iE 'warning|scriptlet|conflict' "$dir/said" >&2 || exit 1
	echo "$name: $(chroot "$root" sh -c 'slowray version 2>/dev/null || echo none' | head -n 1)"
	[ ! -e "$root/calls" ] || sed 's/^/  /; s/--system //' "$root/calls"
	rm -f "$root/calls"
}
do_step install install "$1" "$2"
mkdir -p "$root/run/systemd/system" "$root/var/lib/slowray/history"
echo "  $(chroot "$root" stat -c '%a %n' /usr/bin/slowray /etc/default/slowray | tr '\n' ' ')"
chroot "$root" sh -c "$4" || exit 1
echo history >"$root/var/lib/slowray/history/id"
echo '# mine' >>"$root/etc/default/slowray"
do_step upgrade upgrade "$3"
do_step downgrade downgrade "$2"
tail -n 1 "$root/etc/default/slowray" | sed 's/^/  options: /'
do_step remove remove slowray
echo left:
(cd "$root" && find . -path ./dev -prune -o -path ./proc -prune -o -path ./sys -prune -o -path '*slowray*' -print | LC_ALL=C sort | sed 's/^\./  /')
`

// userland makes an rpm that holds what Fedora has of the world of an rpm: a shell and its
// tools, as links to busybox, and a systemctl that notes how it is called.
func userland(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	need(t, "busybox")
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	systemctl := filepath.Join(dir, "systemctl")
	if err := os.WriteFile(systemctl, []byte("#!/bin/sh\necho \"systemctl $*\" >>/calls\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	var spec strings.Builder
	fmt.Fprintf(&spec, "name: userland\narch: noarch\nversion: 40\nprovides: [/bin/sh]\ncontents:\n")
	for _, of := range []string{"bin", "sbin", "lib", "lib64"} {
		fmt.Fprintf(&spec, "  - {dst: /%s, src: usr/%[1]s, type: symlink}\n", of)
	}
	fmt.Fprintf(&spec, "  - {src: %s, dst: /usr/bin/systemctl, file_info: {mode: 0755}}\n", systemctl)
	fmt.Fprintf(&spec, "  - {src: %s, dst: /usr/bin/busybox, file_info: {mode: 0755}}\n", busybox)
	for _, program := range []string{"sh", "cat", "echo", "head", "rm", "rmdir", "sleep", "stat", "timeout"} {
		fmt.Fprintf(&spec, "  - {dst: /usr/bin/%s, src: busybox, type: symlink}\n", program)
	}
	config, path := filepath.Join(dir, "nfpm.yaml"), filepath.Join(dir, "userland.rpm")
	if err := os.WriteFile(config, []byte(spec.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, nil, "go", "tool", "-modfile=tools/go.mod", "nfpm", "package", "-f", config, "-p", "rpm", "-t", path)
	return path
}

// TestFedora installs the rpm by dnf into an empty root, in one transaction with the
// userland, upgrades, downgrades and removes it.
func TestFedora(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	if os.Getuid() != 0 {
		t.Skip("SKIP: not root: no package is installed")
	}
	need(t, "dnf")
	const arch = runtime.GOARCH
	one, first, look := "", "written by version", `test "$(slowray record)" = "written by record"`
	if released == "" {
		one = pack(t, "1.2.3", "rpm", arch)
	} else {
		one, first = filepath.Join(released, packageName("rpm", arch, releasedVersion)), "slowray "+releasedVersion
		look = `timeout 60 slowray why --for 2s >/why 2>&1; grep -q 'watched for' /why || { cat /why >&2; exit 1; }`
	}
	two := pack(t, "99.0.0", "rpm", arch)
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", fedora, "sh", userland(t), one, two, look)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr.String())
	}
	want := `install: ` + first + `
  755 /usr/bin/slowray 600 /etc/default/slowray 
upgrade: written by version
  systemctl daemon-reload
  systemctl try-restart slowray.service
  systemctl daemon-reload
downgrade: ` + first + `
  systemctl daemon-reload
  systemctl try-restart slowray.service
  systemctl daemon-reload
  options: # mine
remove: none
  systemctl --no-reload disable --now slowray.service
  systemctl daemon-reload
left:
  /etc/default/slowray.rpmsave
  /var/lib/slowray
  /var/lib/slowray/history
  /var/lib/slowray/history/id
`
	if got := string(out); got != want {
		t.Errorf("it is\n%swant\n%s", got, want)
	}
}
