package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
)

// inContainer runs $1 with a root directory, a name and a view of control groups of its
// own, and the host's processes.
const inContainer = `
set -eu
hostname slowray-x7k2p
root=$(mktemp -d)
mount -t tmpfs tmpfs "$root"
for d in /*; do
	if [ -L "$d" ]; then cp -P "$d" "$root"; elif [ -d "$d" ]; then mkdir "$root$d"; mount --rbind "$d" "$root$d"; fi
done
exec chroot "$root" "$1" doctor --json
`

// TestJoinsHost: in a container that shares the host's process IDs slowray knows the
// host's name, and finds the root of the control groups.
func TestJoinsHost(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, and takes seconds")
	}
	cmd := exec.Command("unshare", "--mount", "--uts", "--cgroup", "sh", "-c", inContainer, "sh", os.Args[0])
	cmd.Env = append(os.Environ(), beSlowray+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Host  struct{ Name string }
		Parts []struct {
			Name, State string
			Because     []string
		}
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if want, _ := os.Hostname(); got.Host.Name != want {
		t.Errorf("the host is called %q, want %q", got.Host.Name, want)
	}
	for _, p := range got.Parts {
		if p.Name == "nameservers" && p.State != "works" {
			t.Errorf("%s: %s %q", p.Name, p.State, p.Because)
		}
	}
}
