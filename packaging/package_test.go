// Package packaging_test makes the packages, of binaries that are none, and looks at
// what is in them and at what installing, upgrading and removing them does. Of a release
// (RELEASE is its directory) it looks at what is there.
package packaging_test

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// architectures are Go's names, and rpm's.
var architectures = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// released is where a release lies, and which.
var released, releasedVersion = os.Getenv("RELEASE"), os.Getenv("RELEASE_VERSION")

// run runs a command and gives what it prints.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v: %s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return strings.TrimSuffix(string(out), "\n")
}

// need skips where a program is missing, except from a release.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if released != "" {
			t.Fatal(err)
		}
		t.Skipf("SKIP: %v (script/setup.sh release): the packages for it are NOT looked at", err)
	}
}

// stands makes programs that say how they were called.
func stands(t *testing.T) string {
	dir := t.TempDir()
	for _, arch := range []string{"amd64", "arm64", runtime.GOARCH} {
		for _, program := range []string{"slowray", "slowray-lab"} {
			path := filepath.Join(dir, arch, program)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("#!/bin/sh\necho \"written by $*\"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// pack makes a package of the stand-ins.
func pack(t *testing.T, version, kind, arch string) string {
	t.Helper()
	return run(t, []string{"VERSION=" + version, "SOURCE_DATE_EPOCH=1795340000"}, "./package", kind, arch, stands(t), t.TempDir())
}

// modes are those of the files that all packages have, below the prefix of each.
var modes = map[string]os.FileMode{
	"usr/bin/slowray": 0o755, "usr/bin/slowray-lab": 0o755, "usr/lib/systemd/system/slowray.service": 0o644,
	"etc/default/slowray":             0o600, // it may hold a token
	"usr/share/man/man1/slowray.1.gz": 0o644, "usr/share/bash-completion/completions/slowray": 0o644,
	"usr/share/fish/vendor_completions.d/slowray.fish": 0o644,
	"usr/share/doc/slowray/README.md":                  0o644, "usr/share/doc/slowray/docs/record.md": 0o644,
	"usr/share/slowray/schema/report.schema.json": 0o644,
}

func TestPackages(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	version := "1.2.3-rc.1"
	if released != "" {
		version = releasedVersion
		t.Run("release", func(t *testing.T) { lookAtRelease(t, version) })
	}
	for arch := range architectures {
		for kind, look := range map[string]func(t *testing.T, path, version, arch string){"deb": lookAtDeb, "rpm": lookAtRPM, "tar": lookAtTar} {
			t.Run(kind+" "+arch, func(t *testing.T) {
				path := filepath.Join(released, packageName(kind, arch, version))
				if released == "" {
					path = pack(t, version, kind, arch)
					if want := packageName(kind, arch, version); filepath.Base(path) != want {
						t.Errorf("it is called %s, want %s", path, want)
					}
					// The same commit gives the same package, whenever and wherever it is built.
					first, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					if second, err := os.ReadFile(pack(t, version, kind, arch)); err != nil || !bytes.Equal(first, second) {
						t.Errorf("built twice it differs: %v", err)
					}
				}
				look(t, path, numbered(version), arch)
			})
		}
	}
}

// numbered is a version as dpkg and rpm order it.
func numbered(version string) string { return strings.Replace(version, "-", "~", 1) }

func packageName(kind, arch, version string) string {
	switch kind {
	case "deb":
		return "slowray_" + numbered(version) + "_" + arch + ".deb"
	case "rpm":
		return "slowray-" + numbered(version) + "-1." + architectures[arch] + ".rpm"
	}
	return "slowray-" + version + "-linux-" + arch + ".tar.gz"
}

func lookAtDeb(t *testing.T, path, version, arch string) {
	need(t, "dpkg-deb")
	root := t.TempDir()
	run(t, nil, "dpkg-deb", "-x", path, root)
	run(t, nil, "dpkg-deb", "-e", path, filepath.Join(root, "DEBIAN"))
	want := map[string]os.FileMode{
		"usr/share/zsh/vendor-completions/_slowray": 0o644, "usr/share/doc/slowray/copyright": 0o644, "usr/share/doc/slowray/changelog.gz": 0o644,
		"DEBIAN/postinst": 0o755, "DEBIAN/prerm": 0o755, "DEBIAN/postrm": 0o755,
	}
	for name, mode := range modes {
		want[name] = mode
	}
	for name, mode := range want {
		if st, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		} else if st.Mode().Perm() != mode {
			t.Errorf("%s has mode %o, want %o", name, st.Mode().Perm(), mode)
		}
	}
	for _, line := range strings.Split(run(t, nil, "dpkg-deb", "-c", path), "\n") {
		if !strings.Contains(line, " root/root ") {
			t.Errorf("not root's: %s", line)
		}
	}
	for name, want := range map[string]string{
		"DEBIAN/conffiles": "/etc/default/slowray\n",
		"DEBIAN/control":   fmt.Sprintf("Package: slowray\nVersion: %s\nSection: admin\nPriority: optional\nArchitecture: %s\n", version, arch),
	} {
		if text, err := os.ReadFile(filepath.Join(root, name)); err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s is %q, want %q: %v", name, text, want, err)
		}
	}
	if got := run(t, nil, "dpkg-deb", "-f", path, "Description"); !strings.HasPrefix(got, "X-ray for slow services\n slowray says why") || !strings.Contains(got, "\n .\n") {
		t.Errorf("the description is %q", got)
	}
	linksLead(t, filepath.Join(root, "usr/share/doc/slowray"))
	run(t, nil, "env", "-C", root, "md5sum", "--quiet", "-c", "DEBIAN/md5sums")
	lookAtBinaries(t, filepath.Join(root, "usr/bin"), filepath.Join(root, "usr/share/bash-completion/completions/slowray"), arch)
}

// lookAtRPM asks rpm, which needs no root and no architecture for that.
func lookAtRPM(t *testing.T, path, version, arch string) {
	need(t, "rpm")
	run(t, nil, "rpm", "-K", "--nosignature", path) // the digests of headers and files
	ask := func(format string) string {
		return run(t, nil, "rpm", "-qp", "--nosignature", "--queryformat", format, path)
	}
	if got, want := ask("%{NAME} %{VERSION} %{RELEASE} %{ARCH} %{LICENSE} %{BUILDHOST}"), "slowray "+version+" 1 "+architectures[arch]+" Apache-2.0 localhost"; got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
	files := map[string][]string{}
	for _, line := range strings.Split(ask("[%{FILENAMES} %{FILEMODES:octal} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILEFLAGS:fflags}\n]"), "\n") {
		if f := strings.Fields(line); len(f) >= 3 {
			files[f[0][1:]] = f[1:]
			if f[2] != "root:root" {
				t.Errorf("not root's: %s", line)
			}
		}
	}
	want := map[string]os.FileMode{"usr/share/zsh/site-functions/_slowray": 0o644, "usr/share/licenses/slowray/LICENSE": 0o644}
	for name, mode := range modes {
		want[name] = mode
	}
	for name, mode := range want {
		if f := files[name]; f == nil || f[0] != fmt.Sprintf("%o", 0o100000|mode) {
			t.Errorf("%s has mode %v, want %o", name, f, mode)
		}
	}
	if f := files["etc/default/slowray"]; len(f) != 3 || f[2] != "cn" {
		t.Errorf("the options are no %%config(noreplace): %v", f)
	}
	// What it does not own is left when it is removed.
	for name := range files {
		if dir := filepath.Dir(name); strings.Contains(dir, "/slowray") && files[dir] == nil {
			t.Errorf("nobody owns %s", dir)
		}
	}
	for tag, script := range map[string]string{"POSTIN": "postinst", "PREUN": "prerm", "POSTUN": "postrm"} {
		if text, err := os.ReadFile("scripts/" + script); err != nil || strings.TrimSpace(string(text)) != strings.TrimSpace(ask("%{"+tag+"}")) {
			t.Errorf("%s is not scripts/%s: %v", tag, script, err)
		}
	}
}

func lookAtTar(t *testing.T, path, _, arch string) {
	root := t.TempDir()
	run(t, nil, "tar", "-xpzf", path, "--strip-components=1", "-C", root)
	for name, mode := range map[string]os.FileMode{
		"bin/slowray": 0o755, "bin/slowray-lab": 0o755, "share/man/man1/slowray.1.gz": 0o644, "share/doc/slowray/LICENSE": 0o644, "share/doc/slowray/README.md": 0o644, "share/doc/slowray/README.zh-CN.md": 0o644,
		"share/bash-completion/completions/slowray": 0o644, "share/zsh/site-functions/_slowray": 0o644, "share/fish/vendor_completions.d/slowray.fish": 0o644,
	} {
		if st, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		} else if st.Mode().Perm() != mode {
			t.Errorf("%s has mode %o, want %o", name, st.Mode().Perm(), mode)
		}
	}
	if unit, err := os.ReadFile(filepath.Join(root, "lib/systemd/system/slowray.service")); err != nil || !strings.Contains(string(unit), "\nExecStart=/usr/local/bin/slowray record ") {
		t.Errorf("the unit starts another program: %v\n%s", err, unit)
	}
	// /usr/local has the modes that somebody gave it.
	for _, line := range strings.Split(run(t, nil, "tar", "-tvzf", path), "\n") {
		if !strings.HasPrefix(line, "-") || !strings.Contains(line, " root/root ") {
			t.Errorf("not a file of root's: %s", line)
		}
	}
	lookAtBinaries(t, filepath.Join(root, "bin"), filepath.Join(root, "share/bash-completion/completions/slowray"), arch)
	// As docs/install.md removes them.
	run(t, nil, "sh", "-c", `tar -tzf "$1" | cut -d/ -f2- | xargs -I{} rm "$2/{}"`, "sh", path, root)
	if left := run(t, nil, "find", root, "-type", "f"); left != "" {
		t.Errorf("removing leaves %s", left)
	}
}

// lookAtBinaries: of a release they are static and run on the architecture; stand-ins
// have written the completion.
func lookAtBinaries(t *testing.T, dir, completion, arch string) {
	text, err := os.ReadFile(completion)
	if err != nil {
		t.Fatal(err)
	}
	if released == "" {
		if string(text) != "written by completion bash\n" {
			t.Errorf("the completion is %q", text)
		}
		return
	}
	if !bytes.Contains(text, []byte("slowray")) {
		t.Errorf("the completion is %q", text)
	}
	for _, program := range []string{"slowray", "slowray-lab"} {
		f, err := elf.Open(filepath.Join(dir, program))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; f.Machine != want {
			t.Errorf("%s is for %v, want %v", program, f.Machine, want)
		}
		if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			t.Errorf("%s is not static", program)
		}
	}
	if arch == runtime.GOARCH {
		if got := run(t, nil, filepath.Join(dir, "slowray"), "version"); !strings.Contains(got, releasedVersion) {
			t.Errorf("slowray version says %q, want %s", got, releasedVersion)
		}
	}
}

