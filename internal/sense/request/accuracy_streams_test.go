package request_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/lab/netns"
)

// parseTold reads the line of a stream, see told.
func parseTold(line string) (x told, ok bool) {
	n, _ := fmt.Sscan(line, &x.port, &x.id, &x.asked, &x.answered, &x.ended, &x.what, &x.first)
	return x, n >= 6
}

// call runs a program that calls, in a place, and gives what it says of its streams.
func (s *tlsServer) call(cmd *exec.Cmd) (log []told) {
	s.t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	s.must(err)
	s.must(netns.Do(s.place.ns, cmd.Start))
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if x, ok := parseTold(lines.Text()); ok {
			log = append(log, x)
		}
	}
	_, _ = io.Copy(io.Discard, out)
	s.must(cmd.Wait())
	return log
}

// since is what the server says of streams from a time of CLOCK_REALTIME on.
func (s *tlsServer) since(began int64) (log []told) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.log {
		if x.first+wall() >= began {
			log = append(log, x)
		}
	}
	return log
}

// sameStreams checks that each stream that an end says it had since began has one record of that
// side, with its label and outcome, at its times but for limit at the median; but that the first
// streams of each connection, so many of them, may have none of their own.
func (tr *trial) sameStreams(side observe.Side, log []told, began int64, first int, limit time.Duration) {
	tr.t.Helper()
	records, from := map[[2]int]*observe.Request{}, map[int]int{}
	for _, r := range tr.of(side) {
		if r.StartNS < began || r.Flags&(observe.FlagUnfinished) != 0 {
			continue
		}
		port := int(r.Peer.Port())
		if side == observe.Called {
			port = int(r.Local.Port())
		}
		k := [2]int{port, int(r.Seq)}
		switch {
		case r.Flags&observe.FlagMultiplexed == 0:
			// What came with the end of the handshake, or turns before streams.
			if int(r.Seq) > max(first, 1) {
				tr.errorf("%s: no stream: %s", side, describe(r, r.StartNS))
			}
			continue
		case records[k] != nil:
			tr.errorf("%s: two records of stream %v", side, k)
		}
		records[k] = r
		if n := from[port]; n == 0 || k[1] < n {
			from[port] = k[1]
		}
	}
	ahead := wall()
	var off [4][]time.Duration
	apart := 0
	for _, x := range log {
		k := [2]int{x.port, (x.id + 1) / 2}
		r := records[k]
		if r == nil {
			if n := from[x.port]; n == 0 || k[1] > n || k[1] > first {
				tr.errorf("%s: no record of %+v, those of its connection begin with number %d", side, x, n)
			}
			continue
		}
		apart++
		delete(records, k)
		tr.sameOutcome(r, x)
		begins := r.StartNS - ahead + r.Ledger[observe.AcceptWait] + r.Ledger[observe.TLS]
		asked := begins + r.Ledger[observe.Upload] + r.Ledger[observe.RecvWait]
		if side == observe.Called && x.first != 0 {
			off[0] = append(off[0], time.Duration(x.first-begins).Abs())
		}
		if x.answered == 0 {
			off[3] = append(off[3], time.Duration(x.ended-x.first-(r.TotalNS()-r.Ledger[observe.AcceptWait]-r.Ledger[observe.TLS])).Abs())
			continue
		}
		off[1] = append(off[1], time.Duration(x.asked-asked).Abs())
		off[2] = append(off[2], time.Duration(x.answered-x.asked-r.Ledger[observe.Server]-calledNetwork(r)).Abs())
		off[3] = append(off[3], time.Duration(x.ended-x.answered-r.Ledger[observe.Unaccounted]).Abs())
	}
	for _, r := range records {
		tr.errorf("%s: a record, and no stream: %s", side, describe(r, r.StartNS))
	}
	tr.t.Logf("%s: %d streams, %d with a record of their own", side, len(log), apart)
	for i, what := range []string{"begins", "asked", "server", "answer"} {
		if len(off[i]) == 0 {
			continue
		}
		slices.Sort(off[i])
		median, p99 := off[i][len(off[i])/2], off[i][len(off[i])*99/100]
		tr.t.Logf("%s: %s: median %v, p99 %v", side, what, median, p99)
		if median > limit {
			tr.errorf("%s: %s: median difference %v, p99 %v", side, what, median, p99)
		}
	}
}

// calledNetwork is what a caller's record has taken out of the time until the answer.
func calledNetwork(r *observe.Request) int64 {
	if r.Side == observe.Called {
		return r.Ledger[observe.Network]
	}
	return 0
}

// sameOutcome checks what became of a stream: what is path:STATUS, of HTTP (three digits) or
// of gRPC, or path:caller, path:server for who reset it.
func (tr *trial) sameOutcome(r *observe.Request, x told) {
	tr.t.Helper()
	path, status, _ := strings.Cut(x.what, ":")
	method, path, ok := strings.Cut(path, "/")
	if !ok {
		tr.t.Fatalf("%q is no path", x.what)
	}
	if method == "" {
		method = "POST"
	}
	label, want, http := method+" /"+path, observe.StatusOK, 200
	switch {
	case status == "caller" || status == "server":
		want, http = observe.StatusError, r.HTTP
		if r.Flags&observe.FlagReset == 0 || (r.Flags&observe.FlagUnanswered != 0) != (x.answered == 0) || (r.Flags&observe.FlagTruncated != 0) != (x.answered != 0) {
			tr.errorf("%s: %s: %s", r.Side, x.what, describe(r, r.StartNS))
		}
	case len(status) == 3:
		_, _ = fmt.Sscan(status, &http)
		if http >= 400 {
			want = observe.StatusError
		}
	default:
		label += " gRPC " + status
		if status != "0" {
			want = observe.StatusError
		}
	}
	if r.Label != label || r.Status != want || r.HTTP != http || r.PID == 0 || r.Flags&observe.FlagOverlapped != 0 {
		tr.errorf("%s: %s: want label %q, status %v, HTTP %d; label %q, status %v, HTTP %d: %s", r.Side, x.what, label, want, http, r.Label, r.Status, r.HTTP, describe(r, r.StartNS))
	}
}
