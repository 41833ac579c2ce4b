package container

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// engine is one that answers on a socket.
type engine struct {
	name   string // "docker", "podman"
	pid    int
	socket string // as the engine sees it
	proc   string
}

const (
	apiTimeout = 400 * time.Millisecond // for one answer; an engine that hangs costs no more
	maxBody    = 4 << 20
)

// engineOf tells the engine that a process is, by its name and arguments, with
// the sockets that it may answer on.
func engineOf(comm string, args []string) (name string, sockets []string) {
	switch {
	case comm == "dockerd":
		sockets = hostSockets(args)
		if len(sockets) == 0 {
			sockets = []string{"/run/docker.sock", "/var/run/docker.sock"}
		}
		return "docker", sockets
	case comm == "podman" && slices.Contains(args, "service"):
		for _, a := range args {
			if path, ok := strings.CutPrefix(a, "unix://"); ok {
				sockets = append(sockets, path)
			}
		}
		if len(sockets) == 0 {
			sockets = []string{"/run/podman/podman.sock"}
		}
		return "podman", sockets
	}
	return "", nil
}

// hostSockets picks the unix sockets of -H and --host (dockerd(8)).
func hostSockets(args []string) []string {
	var out []string
	for i, a := range args {
		v, ok := strings.CutPrefix(a, "--host=")
		if !ok {
			v, ok = strings.CutPrefix(a, "-H=")
		}
		if !ok && (a == "-H" || a == "--host") && i+1 < len(args) {
			v, ok = args[i+1], true
		}
		if path, unix := strings.CutPrefix(v, "unix://"); ok && unix {
			out = append(out, path)
		}
	}
	return out
}

// findEngines looks for engines among processes.
func findEngines(proc string, procs []Process) []engine {
	var out []engine
	for _, p := range procs {
		if p.Comm != "dockerd" && p.Comm != "podman" {
			continue
		}
		f, err := os.Open(filepath.Join(proc, strconv.Itoa(p.PID), "cmdline"))
		if err != nil {
			continue
		}
		b, _ := io.ReadAll(io.LimitReader(f, 64<<10))
		f.Close()
		name, sockets := engineOf(p.Comm, strings.Split(string(b), "\x00"))
		for _, path := range sockets {
			e := engine{name: name, pid: p.PID, socket: path, proc: proc}
			if e.there() && !slices.ContainsFunc(out, func(o engine) bool { return o.pid == e.pid }) {
				out = append(out, e)
			}
		}
		if len(out) >= maxEngines {
			break
		}
	}
	return out
}

const maxEngines = 4

// path is the socket as slowray reaches it.
func (e *engine) path() string {
	return fmt.Sprintf("%s/%d/root%s", e.proc, e.pid, e.socket)
}

func (e *engine) there() bool {
	st, err := os.Stat(e.path())
	return err == nil && st.Mode()&os.ModeSocket != 0
}

// dial connects to the socket through a descriptor: the path of a socket in an
// address has at most 107 bytes (unix(7)).
func (e *engine) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	fd, err := unix.Open(e.path(), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var d net.Dialer
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
}

// get asks for one path of the API and reads the answer with read.
func (e *engine) get(ctx context.Context, path string, query url.Values, read func(*json.Decoder) error) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	t := &http.Transport{DialContext: e.dial, DisableKeepAlives: true}
	defer t.CloseIdleConnections()
	u := url.URL{Scheme: "http", Host: "engine", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return fmt.Errorf("%s (pid %d): %w", e.name, e.pid, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s (pid %d): %s: %s", e.name, e.pid, path, resp.Status)
	}
	if err := read(json.NewDecoder(io.LimitReader(resp.Body, maxBody))); err != nil {
		return fmt.Errorf("%s (pid %d): %s: %w", e.name, e.pid, path, err)
	}
	return nil
}