// lookAtRelease: the checksums are those of all files, the SBOMs name what is linked in.
func lookAtRelease(t *testing.T, version string) {
	run(t, nil, "env", "-C", released, "sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS")
	sums, err := os.ReadFile(filepath.Join(released, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(released)
	if err != nil || len(files) != 2*(3+2)+1+2+2*3+1 || // packages and SBOMs, image, chart and manifests, plugins and SBOMs, sums
		bytes.Count(sums, []byte("\n")) != len(files)-1 {
		t.Errorf("%d files, with these checksums: %v\n%s", len(files), err, sums)
	}
	for program, module := range map[string]string{"slowray": "github.com/cilium/ebpf", "slowray-lab": "golang.org/x/sys", "kubectl-slowray": "k8s.io/client-go"} {
		for _, system := range []string{"linux-amd64", "linux-arm64", "darwin-arm64"} {
			if program != "kubectl-slowray" && !strings.HasPrefix(system, "linux") {
				continue
			}
			name := fmt.Sprintf("%s-%s-%s.cdx.json", program, version, system)
			text, err := os.ReadFile(filepath.Join(released, name))
			var bom struct {
				BOMFormat string
				Metadata  struct {
					Component struct{ Name, Version string }
					Tools     []struct {
						Name, Version string
						Hashes        []any
					}
				}
				Components []struct{ Name, Version, PURL string }
			}
			if err == nil {
				err = json.Unmarshal(text, &bom)
			}
			if err != nil || bom.BOMFormat != "CycloneDX" || bom.Metadata.Component.Version != "v"+version {
				t.Errorf("%s: %v, %s of %+v", name, err, bom.BOMFormat, bom.Metadata)
			}
			if tools := bom.Metadata.Tools; len(tools) != 1 || tools[0].Name != "cyclonedx-gomod" || tools[0].Version == "" || tools[0].Hashes != nil {
				t.Errorf("%s depends on which binary made it: %+v", name, tools)
			}
			for _, want := range []string{module, "std"} {
				if !slices.ContainsFunc(bom.Components, func(c struct{ Name, Version, PURL string }) bool {
					return c.Name == want && c.Version != "" && c.PURL != ""
				}) {
					t.Errorf("%s does not name %s", name, want)
				}
			}
		}
	}
}

// TestReleaseRefuses what nobody could make again, or order by version.
func TestReleaseRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"packaging/release", "script/progress.sh"} {
		data, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run(t, nil, "git", "-C", dir, "init", "-q")
	for version, want := range map[string]string{
		"": "version", "1.2": "version", "v1.2.3": "version", "1.2.3~rc1": "version", "01.2.3": "version", "1.2.3-": "version", "1.2.3 ": "version",
		"1.2.3\n$(touch x)": "version", "x\n1.2.3": "version",
		"1.2.3": "committed", "1.2.3-rc.1+build-7": "committed", "10.20.30--": "committed",
	} {
		out, err := exec.Command(filepath.Join(dir, "packaging/release"), version).CombinedOutput()
		if err == nil || strings.Count(string(out), "\n") != 1 || !strings.HasPrefix(string(out), "release: ") || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v: %s", version, err, out)
		}
	}
}

