package tlslib

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
)

// TestFind: functions of OpenSSL that Python has loaded, once; and what is said to
// encrypt where there are none, in a program of Go or not.
func TestFind(t *testing.T) {
	var f Finder
	p, err := f.Find(context.Background(), os.Getpid())
	if err != nil || len(p.IDs) != 0 || p.Other != "a TLS library without symbols" { // it has none
		t.Errorf("this test: %+v, %v", p, err)
	}
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleep.Process.Kill(); _ = sleep.Wait() })
	if p, err = f.Find(context.Background(), sleep.Process.Pid); err != nil || len(p.IDs) != 0 || p.Other != "a TLS library without symbols" {
		t.Errorf("sleep: %+v, %v", p, err)
	}

	python := exec.Command("/usr/bin/python3", "-c", "import ssl, time; print(ssl.OPENSSL_VERSION, flush=True); time.sleep(60)")
	out, err := python.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := python.Start(); err != nil {
		t.Skipf("SKIP: %v: finding OpenSSL is NOT tested", err)
	}
	t.Cleanup(func() { _ = python.Process.Kill(); _ = python.Wait() })
	if lines := bufio.NewScanner(out); !lines.Scan() {
		t.Skip("SKIP: Python has no ssl: finding OpenSSL is NOT tested")
	}
	for range 2 {
		p, err = f.Find(context.Background(), python.Process.Pid)
		if err != nil || len(p.IDs) != 1 || p.Other != "" {
			t.Fatalf("Python: %+v, %v", p, err)
		}
		if len(p.Files) == 0 {
			return // it is known
		}
		file := p.Files[0]
		defer file.Close()
		for _, k := range []Kind{Read, ReadEx, Write, WriteEx, Protocol, Free} {
			i := slices.IndexFunc(file.Sites, func(s Site) bool { return s.Kind == k })
			if i < 0 || file.Sites[i].Entry == 0 || (k == Free) != (len(file.Sites[i].Exits) == 0) {
				t.Errorf("%s: function %d: %+v", file.Name, k, file.Sites)
			}
		}
	}
	t.Error("a file is looked at twice")
}
