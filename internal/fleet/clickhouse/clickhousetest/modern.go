package clickhousetest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

//go:embed front.py
var front []byte

// Modern is the engine of a present ClickHouse.
type Modern struct {
	HTTP string // host:port of its HTTP interface
	proc *process
}

// StartModern starts chdb with its data below dir, and waits until it answers.
// It takes one query at a time.
func StartModern(ctx context.Context, dir string) (*Modern, error) {
	python, err := fromRoot(".venv", "bin", "python")
	if err != nil {
		return nil, err
	}
	if err := exec.CommandContext(ctx, python, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('chdb'))").Run(); err != nil {
		return nil, fmt.Errorf("chdb in .venv: %w", ErrMissing)
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	script := filepath.Join(dir, "front.py")
	if err := os.WriteFile(script, front, 0o600); err != nil {
		return nil, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	m := &Modern{HTTP: fmt.Sprintf("127.0.0.1:%d", ports[0])}
	m.proc, err = start(exec.Command(python, script, fmt.Sprint(ports[0]), filepath.Join(dir, "data")), filepath.Join(dir, "output.log"))
	if err != nil {
		return nil, err
	}
	err = until(ctx, m.proc, func() bool {
		resp, err := http.Get("http://" + m.HTTP + "/ping")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// URL is where slowray fleet init and slowray record --to find a database.
func (m *Modern) URL(database string) string {
	return "clickhouse://" + m.HTTP + "/" + database
}

// Close kills the engine.
func (m *Modern) Close() { m.proc.kill() }

// ModernForTest is StartModern for the length of a test, which is skipped where
// chdb is missing.
func ModernForTest(tb testing.TB) *Modern {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	m, err := StartModern(ctx, tempDir(tb))
	if errors.Is(err, ErrMissing) {
		tb.Skip("SKIP: " + err.Error())
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(m.Close)
	return m
}
