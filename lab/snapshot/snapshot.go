package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slowray/slowray/lab/netns"
)

// Scope says what to look at next to the host itself.
type Scope struct {
	Namespaces []int    // network namespaces, by a process in each
	PIDs       []int    // limits, CPUs, nice values and pipes of processes
	Cgroups    []string // limits of control groups and those below, by directory
	Paths      []string // files, and all files below directories: bytes, mode, owner, time of change
}

// Snapshot is how everything is at one moment: a value for each setting.
type Snapshot struct {
	values  map[string]string
	moving  map[string]bool // settings that are not compared
	passing map[string]bool // settings that may come and go, and are compared while they are there
}

// Settle leaves out of s what is not the same in later, though nothing was
// changed: logs, what servers write by themselves.
func (s *Snapshot) Settle(later *Snapshot) {
	s.moving = map[string]bool{}
	for key, value := range s.values {
		if now, ok := later.values[key]; !ok || now != value {
			s.moving[key] = true
		}
	}
	for key := range later.values {
		if _, ok := s.values[key]; !ok {
			s.moving[key] = true
		}
	}
}

// Take looks at everything. What is not there, such as a tool of firewalls or
// a process that has ended, has no lines; only what could not be looked at at all
// is an error. It needs root.
func Take(ctx context.Context, scope Scope) (*Snapshot, error) {
	s := &Snapshot{values: map[string]string{}, passing: map[string]bool{}}
	err := s.namespace(ctx, "host", "/proc/thread-self/ns/net", true)
	for _, pid := range scope.Namespaces {
		err = errors.Join(err, s.namespace(ctx, fmt.Sprintf("netns of %d", pid), fmt.Sprintf("/proc/%d/ns/net", pid), false))
	}
	s.sysfs()
	for _, dir := range scope.Cgroups {
		err = errors.Join(err, s.cgroups(dir))
	}
	for _, pid := range scope.PIDs {
		s.process(pid)
	}
	for _, path := range scope.Paths {
		err = errors.Join(err, s.files(path))
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return s, nil
}

func (s *Snapshot) set(value string, key ...string) {
	s.values[strings.Join(key, " ")] = strings.TrimSpace(value)
}

// setPassing sets what may come and go by itself, if passing.
func (s *Snapshot) setPassing(passing bool, value string, key ...string) {
	s.set(value, key...)
	if passing {
		s.passing[strings.Join(key, " ")] = true
	}
}

// namespace looks at a network namespace, from a thread inside.
func (s *Snapshot) namespace(ctx context.Context, name, path string, host bool) error {
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return netns.Do(ns, func() error {
		root := "/proc/sys/net"
		if host {
			root = "/proc/sys"
		}
		s.sysctls(name, root)
		s.links(ctx, name)
		s.firewall(ctx, name)
		s.backlogs(ctx, name, host)
		return nil
	})
}

// Text is one line for each setting, in order.
func (s *Snapshot) Text() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		fmt.Fprintf(&b, "%s = %s\n", key, s.values[key])
	}
	return b.String()
}

// Len is the number of settings.
func (s *Snapshot) Len() int { return len(s.values) }

// Diff gives what is not the same, one line for each setting, in order.
func Diff(before, after *Snapshot) []string {
	var list []string
	for key, was := range before.values {
		now, ok := after.values[key]
		switch {
		case before.moving[key] || !ok && before.passing[key]:
		case !ok:
			list = append(list, fmt.Sprintf("%s: was %s, is gone", key, was))
		case now != was:
			list = append(list, fmt.Sprintf("%s: was %s, is %s", key, was, now))
		}
	}
	for key, now := range after.values {
		if _, ok := before.values[key]; !ok && !before.moving[key] && !after.passing[key] {
			list = append(list, fmt.Sprintf("%s: is new: %s", key, now))
		}
	}
	slices.Sort(list)
	return list
}

// read gives a small file's text; false where it cannot be read.
func read(path string) (string, bool) {
	data, err := os.ReadFile(path)
	return string(data), err == nil
}

// globbed sets all files that a pattern matches.
func (s *Snapshot) globbed(kind, pattern string) {
	paths, _ := filepath.Glob(pattern)
	for _, path := range paths {
		if text, ok := read(path); ok {
			s.set(text, kind, path)
		}
	}
}
