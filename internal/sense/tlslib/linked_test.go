package tlslib

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// linkedProgram has OpenSSL in itself, as programs have BoringSSL: none of its functions is exported.
const linkedProgram = `#include <openssl/ssl.h>
#include <stdio.h>
#include <unistd.h>

int main(int n, char **args)
{
	SSL_CTX *c = SSL_CTX_new(TLS_method());
	SSL *s = SSL_new(c);
	const unsigned char *name;
	unsigned length;
	size_t bytes;
	char b[1] = "";

	if (n > 1) {
		SSL_read(s, b, 1);
		SSL_read_ex(s, b, 1, &bytes);
		SSL_write(s, b, 1);
		SSL_write_ex(s, b, 1, &bytes);
		SSL_get0_alpn_selected(s, &name, &length);
	}
	puts("ready");
	fflush(stdout);
	pause();
	SSL_free(s);
}
`

// TestFindLinked: functions of an OpenSSL that is linked into a program are found by the program's
// symbols; and without these it is said by what it encrypts, and that it cannot be hooked.
func TestFindLinked(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "linked.c")
	if err := os.WriteFile(source, []byte(linkedProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, flag string
		found      bool
	}{{"symbols", "-g0", true}, {"stripped", "-s", false}} {
		t.Run(c.name, func(t *testing.T) {
			program := filepath.Join(dir, c.name)
			if out, err := exec.Command("gcc", "-O1", c.flag, "-o", program, source, "-l:libssl.a", "-l:libcrypto.a").CombinedOutput(); err != nil {
				t.Skipf("SKIP: %v (script/setup.sh test): OpenSSL that is linked in is NOT tested: %s", err, out)
			}
			cmd := exec.Command(program)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			if !bufio.NewScanner(out).Scan() {
				t.Fatal("the program does not start")
			}
			var f Finder
			p, err := f.Find(context.Background(), cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			if !c.found {
				if len(p.IDs) != 0 || p.Other != "a TLS library without symbols" {
					t.Errorf("%+v", p)
				}
				return
			}
			if len(p.Files) != 1 || p.Other != "" || p.Files[0].Name != program {
				t.Fatalf("%+v", p)
			}
			defer p.Files[0].Close()
			for _, k := range []Kind{Read, ReadEx, Write, WriteEx, Protocol, Free} {
				if !slices.ContainsFunc(p.Files[0].Sites, func(s Site) bool { return s.Kind == k && s.Entry != 0 && (k == Free) == (len(s.Exits) == 0) }) {
					t.Errorf("function %d: %+v", k, p.Files[0].Sites)
				}
			}
		})
	}
}
