package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// install has this machine's root below a layer that takes every change, with a service
// manager that notes how it is called, and prints what happens step by step. $1 and $2
// are two versions, $3 to $6 how to install, upgrade, remove and purge. $7 is what the
// service does when it is started, $8 how to go back to the first version.
const install = `
set -eu
dir=$(mktemp -d)
trap 'umount -l "$dir" 2>/dev/null || :; rmdir "$dir"' EXIT
mount -t tmpfs tmpfs "$dir"
mkdir "$dir/changes" "$dir/work" "$dir/root"
mount -t overlay -o lowerdir=/,upperdir="$dir/changes",workdir="$dir/work" overlay "$dir/root" || exit 77
root=$dir/root
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
rm -rf "$root/etc/default/slowray" "$root/var/lib/slowray" "$root/usr/bin/slowray" "$root/usr/bin/slowray-lab"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root/run/systemd/system" "$root/tmp/db/updates" "$root/tmp/db/info"
: >"$root/tmp/db/status"
rm -f "$root/usr/bin/systemctl"
printf '#!/bin/sh\necho "systemctl $*" >>/tmp/calls\n' >"$root/usr/bin/systemctl"
chmod 755 "$root/usr/bin/systemctl"
cp "$1" "$root/tmp/one"
cp "$2" "$root/tmp/two"

do_step() { # NAME COMMAND
	: >"$root/tmp/calls"
	chroot "$root" sh -c "$2" >"$root/tmp/said" 2>&1 || { cat "$root/tmp/said" >&2; exit 1; }
	echo "$1:"
	sed 's/systemctl --system /  /' "$root/tmp/calls"
}
do_step install "$3"
echo "  $(chroot "$root" stat -c '%a %n' /usr/bin/slowray /etc/default/slowray | tr '\n' ' ')"
chroot "$root" sh -c "$7" || exit 1
mkdir -p "$root/var/lib/slowray/history"
echo history >"$root/var/lib/slowray/history/id"
echo '# mine' >>"$root/etc/default/slowray"
kept() {
	echo "  $(cat "$root/var/lib/slowray/history/id"), options: $(tail -n 1 "$root/etc/default/slowray"), $(chroot "$root" sh -c 'slowray version' | head -n 1)"
}
do_step upgrade "$4"
kept
do_step downgrade "$8"
kept
do_step remove "$5"
do_step purge "$6"
echo left:
# What is removed is a character device there.
(cd "$dir/changes" && find . -path '*slowray*' ! -path '*/history/*' ! -type c | LC_ALL=C sort | sed 's/^\./  /')
`

// record is what the unit starts, for some seconds: it ends well, and leaves a history.
const record = `
. /etc/default/slowray
timeout --preserve-status -s TERM 5 slowray record --listen off $SLOWRAY_OPTIONS >/tmp/said 2>&1 && [ -e /var/lib/slowray/history/lock ] || { cat /tmp/said >&2; exit 1; }
`

// TestInstall installs, upgrades, downgrades, removes and purges on a copy of this machine's root
// that is gone afterwards.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	if os.Getuid() != 0 {
		t.Skip("SKIP: not root: no package is installed")
	}
	for _, c := range []struct {
		kind, install, upgrade, downgrade, remove, purge string
		want                                             string
	}{
		{
			"deb", "dpkg --admindir=/tmp/db -i /tmp/one", "dpkg --admindir=/tmp/db -i /tmp/two", "dpkg --admindir=/tmp/db -i /tmp/one", "dpkg --admindir=/tmp/db -r slowray", "dpkg --admindir=/tmp/db -P slowray", `
install:
  daemon-reload
  try-restart slowray.service
  755 /usr/bin/slowray 600 /etc/default/slowray 
upgrade:
  daemon-reload
  daemon-reload
  try-restart slowray.service
  history, options: # mine, written by version
downgrade:
  daemon-reload
  daemon-reload
  try-restart slowray.service
  history, options: # mine, FIRST
remove:
  --no-reload disable --now slowray.service
  daemon-reload
purge:
  daemon-reload
left:
`,
		},
		{
			"rpm", "rpm --dbpath /tmp/rpm --nodeps -i --nosignature /tmp/one", "rpm --dbpath /tmp/rpm --nodeps -U --nosignature /tmp/two", "rpm --dbpath /tmp/rpm --nodeps -U --oldpackage --nosignature /tmp/one", "rpm --dbpath /tmp/rpm -e slowray", ":", `
install:
  daemon-reload
  try-restart slowray.service
  755 /usr/bin/slowray 600 /etc/default/slowray 
upgrade:
  daemon-reload
  try-restart slowray.service
  daemon-reload
  history, options: # mine, written by version
downgrade:
  daemon-reload
  try-restart slowray.service
  daemon-reload
  history, options: # mine, FIRST
remove:
  --no-reload disable --now slowray.service
  daemon-reload
purge:
left:
  /etc/default/slowray.rpmsave
  /var/lib/slowray
  /var/lib/slowray/history
`,
		},
	} {
		t.Run(c.kind, func(t *testing.T) {
			need(t, map[string]string{"deb": "dpkg", "rpm": "rpm"}[c.kind])
			start := `test "$(slowray record)" = "written by record"`
			one, first := "", "written by version"
			if released == "" {
				one = pack(t, "1.2.3", c.kind, runtime.GOARCH)
			} else {
				one = filepath.Join(released, packageName(c.kind, runtime.GOARCH, releasedVersion))
				start, first = record, "slowray "+releasedVersion
			}
			two := pack(t, "99.0.0", c.kind, runtime.GOARCH)
			cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", install, "sh", one, two, c.install, c.upgrade, c.remove, c.purge, start, c.downgrade)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if cmd.ProcessState.ExitCode() == 77 {
				t.Skipf("SKIP: no overlay of / can be mounted here: no package is installed: %s", stderr.String())
			}
			if err != nil {
				t.Fatalf("%v: %s%s", err, out, stderr.String())
			}
			if got, want := string(out), strings.Replace(strings.TrimPrefix(c.want, "\n"), "FIRST", first, 1); got != want {
				t.Errorf("it is\n%swant\n%s", got, want)
			}
		})
	}
}
