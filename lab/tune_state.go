package lab

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// state is what slowray could have changed, by name.
type state map[string]string

// steady is what holds twice in a row: counters among the settings are left out.
func (t *tuning) steady(ctx context.Context) (state, error) {
	first, err := t.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	second, err := t.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(first, func(name, value string) bool { return second[name] != value })
	return first, nil
}

// snapshot reads the settings of the servers' network namespace, the host-wide one
// that the lab changes, the backlogs of the listeners, and all files of the
// sandbox that no server writes by itself.
func (t *tuning) snapshot(ctx context.Context) (state, error) {
	s := state{}
	settings, err := t.box.Server.Output(ctx, "sysctl", "-a", "-e", "-r", `^net\.`)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(settings) {
		// What is counted, and what a router learns by itself, is no setting.
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok && !strings.Contains(name, "_count") {
			s["sysctl "+name] = value
		}
	}
	limit, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	if err == nil {
		s["host nf_conntrack_max"] = strings.TrimSpace(string(limit))
	}
	listeners, err := t.box.Server.Output(ctx, "ss", "-Hltn")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(listeners) {
		if f := strings.Fields(line); len(f) > 3 { // state, Recv-Q, Send-Q, address
			s["backlog of "+f[3]] = f[2]
		}
	}
	return s, s.files(t.box.Dir, t.state)
}

// files adds the files below dir, but for what servers write and for slowray's own.
func (s state) files(dir, except string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case path == except, d.IsDir() && d.Name() == "tmp":
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		if ext := filepath.Ext(path); ext == ".log" || ext == ".out" || ext == ".pid" || strings.HasPrefix(d.Name(), "output-") || !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		owner := st.Sys().(*syscall.Stat_t)
		name, _ := filepath.Rel(dir, path)
		s["file "+name] = fmt.Sprintf("%v %d:%d\n%s", st.Mode(), owner.Uid, owner.Gid, data)
		return nil
	})
}

// differences names what is not in now as it is in s, and what files are new.
func (s state) differences(now state) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		is, ok := now[name]
		switch {
		case !ok:
			list = append(list, name+" is gone")
		case is != s[name]:
			list = append(list, name+difference(s[name], is))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if _, ok := s[name]; !ok && strings.HasPrefix(name, "file ") {
			list = append(list, name+" is new")
		}
	}
	return list
}

// difference is the first line that differs.
func difference(was, is string) string {
	a, b := strings.Split(was, "\n"), strings.Split(is, "\n")
	for n := range min(len(a), len(b)) {
		if a[n] != b[n] {
			return fmt.Sprintf(": %q, was %q", strings.TrimSpace(b[n]), strings.TrimSpace(a[n]))
		}
	}
	return ": has another length"
}
