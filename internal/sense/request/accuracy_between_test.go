package request_test

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/lab/netns"
)

// TestTLSBetweenRequests: new keys (TLS 1.3) between requests are none, and no part of the next
// one; another handshake on the same connection (TLS 1.2) looks like two, as docs/ledger-tls.md
// says, and changes nothing of the others.
func TestTLSBetweenRequests(t *testing.T) {
	const python = "/usr/bin/python3"
	for _, name := range []string{"openssl", python} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("SKIP: %v (script/setup.sh test): key updates and renegotiation of TLS are NOT tested", err)
		}
	}
	for _, c := range []struct{ name, version, command string }{
		{"nothing", "-tls1_3", ""}, {"own new keys", "-tls1_3", "k\n"}, {"new keys of both ends", "-tls1_3", "K\n"}, {"renegotiation", "-tls1_2", renegotiate},
	} {
		t.Run(c.name, func(t *testing.T) {
			measure(t, func(tr *trial) {
				cert, key := writeCertificate(tr, tr.t.TempDir())
				betweenRequests(tr, exec.Command(python, "testdata/tlslines.py", cert, key), c.version, c.command)
			})
		})
	}
}

// renegotiate has s_client begin a handshake.
const renegotiate = "R\n"

// between is how long a client pauses before and after what it says between requests.
const between = 120 * time.Millisecond

func betweenRequests(tr *trial, server *exec.Cmd, version, command string) {
	const requests = 4
	place := tr.place()
	start := func(cmd *exec.Cmd) (io.Writer, *bufio.Reader) {
		in, err := cmd.StdinPipe()
		tr.must(err)
		out, err := cmd.StdoutPipe()
		tr.must(err)
		tr.must(netns.Do(place.ns, cmd.Start))
		tr.cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return in, bufio.NewReader(out)
	}
	_, says := start(server)
	port, err := says.ReadString('\n')
	tr.must(err)
	tr.record(request.Options{})
	in, out := start(exec.Command("openssl", "s_client", "-connect", "127.0.0.1:"+strings.TrimSpace(port), version))
	var worked []int64
	for i := range requests {
		if i > 0 && command != "" {
			time.Sleep(between)
			_, err := io.WriteString(in, command)
			tr.must(err)
		}
		time.Sleep(between)
		line := fmt.Sprintf("line %d, as long as a request is at the least, which is longer than a remark: that has at the most 96 bytes\n", i)
		_, err := io.WriteString(in, line)
		tr.must(err)
		for got := ""; got != line; {
			got, err = out.ReadString('\n')
			tr.must(err)
		}
		var asked, answered int64
		said, err := says.ReadString('\n')
		tr.must(err)
		_, err = fmt.Sscan(said, &asked, &answered)
		tr.must(err)
		worked = append(worked, answered-asked)
	}
	_, err = io.WriteString(in, "Q\n")
	tr.must(err)
	time.Sleep(settle)
	tr.finish()
	slices.Sort(worked)
	for _, side := range []observe.Side{observe.Served, observe.Called} {
		var total []int64
		all := tr.of(side)
		if command == renegotiate {
			// Each flight of the client's looks like a request; those of lines are as long as the first.
			flights := len(all)
			all = slices.DeleteFunc(all, func(r *observe.Request) bool { return r.BytesIn+r.BytesOut != all[0].BytesIn+all[0].BytesOut })
			if flights -= len(all); flights != 2*(requests-1) {
				tr.errorf("%s: %d flights, want %d", side, flights, 2*(requests-1))
			}
		}
		for _, r := range all {
			took := r.TotalNS() - r.Ledger[observe.TLS] - r.Ledger[observe.AcceptWait]
			total = append(total, took)
			if took > int64(between) {
				tr.errorf("%s: took %v with a pause in it: %s", side, time.Duration(took), describe(r, r.StartNS))
			}
		}
		if len(total) != requests {
			tr.errorf("%s: %d requests, want %d", side, len(total), requests)
			for _, r := range tr.of(side) {
				tr.failures = append(tr.failures, describe(r, r.StartNS))
			}
			continue
		}
		// Each contains what the server worked on it.
		slices.Sort(total)
		for i := range total {
			if total[i] < worked[i] {
				tr.errorf("%s: took %v, the server worked %v", side, time.Duration(total[i]), time.Duration(worked[i]))
			}
		}
	}
}
