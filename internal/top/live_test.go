package top

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/sense/request"
)

// terminal is an output that several goroutines may write to.
type terminal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *terminal) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *terminal) has(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Contains(o.b.Bytes(), []byte(text))
}

type broken struct{ script }

func (*broken) Flush() error { return errors.New("the kernel said no") }

func TestLive(t *testing.T) {
	live := func(ctx context.Context, src request.Source, in io.Reader, out io.Writer) chan error {
		done := make(chan error, 1)
		go func() { done <- Live(ctx, streamOf(t, src), Options{Every: minEvery, Master: master}, in, out) }()
		return done
	}
	ended := func(t *testing.T, done chan error) error {
		t.Helper()
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Second):
			t.Fatal("still running")
			return nil
		}
	}
	source := func() *script {
		return &script{waiting: scene(time.Now()), stats: request.Stats{Weight: 1}}
	}
	t.Run("quit", func(t *testing.T) {
		in, keys := io.Pipe()
		out := new(terminal)
		done := live(t.Context(), source(), in, out)
		for deadline := time.Now().Add(10 * time.Second); !out.has("10.0.0.7:3306"); {
			if time.Now().After(deadline) {
				t.Fatalf("no table: %q", out.b.String())
			}
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := keys.Write([]byte("q")); err != nil {
			t.Fatal(err)
		}
		if err := ended(t, done); err != nil {
			t.Error(err)
		}
		if !out.has("\x1b[?1049l") {
			t.Error("the terminal was not put back")
		}
	})
	t.Run("ended from outside", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		in, _ := io.Pipe()
		if err := ended(t, live(ctx, source(), in, new(terminal))); err != nil {
			t.Error(err)
		}
	})
	t.Run("source fails", func(t *testing.T) {
		in, _ := io.Pipe()
		if err := ended(t, live(t.Context(), new(broken), in, new(terminal))); err == nil || err.Error() != "the kernel said no" {
			t.Errorf("error %v", err)
		}
	})
}

func TestOnce(t *testing.T) {
	src := &script{waiting: scene(time.Now()), stats: request.Stats{Weight: 1}}
	snap, err := Once(t.Context(), streamOf(t, src), Options{Every: minEvery, Master: master})
	if err != nil || len(snap.Endpoints) != 3 || !src.all || snap.Seconds < 0.09 {
		t.Errorf("%d endpoints in %g s, error %v", len(snap.Endpoints), snap.Seconds, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // Ctrl-C still reports
	if _, err := Once(ctx, streamOf(t, src), Options{Every: time.Hour}); err != nil {
		t.Error(err)
	}
}
