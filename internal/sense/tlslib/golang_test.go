package tlslib

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
)

const goProgram = `package main

import (
	"fmt"
	"net/http"
)

func main() { fmt.Println(http.ListenAndServeTLS("127.0.0.1:0", "", "", nil)) }
`

// TestGoSites: in programs of Go, stripped or not, of either architecture.
func TestGoSites(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(goProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, arch, flags string }{
		{"amd64", "amd64", ""}, {"arm64", "arm64", ""},
		{"stripped amd64", "amd64", "-s -w"}, {"stripped arm64", "arm64", "-s -w"},
		{"stripped, with C", runtime.GOARCH, "-s -w -linkmode external"},
	} {
		t.Run(c.name, func(t *testing.T) {
			withC := "0"
			if strings.Contains(c.flags, "external") {
				if _, err := exec.LookPath("gcc"); err != nil {
					t.Skipf("SKIP: %v: stripped programs with C in them are NOT tested", err)
				}
				withC = "1"
			}
			path := filepath.Join(dir, "program")
			cmd := exec.Command("go", "build", "-ldflags", c.flags, "-o", path, source)
			cmd.Env = append(os.Environ(), "GOARCH="+c.arch, "CGO_ENABLED="+withC)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			goSitesOf(t, path)
		})
	}
}

// TestGoSitesOf looks at programs that are there, of other versions of Go:
// SLOWRAY_GO_PROGRAMS=PATH:PATH.
func TestGoSitesOf(t *testing.T) {
	paths := filepath.SplitList(os.Getenv("SLOWRAY_GO_PROGRAMS"))
	if len(paths) == 0 {
		t.Skip("SKIP: SLOWRAY_GO_PROGRAMS is not set: programs of other versions of Go are NOT looked at")
	}
	for _, path := range paths {
		goSitesOf(t, path)
	}
}

func goSitesOf(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	image, err := elffile.New(budget.New(context.Background(), budget.Limits{Bytes: 64 << 20, Unpacked: 64 << 20, Nodes: 1 << 20, Wall: time.Minute}), f)
	if err != nil {
		t.Fatal(err)
	}
	sites, why := goSites(image)
	n := map[Kind]int{}
	member := uint16(0)
	for _, s := range sites {
		n[s.Kind] += max(1, len(s.Exits))
		member = max(member, s.Member)
	}
	if why != "" || n[GoRead] < 3 || n[GoWrite] != 1 || n[GoHandshake] != 2 || n[GoHTTP2] < 1 || member < 256 || member > 512 {
		t.Errorf("%s: %v, receiver at %d: %q", image.GoVersion(), n, member, why)
	}
}
