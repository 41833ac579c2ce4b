package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A directory that is moved or removed while it is written to is begun anew: what
// comes then is where it belongs, and it is reported once.
func TestDirectoryThatVanishes(t *testing.T) {
	for name, vanish := range map[string]func(dir string) error{
		"moved":         func(dir string) error { return os.Rename(dir, dir+".away") },
		"removed":       os.RemoveAll,
		"logs removed":  func(dir string) error { return os.RemoveAll(filepath.Join(dir, openDir)) },
		"log removed":   func(dir string) error { return os.Remove(filepath.Join(dir, logPath(kindRequests, 1))) },
		"lock replaced": func(dir string) error { return os.WriteFile(filepath.Join(dir, "x"), nil, 0o600) },
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "history")
			c := &clock{t: noon}
			s := openAt(t, dir, Options{}, c)
			add := func(n int) {
				r := numbered(n)
				s.AddRequest(&r)
			}
			add(0)
			must(t, s.Sync())
			must(t, vanish(dir))
			if name == "lock replaced" {
				must(t, os.Rename(filepath.Join(dir, "x"), filepath.Join(dir, lockName)))
			}
			add(1)
			text := oneLineOf(t, s.Sync())
			if !strings.Contains(text, dir) || s.Stats().LastError == "" {
				t.Errorf("told: %s", text)
			}
			add(2)
			must(t, s.Sync())
			if text := s.Stats().LastError; text != "" {
				t.Errorf("still told: %s", text)
			}
			if _, err := Open(dir, Options{}); err == nil {
				t.Error("another writer is let in")
			}
			for range 2 { // in the log, and in a file
				list := readAll(t, dir, Query{})
				if n := len(list); n < 2 || list[n-2] != stored(numbered(1)) || list[n-1] != stored(numbered(2)) {
					t.Errorf("%d requests are there", n)
				}
				if s != nil {
					must(t, s.Close())
					s = nil
				}
			}
		})
	}
}

// Where it cannot be begun anew that is reported, until it can.
func TestDirectoryThatBecomesAFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	r := numbered(0)
	s.AddRequest(&r)
	must(t, s.Sync())
	must(t, os.RemoveAll(dir))
	must(t, os.WriteFile(dir, nil, 0o600))
	for range 2 {
		s.AddRequest(&r)
		oneLineOf(t, s.Sync())
	}
	must(t, os.Remove(dir))
	s.AddRequest(&r)
	oneLineOf(t, s.Sync())
	must(t, s.Sync())
	must(t, s.Close())
	if n := len(readAll(t, dir, Query{})); n != 1 {
		t.Errorf("%d requests are there, want 1", n)
	}
}
