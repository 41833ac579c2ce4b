package container

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// engine is one that answers on a socket.
type engine struct {
	name   string // "docker", "podman"
	comm   string
	pid    int
	uid    uint32
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

// Bounds of the engines: that are asked, and processes that are looked at, which may
// call themselves what they like.
const (
	maxEngines    = 4
	maxCandidates = 256
	maxSockets    = 4 // of one process
)

// findEngines looks for engines among processes, those of root first: what they say
// counts more than what others do, who may call a program of theirs as they like.
func findEngines(b *budget.Budget, proc string, procs []Process) []engine {
	var candidates []engine
	for _, p := range procs {
		if p.Comm != "dockerd" && p.Comm != "podman" || len(candidates) == maxCandidates {
			continue
		}
		uid, _, ok := prefork.User(proc, p.PID)
		if ok {
			candidates = append(candidates, engine{comm: p.Comm, pid: p.PID, proc: proc, uid: uid})
		}
	}
	slices.SortStableFunc(candidates, func(a, b engine) int { return boolInt(a.uid != 0) - boolInt(b.uid != 0) })
	var out []engine
	for _, e := range candidates {
		if len(out) == maxEngines || b.Err() != nil {
			break
		}
		var sockets []string
		e.name, sockets = engineOf(e.comm, prefork.Args(proc, e.pid))
		for _, path := range sockets[:min(len(sockets), maxSockets)] {
			e.socket = path
			if st, err := e.root(b).Stat(path); err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
				out = append(out, e)
				break
			}
		}
	}
	return out
}

// root is the root directory of the engine.
func (e *engine) root(b *budget.Budget) rootfs.Root {
	return rootfs.At(fmt.Sprintf("%s/%d/root", e.proc, e.pid), b)
}

// dial connects to the socket of the engine, where its own user listens.
func (e *engine) dial(ctx context.Context, b *budget.Budget) (net.Conn, error) {
	conn, uid, err := e.root(b).Dial(ctx, e.socket)
	if err != nil {
		return nil, err
	}
	if e.uid != 0 && uid != e.uid {
		conn.Close()
		return nil, fmt.Errorf("%s: the socket is another user's", e.socket)
	}
	return conn, nil
}

// get asks for one path of the API and reads the answer with read.
func (e *engine) get(b *budget.Budget, path string, query url.Values, read func(*json.Decoder) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), min(apiTimeout, b.TimeLeft()))
	defer cancel()
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dial(ctx, b) }}
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
	if err := read(json.NewDecoder(io.LimitReader(b.Reader(resp.Body), maxBody))); err != nil {
		return fmt.Errorf("%s (pid %d): %s: %w", e.name, e.pid, path, err)
	}
	return nil
}
