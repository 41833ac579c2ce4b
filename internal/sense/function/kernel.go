package function

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tracefs is where tracepoints are described. When it is mounted nowhere a
// mount is made that belongs to a descriptor of this process and has no place
// in the tree, so that nothing is changed.
type tracefs struct {
	dir   string
	mount *os.File // kept: the mount ends with it; nil when it is mounted
}

func openTracefs() (*tracefs, error) {
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(dir + "/events"); err == nil {
			return &tracefs{dir: dir}, nil
		}
	}
	fd, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("tracefs: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.FsconfigCreate(fd); err != nil {
		return nil, fmt.Errorf("tracefs: %w", err)
	}
	mount, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("tracefs: %w", err)
	}
	f := os.NewFile(uintptr(mount), "tracefs")
	return &tracefs{dir: fmt.Sprintf("/proc/self/fd/%d", mount), mount: f}, nil
}

func (t *tracefs) close() {
	if t != nil && t.mount != nil {
		t.mount.Close()
	}
}

// tracepoints are all of them, as "group:name".
func (t *tracefs) tracepoints() ([]string, error) {
	groups, err := os.ReadDir(t.dir + "/events/")
	if err != nil {
		return nil, fmt.Errorf("tracefs: %w", unwrapPath(err))
	}
	var out []string
	for _, g := range groups {
		if !g.IsDir() {
			continue
		}
		names, err := os.ReadDir(filepath.Join(t.dir, "events", g.Name()))
		if err != nil {
			continue
		}
		for _, n := range names {
			if n.IsDir() {
				out = append(out, g.Name()+":"+n.Name())
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// id is the number by which perf_event_open knows a tracepoint.
func (t *tracefs) id(group, name string) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(t.dir, "events", group, name, "id"))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return 0, errors.New("it cannot be attached to")
		}
		return 0, unwrapPath(err)
	}
	return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
}

// fields are where the fields of a tracepoint's record lie.
func (t *tracefs) fields(group, name string) (map[string]place, []string) {
	data, err := os.ReadFile(filepath.Join(t.dir, "events", group, name, "format"))
	if err != nil {
		return nil, nil
	}
	return parseFormat(data)
}

// parseFormat reads lines such as
//
//	field:char comm[16];	offset:8;	size:16;	signed:0;
//
// and returns the fields but those that all records have, and their names in
// order.
func parseFormat(data []byte) (map[string]place, []string) {
	out := map[string]place{}
	var names []string
	sc := bufio.NewScanner(bytes.NewReader(data))
	for sc.Scan() {
		line, ok := strings.CutPrefix(strings.TrimSpace(sc.Text()), "field:")
		if !ok {
			continue
		}
		var declared string
		p := place{where: inRecord, second: noRegister}
		for i, part := range strings.Split(line, ";") {
			key, value, _ := strings.Cut(strings.TrimSpace(part), ":")
			switch {
			case i == 0:
				declared = strings.TrimSpace(part)
			case key == "offset":
				p.offset, _ = strconv.ParseInt(value, 10, 64)
			case key == "size":
				p.size, _ = strconv.Atoi(value)
			case key == "signed":
				p.signed = value == "1"
			}
		}
		kind, name := declared, ""
		if i := strings.LastIndexAny(declared, " *"); i >= 0 {
			kind, name = declared[:i+1], declared[i+1:]
		}
		name, array, isArray := strings.Cut(name, "[")
		switch {
		case strings.HasPrefix(name, "common_") || name == "":
			continue
		case strings.Contains(kind, "__data_loc"):
			p.where, p.size = inRecordText, 4
		case isArray && array != "]" && strings.Contains(kind, "char"):
			p.size, p.text = 1, true
		case p.size != 1 && p.size != 2 && p.size != 4:
			p.size = 8
		}
		if p.offset < 0 || p.offset > 4096 {
			continue
		}
		out[name] = p
		names = append(names, name)
	}
	return out, names
}

// haveKprobes says whether functions of the kernel can be watched.
func haveKprobes() bool {
	_, err := os.Stat("/sys/bus/event_source/devices/kprobe")
	return err == nil
}

// kernelFunctions are the names of functions of the kernel, by /proc/kallsyms.
func kernelFunctions() ([]string, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseFunctions(f)
}

// parseFunctions reads the names of functions in a file in the form of /proc/kallsyms.
func parseFunctions(r io.Reader) ([]string, error) {
	var out []string
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) >= 3 && (fields[1] == "t" || fields[1] == "T") && !strings.Contains(fields[2], ".") {
			out = append(out, fields[2])
		}
	}
	slices.Sort(out)
	return slices.Compact(out), sc.Err()
}
