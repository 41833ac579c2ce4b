// Package script_test tries the scripts with programs that stand in for Go, and
// holds their lists of packages against what tests and incidents need.
// script/fresh.sh is the proof on a fresh machine (make test-fresh).
package script_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// oldGo stands in for Debian 12's: it cannot read go.mod, but downloads modules. A
// toolchain that it downloads is the program called new-go.
const oldGo = `#!/bin/sh
case $1 in
version) echo 'go version go1.19.8 linux/amd64' ;;
env) case $2 in GOARCH) echo amd64 ;; GOMODCACHE) echo "$STAND_IN/cache" ;; esac ;;
mod)
	[ $2 = download ] || exit 0
	shift 3
	echo "$1" >>"$STAND_IN/downloads"
	mkdir -p "$STAND_IN/cache/$1/bin"
	cp "$STAND_IN/new-go" "$STAND_IN/cache/$1/bin/go"
	chmod 444 "$STAND_IN/cache/$1/bin/go" # as it is in the module cache
	;;
*) echo "go: errors parsing go.mod: invalid go version '1.26.0': must match format 1.23" >&2; exit 1 ;;
esac
`

// newGo stands in for a Go that can build the module: what it builds says by whom.
const newGo = `#!/bin/sh
case $1 in
version) echo 'go version go1.26.8 linux/amd64' ;;
env) echo go1.26.8 ;;
build)
	while [ $# -gt 0 ]; do [ "$1" != -o ] || { mkdir -p "$(dirname "$2")"; echo "built by $0" >"$2"; }; shift; done
	;;
esac
`

// localGo stands in for one that could fetch a newer one, and may not.
const localGo = `#!/bin/sh
case $1 in
version) echo 'go version go1.24.2 linux/amd64' ;;
env|mod) exec "$STAND_IN/old-go" "$@" ;;
*) echo 'go: go.mod requires go >= 1.26.0 (running go 1.24.2; GOTOOLCHAIN=local)' >&2; exit 1 ;;
esac
`

// clone is a directory with the Makefile and the scripts, and a PATH with nothing but
// what these call.
type clone struct{ dir, standIn, path string }

func newClone(t *testing.T) clone {
	t.Helper()
	c := clone{dir: t.TempDir(), standIn: t.TempDir()}
	c.path = filepath.Join(c.standIn, "bin")
	tools := filepath.Join(c.standIn, "tools")
	for _, dir := range []string{c.path, tools, filepath.Join(c.dir, "script")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"Makefile", "go.mod", "script/setup.sh", "script/build.sh", "script/progress.sh"} {
		data, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		c.write(t, filepath.Join(c.dir, name), string(data))
	}
	for _, name := range []string{"awk", "chmod", "cp", "cut", "date", "dirname", "echo", "fold", "grep", "id", "ln", "make", "mkdir", "mktemp", "nproc", "rm", "sed", "sh", "sleep", "tail", "tr", "wc"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("SKIPPED: %v: the scripts are NOT tried", err)
		}
		if err := os.Symlink(path, filepath.Join(tools, name)); err != nil {
			t.Fatal(err)
		}
	}
	c.write(t, filepath.Join(c.standIn, "old-go"), oldGo)
	c.write(t, filepath.Join(c.standIn, "new-go"), newGo)
	c.write(t, filepath.Join(c.standIn, "local-go"), localGo)
	c.path += ":" + tools
	return c
}

func (c clone) write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// put installs a stand-in as a go.
func (c clone) put(t *testing.T, name, at string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(c.standIn, name), at); err != nil {
		t.Fatal(err)
	}
}

