// Package packaging_test builds the Debian package from a binary that is none,
// and looks at what is in it.
package packaging_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// build builds the package and says where it is.
func build(t *testing.T, dir string) string {
	t.Helper()
	binary := filepath.Join(dir, "slowray")
	for _, program := range []string{binary, binary + "-lab"} {
		if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"written by $*\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("./deb", binary, dir)
	cmd.Env = append(os.Environ(), "VERSION=1.2.3~test", "SOURCE_DATE_EPOCH=1795340000")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("deb: %v: %s", err, err.(*exec.ExitError).Stderr)
	}
	return strings.TrimSpace(string(out))
}

func TestDebianPackage(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("SKIP: dpkg-deb is not installed: the package is NOT built")
	}
	dir := t.TempDir()
	name := build(t, dir)
	if !strings.HasPrefix(filepath.Base(name), "slowray_1.2.3~test_") {
		t.Errorf("the package is called %s", name)
	}
	root := filepath.Join(dir, "root")
	for _, args := range [][]string{{"-x", name, root}, {"-e", name, filepath.Join(root, "DEBIAN")}} {
		if out, err := exec.Command("dpkg-deb", args...).CombinedOutput(); err != nil {
			t.Fatalf("dpkg-deb %v: %v: %s", args, err, out)
		}
	}
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	for path, mode := range map[string]os.FileMode{
		"usr/bin/slowray": 0o755, "usr/bin/slowray-lab": 0o755, "usr/lib/systemd/system/slowray.service": 0o644, "etc/default/slowray": 0o600, // it may hold a token

		"usr/share/man/man1/slowray.1.gz": 0o644, "usr/share/bash-completion/completions/slowray": 0o644,
		"usr/share/doc/slowray/copyright": 0o644, "usr/share/doc/slowray/docs/record.md": 0o644,
		"DEBIAN/postinst": 0o755, "DEBIAN/prerm": 0o755, "DEBIAN/postrm": 0o755,
	} {
		st, err := os.Stat(filepath.Join(root, path))
		if err != nil {
			t.Error(err)
		} else if st.Mode().Perm() != mode {
			t.Errorf("%s has mode %o, want %o", path, st.Mode().Perm(), mode)
		}
	}
	if got := read("usr/share/bash-completion/completions/slowray"); got != "written by completion bash\n" {
		t.Errorf("the completion is %q", got)
	}
	if got := read("DEBIAN/conffiles"); got != "/etc/default/slowray\n" {
		t.Errorf("conffiles: %q", got)
	}
	for _, want := range []string{"Package: slowray\n", "Version: 1.2.3~test\n", "\n slowray says why"} {
		if !strings.Contains(read("DEBIAN/control"), want) {
			t.Errorf("control lacks %q", want)
		}
	}
	linksLead(t, filepath.Join(root, "usr/share/doc/slowray"))
	sums := exec.Command("md5sum", "--quiet", "-c", "DEBIAN/md5sums")
	sums.Dir = root
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("md5sums: %v: %s", err, out)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		if out, err := exec.Command("sh", "-n", filepath.Join(root, "DEBIAN", script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %s", script, out)
		}
	}

	// The same commit gives the same package, whenever it is built.
	again := t.TempDir()
	first, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(build(t, again))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the same package built twice differs")
	}
}

// linksLead fails where a page below a directory points to a file that is not there.
// What is for who builds slowray is not in the package, and may be pointed to.
func linksLead(t *testing.T, dir string) {
	t.Helper()
	link := regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	pages, links := 0, 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		pages++
		text, err := os.ReadFile(path)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			to := filepath.Join(filepath.Dir(path), m[1])
			if rel, _ := filepath.Rel(dir, to); slices.ContainsFunc([]string{"LICENSE", "CONTRIBUTING.md", "lab", "bench", "internal", "script"}, func(s string) bool { return rel == s || strings.HasPrefix(rel, s+"/") }) {
				continue
			}
			links++
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s points to %s, which is not in the package", path[len(dir)+1:], m[1])
			}
		}
		return err
	})
	if err != nil || pages < 100 || links < 50 {
		t.Errorf("%d pages with %d links: %v", pages, links, err)
	}
}

// TestVersion: the binary has the version of the package.
func TestVersion(t *testing.T) {
	make, err := exec.LookPath("make")
	if err != nil {
		t.Skip("SKIP: no make")
	}
	plan := exec.Command(make, "-n", "-C", "..", "deb", "VERSION=1.2.3~test")
	text, err := plan.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "-X main.built=1.2.3~test'") || !strings.Contains(string(text), "VERSION='1.2.3~test' packaging/deb") {
		t.Fatalf("make deb does not tell the version: %v\n%s", err, text)
	}
	// The linker is silent where there is no such variable.
	if source, err := os.ReadFile("../cmd/slowray/main.go"); err != nil || !strings.Contains(string(source), "\nvar built string\n") {
		t.Errorf("nothing to tell it to: %v", err)
	}
}

// TestUnit: the service starts what the package installs, with options that it
// reads from a file that the package installs.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile("slowray.service")
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	section := ""
	for n, line := range strings.Split(string(text), "\n") {
		switch key, value, ok := strings.Cut(line, "="); {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = line
		case !ok || section == "":
			t.Errorf("line %d: %q", n+1, line)
		default:
			settings[key] = value
		}
	}
	for key, want := range map[string]string{
		"ExecStart": "/usr/bin/slowray record $SLOWRAY_OPTIONS", "EnvironmentFile": "-/etc/default/slowray",
		"Type": "notify", "StateDirectory": "slowray", "NoNewPrivileges": "yes",
	} {
		if settings[key] != want {
			t.Errorf("%s=%s, want %s", key, settings[key], want)
		}
	}
	for _, needed := range []string{"CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"} {
		if !strings.Contains(settings["CapabilityBoundingSet"], needed) {
			t.Errorf("%s is missing", needed)
		}
	}
	// What would give it a mount namespace of its own, see the unit.
	for _, never := range []string{"ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables", "ReadOnlyPaths", "RestrictNamespaces"} {
		if _, set := settings[never]; set {
			t.Errorf("%s= is set", never)
		}
	}
}
