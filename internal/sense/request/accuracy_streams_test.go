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

// settings are the turns that look like some where a connection begins: SETTINGS that are answered.
const settings = 2

// streamLog is what an end says of its streams.
type streamLog struct {
	said  []told
	first int // streams of each connection, the first ones, that may have no record of their own
	limit time.Duration
	// within says that times are those of handlers (served), which are between those of frames, or
	// of who wants the answer (called), between which those of frames are.
	within bool
	// arrives says that an answer is there before the program reads it, which is when it says that it was:
	// TestStreamsOfKeys has the packets.
	arrives bool
}

// sameStreams checks that each stream that an end says it had since began has one record of that
// side, with its label and outcome, at its times but for the limit at the median. It gives the
// records by the caller's port and number.
func (tr *trial) sameStreams(side observe.Side, log streamLog, began int64) (same map[[2]int]*observe.Request) {
	tr.t.Helper()
	same = map[[2]int]*observe.Request{}
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
			// Before its socket is known a connection has turns.
			if int(r.Seq) > log.first+settings {
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
	for _, x := range tr.numbered(log.said, records) {
		k := [2]int{x.port, (x.id + 1) / 2}
		r := records[k]
		if r == nil {
			if n := from[x.port]; n == 0 || k[1] > n || k[1] > log.first {
				tr.errorf("%s: no record of %+v, those of its connection begin with number %d", side, x, n)
			}
			continue
		}
		same[k] = r
		delete(records, k)
		tr.sameOutcome(r, x)
		begins, asked, answer, end := moments(r)
		begins, asked, answer, end = begins-ahead, asked-ahead, answer-ahead, end-ahead
		// Who resets a stream says so before the frame goes out. The clocks drift.
		const drift = int64(p99Limit)
		if log.within && x.answered != 0 && (side == observe.Served && (x.asked+drift < asked || x.answered > answer+drift) || side == observe.Called && (x.first > begins+drift || x.ended+drift < end)) {
			tr.errorf("%s: the program says %+v: begins %d, asked %d, answered %d, over %d in its record", side, x, begins, asked, answer, end)
		}
		if side == observe.Called && x.first != 0 {
			off[0] = append(off[0], time.Duration(x.first-begins).Abs())
		}
		if x.answered == 0 {
			off[3] = append(off[3], time.Duration(x.ended-x.first-(end-begins)).Abs())
			continue
		}
		off[1] = append(off[1], time.Duration(x.asked-asked).Abs())
		if log.arrives {
			if answer > x.answered+drift || end > x.ended+drift {
				tr.errorf("%s: the program says %+v: answered %d, over %d in its record", side, x, answer, end)
			}
			continue
		}
		off[2] = append(off[2], time.Duration(x.answered-x.asked-(answer-asked)).Abs())
		off[3] = append(off[3], time.Duration(x.ended-x.answered-(end-answer)).Abs())
	}
	for _, r := range records {
		tr.errorf("%s: a record, and no stream: %s", side, describe(r, r.StartNS))
	}
	tr.t.Logf("%s: %d streams, %d with a record of their own", side, len(log.said), len(same))
	for i, what := range []string{"begins", "asked", "server", "answer"} {
		if len(off[i]) == 0 {
			continue
		}
		slices.Sort(off[i])
		median, p99 := off[i][len(off[i])/2], off[i][len(off[i])*99/100]
		tr.t.Logf("%s: %s: median %v, p99 %v", side, what, median, p99)
		if !log.within && median > log.limit {
			tr.errorf("%s: %s: median difference %v, p99 %v", side, what, median, p99)
		}
	}
	return same
}

// numbered gives streams that have no number that of the record with their label, which no
// other has; without one the number that the caller has put last into the path.
func (tr *trial) numbered(log []told, records map[[2]int]*observe.Request) []told {
	labels := map[string]int{}
	for k, r := range records {
		if _, more := labels[r.Label]; more {
			labels[r.Label] = 0
			continue
		}
		labels[r.Label] = 2*k[1] - 1
	}
	for i := range log {
		x := &log[i]
		if x.id != 0 {
			continue
		}
		path, _, _ := strings.Cut(x.what, ":")
		x.id = labels[strings.Replace(path, "/", " /", 1)]
		if n := 0; x.id == 0 {
			_, err := fmt.Sscan(path[strings.LastIndexByte(path, '/')+1:], &n)
			tr.must(err)
			x.id = 2*n + 1
		}
	}
	return log
}

// moments are those of a stream: HEADERS, all of it asked (and read, served), HEADERS of the
// answer and its last frame, as the end of the record saw them.
func moments(r *observe.Request) (begins, asked, answer, end int64) {
	begins = r.StartNS + r.Ledger[observe.AcceptWait] + r.Ledger[observe.TLS]
	asked = begins + r.Ledger[observe.Upload] + r.Ledger[observe.RecvWait]
	answer = asked + r.Ledger[observe.Server]
	if r.Side == observe.Called { // taken out of the wait for the answer
		answer += r.Ledger[observe.Network]
	}
	return begins, asked, answer, answer + r.Ledger[observe.Unaccounted]
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
