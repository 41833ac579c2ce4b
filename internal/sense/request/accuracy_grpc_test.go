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

// TestStreamsOfGRPC: each stream of gRPC under Go's TLS, also one that lasts, is cancelled, or is
// ended by the server while the caller has more to say, has a record at either end, with method,
// status and times as that end's own log has them.
func TestStreamsOfGRPC(t *testing.T) { measure(t, streamsOfGRPC) }

func streamsOfGRPC(tr *trial) {
	program := filepath.Join(tr.t.TempDir(), "grpctls")
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "./testdata/grpctls").CombinedOutput(); err != nil {
		tr.t.Skipf("SKIP: %v: streams of gRPC under TLS are NOT tested: %s", err, out)
	}
	cert, key := writeCertificate(tr, tr.t.TempDir())
	s := tr.startTLS(exec.Command(program, "serve", cert, key))
	caller := func(args ...string) *exec.Cmd {
		return exec.Command(program, append([]string{"call", fmt.Sprint(s.addr.(*net.TCPAddr).Port)}, args...)...)
	}
	tr.record(request.Options{Labels: true})
	for deadline := time.Now().Add(3 * time.Minute); tr.streams.Load() == 0; {
		s.call(caller("1", "4", "3"))
		if time.Now().After(deadline) {
			tr.t.Fatalf("gRPC under TLS, and no stream was distinguished: %v", tr.recorder.Stats().Missing)
		}
	}
	time.Sleep(2 * settle)
	began := time.Now().UnixNano()
	const connections, atOnce, turns = 3, 14, 5
	called := s.call(caller(fmt.Sprint(connections), fmt.Sprint(atOnce), fmt.Sprint(turns), "long"))
	time.Sleep(settle)
	price := tr.recorder.ProbePrice()
	tr.finish()

	served := s.since(began)
	// The ends say the same of how streams ended.
	for _, log := range [][]told{served, called} {
		ends := map[string]int{}
		for _, x := range log {
			ends[strings.TrimPrefix(x.what, "/slowray.Test/")]++
		}
		const each = connections * atOnce * turns / 7
		for what, want := range map[string]int{"Get:0": 3 * each, "Fail:5": each, "Big:0": each, "Many:0": each, "Talk:0": each + connections, "Hang:caller": connections, "Abort:14": connections} {
			if ends[what] != want {
				tr.t.Fatalf("the programs had %v, want %d of %s", ends, want, what)
			}
		}
	}
	// Of what it reads the program's log knows after the probe that tells slowray, which the
	// program waits for; TestStreamsOfKeys holds the same moments to packets.
	tr.sameStreams(observe.Served, streamLog{said: served, limit: medianLimit + price}, began)
	tr.sameStreams(observe.Called, streamLog{said: called, limit: medianLimit, arrives: true}, began)
	for _, side := range []observe.Side{observe.Served, observe.Called} {
		lasting := 0
		for _, r := range tr.of(side) {
			if r.StartNS >= began && r.Flags&observe.FlagUnfinished != 0 && r.Label == "POST /slowray.Test/Talk" {
				lasting++
			}
		}
		if lasting != connections {
			tr.errorf("%s: %d streams were reported while they lasted, want %d", side, lasting, connections)
		}
	}
}