// TestHostileVersion: nothing of a version is a flag, a line or a path.
func TestHostileVersion(t *testing.T) {
	for _, version := range []string{"1.2 -X main.other=x", "1.2\nscripts: {}", "../../x", "$(touch x)", "1.2;x", "1.2'"} {
		cmd := exec.Command("./package", "version")
		cmd.Env = append(os.Environ(), "VERSION="+version)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "VERSION may") {
			t.Errorf("%q: %v: %s", version, err, out)
		}
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
		t.Skip("SKIP: no make: the version of the binary is NOT compared")
	}
	for _, kind := range []string{"deb", "rpm"} {
		plan := run(t, nil, make, "-n", "-C", "..", kind, "VERSION=1.2.3~test")
		if strings.Count(plan, "VERSION='1.2.3~test' packaging/package") != 2 {
			t.Errorf("make %s builds and packages another version:\n%s", kind, plan)
		}
	}
	// The linker is silent where there is no such variable.
	script, err := os.ReadFile("package")
	source, err2 := os.ReadFile("../cmd/slowray/main.go")
	if err != nil || err2 != nil || !bytes.Contains(script, []byte("-X main.built=$version")) || !bytes.Contains(source, []byte("\nvar built string\n")) {
		t.Errorf("the version goes nowhere: %v, %v", err, err2)
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
