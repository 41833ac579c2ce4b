// Package threadcontexttest is a program that publishes the contexts of its threads (OTEP
// 4947), for tests: in each way in which a thread may have its variable.
package threadcontexttest

import (
	"bufio"
	_ "embed" // the program's source
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

//go:embed testdata/service.c
var service []byte

//go:embed testdata/variable.c
var variable []byte

// Variants are the ways in which a thread may have its variable: in the program, or in a
// library that is linked to it or opened later, by each of the models of access.
var Variants = []string{"program", "linked", "linked initial-exec", "linked descriptors", "opened", "opened descriptors", "opened large descriptors"}

// Note is a request, or a call, that the service noted.
type Note struct {
	Side string // "served", "called"
	Port uint16 // of the client's end
	For  uint16 // the same of the request for which a call was made; of a request its own
	Seq  uint32 // its number on its connection, from 1
	Span string // hexadecimal digits of the trace and the span; "-" none
}

// Service is a running one.
type Service struct {
	PID     int
	Port    int
	Slot    uint64 // where the main thread has its variable
	Pointer uint64 // the main thread's thread pointer

	stdin  io.Closer
	stdout *bufio.Reader
}

// Start builds and starts a variant, that calls a service at a port of loopback (0 = none).
// It is ended with the test. Without a compiler the test is skipped.
func Start(t testing.TB, variant string, other int) *Service {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("SKIP: needs gcc: run script/setup.sh test")
	}
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string][]byte{"service.c": service, "variable.c": variable} {
		if err := os.WriteFile(in(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	compile := func(args ...string) {
		cmd := exec.Command("gcc", append([]string{"-O2", "-Wall", "-Werror", "-pthread"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	args := []string{fmt.Sprint(other)}
	if variant == "program" {
		compile("-DLINKED", "-o", "service", "service.c", "variable.c", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1")
	} else {
		library := []string{"-fPIC", "-shared", "-o", "libvariable.so", "variable.c"}
		switch how := strings.TrimPrefix(strings.TrimPrefix(variant, "linked"), "opened"); how {
		case " initial-exec":
			library = append(library, "-ftls-model=initial-exec")
		case " descriptors":
			library = append(library, descriptors...)
		case " large descriptors":
			library = append(append(library, descriptors...), "-DLARGE")
		}
		compile(library...)
		if strings.HasPrefix(variant, "linked") {
			compile("-DLINKED", "-o", "service", "service.c", "-L.", "-lvariable", "-Wl,-rpath,$ORIGIN")
		} else {
			compile("-o", "service", "service.c", "-ldl")
			args = append(args, in("libvariable.so"))
		}
	}
	cmd := exec.Command(in("service"), args...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	s := &Service{PID: cmd.Process.Pid, stdin: stdin, stdout: bufio.NewReader(stdout)}
	line, err := s.stdout.ReadString('\n')
	if _, scan := fmt.Sscanf(line, "%d %v %v", &s.Port, &s.Slot, &s.Pointer); err != nil || scan != nil {
		t.Fatalf("service says %q: %v %v", line, err, scan)
	}
	return s
}

// Notes ends the service, and is what it noted.
func (s *Service) Notes(t testing.TB) (notes []Note) {
	t.Helper()
	s.stdin.Close()
	for {
		line, err := s.stdout.ReadString('\n')
		if err == io.EOF {
			return notes
		}
		var n Note
		if _, scan := fmt.Sscan(line, &n.Side, &n.Port, &n.For, &n.Seq, &n.Span); err != nil || scan != nil {
			t.Fatalf("service says %q: %v %v", line, err, scan)
		}
		notes = append(notes, n)
	}
}