// build makes the program and gives who built it.
func (c clone) build(t *testing.T) (by, printed string) {
	t.Helper()
	os.Remove(filepath.Join(c.dir, "bin/slowray"))
	printed, err := c.make("build")
	if err != nil {
		t.Fatalf("make build: %v\n%s", err, printed)
	}
	text, err := os.ReadFile(filepath.Join(c.dir, "bin/slowray"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(string(text), "built by ")), printed
}

func (c clone) make(target string) (printed string, err error) {
	cmd := exec.Command(filepath.Join(c.standIn, "tools/make"), target)
	cmd.Dir = c.dir
	cmd.Env = []string{"PATH=" + c.path, "HOME=" + c.standIn, "STAND_IN=" + c.standIn, "LOCAL_GO=" + filepath.Join(c.standIn, "local")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c clone) downloads(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.standIn, "downloads"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// TestWhichGo: the Go that builds is the first on PATH if that can, otherwise one that
// is there, otherwise the one that is downloaded, whatever else is on PATH.
func TestWhichGo(t *testing.T) {
	const toolchain = "golang.org/toolchain@v0.0.1-go1.26.8.linux-amd64"
	for _, shape := range []struct {
		name     string
		onPATH   string // "" = none
		inject   func(t *testing.T, c clone)
		want     string // suffix of the program that builds
		download bool
	}{
		{name: "old on PATH", onPATH: "old-go", want: "/.toolchain/bin/go", download: true},
		{name: "may not fetch", onPATH: "local-go", want: "/.toolchain/bin/go", download: true},
		{name: "new on PATH", onPATH: "new-go", want: "/bin/go"},
		{name: "new on PATH, downloaded before", onPATH: "new-go", want: "/bin/go", inject: func(t *testing.T, c clone) {
			c.put(t, "old-go", filepath.Join(c.standIn, "outdated/bin/go"))
			if err := os.Symlink(filepath.Join(c.standIn, "outdated"), filepath.Join(c.dir, ".toolchain")); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "old on PATH, new elsewhere", onPATH: "old-go", want: "/.toolchain/bin/go", inject: func(t *testing.T, c clone) {
			c.put(t, "new-go", filepath.Join(c.standIn, "local/bin/go"))
		}},
		{name: "none on PATH, new elsewhere", want: "/.toolchain/bin/go", inject: func(t *testing.T, c clone) {
			c.put(t, "new-go", filepath.Join(c.standIn, "local/bin/go"))
		}},
		{name: "none", want: "/.toolchain/bin/go", download: true, inject: func(t *testing.T, c clone) {
			// Stands in for apt: from when it is asked for, the package is installed.
			c.write(t, filepath.Join(c.standIn, "bin/dpkg-query"), `#!/bin/sh
ln -sf "$STAND_IN/old-go" "$STAND_IN/bin/go"
echo install ok installed
`)
		}},
	} {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			c := newClone(t)
			if shape.onPATH != "" {
				c.put(t, shape.onPATH, filepath.Join(c.standIn, "bin/go"))
			}
			if shape.inject != nil {
				shape.inject(t, c)
			}
			want := ""
			if shape.download {
				want = toolchain
			}
			for range 2 { // nothing is downloaded twice
				by, printed := c.build(t)
				if !strings.HasSuffix(by, shape.want) {
					t.Errorf("built by %q, want …%s\n%s", by, shape.want, printed)
				}
				if got := c.downloads(t); got != want {
					t.Errorf("downloaded %q, want %q\n%s", got, want, printed)
				}
				if strings.ContainsAny(printed, "\r\x1b") {
					t.Errorf("not to a terminal: %q", printed)
				}
			}
		})
	}
}

// TestNoRoot: a user who cannot install what is missing reads what it is, and the
// command that installs it.
func TestNoRoot(t *testing.T) {
	t.Parallel()
	for _, shape := range []struct{ name, apt, want string }{
		{"Debian", "#!/bin/sh\nexit 99\n", "setup: installing them needs root: apt-get update && apt-get install --no-install-recommends golang-go ca-certificates\n"},
		{"not Debian", "", "setup: these packages of Debian are missing, and there is no apt-get: install what they are called here: golang-go ca-certificates\n"},
	} {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			c := newClone(t)
			c.write(t, filepath.Join(c.standIn, "bin/id"), "#!/bin/sh\necho 1000\n")
			if shape.apt != "" {
				c.write(t, filepath.Join(c.standIn, "bin/apt-get"), shape.apt)
			}
			printed, err := c.make("run")
			if err == nil || !strings.Contains(printed, shape.want) {
				t.Errorf("make run: %v, want %q in\n%s", err, shape.want, printed)
			}
		})
	}
}
