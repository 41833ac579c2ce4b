package kube

import (
	"bufio"
	"context"
	_ "embed" // the manifest
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

//go:embed testdata/roll.yaml
var rollManifest []byte

// rolled is how many requests are compared with what the pods know. Some more are reported:
// the kubelet's probes.
const rolled = 100_000

// served is what a server wrote of a request.
type served struct {
	at     int64 // ns since 1970
	by, of string
}

type connection struct{ local, peer netip.AddrPort }

// TestRoll rolls both ends while requests run: each request that slowray reports is of the
// pods that the servers say. The node has so few addresses that they are used again.
func TestRoll(t *testing.T) {
	slowray := buildSlowray(t)
	// Not those of other nodes on this machine.
	const pods = "10.245.7.0/28"
	n := startNode(t, Options{PodCIDR: pods})
	c, err := n.Client()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := c.Apply(ctx, rollManifest); err != nil {
		t.Fatal(err)
	}
	if err := c.RolledOut(ctx, "roll", "web", "client"); err != nil {
		t.Fatal(err)
	}
	cmd := n.Command(ctx, slowray, "requests", "--side", "served", "--peer", pods, "--format", "json", "--budget", "0",
		"--limit", strconv.Itoa(rolled+rolled/20), "--node-name", nodeName, "--kubeconfig", n.Kubeconfig())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	called := n.Command(ctx, slowray, "requests", "--side", "called", "--port", "80", "--format", "json", "--budget", "0", "--node-name", nodeName, "--kubeconfig", n.Kubeconfig())
	called.Stderr = os.Stderr
	calls, err := called.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := called.Start(); err != nil {
		t.Fatal(err)
	}
	made := make(chan []reported, 1)
	go func() { made <- readRequests(t, calls) }()
	rolling, stop := context.WithCancel(ctx)
	rolls := make(chan int)
	go func() { rolls <- roll(rolling, t, c) }()
	seen := readRequests(t, out)
	stop()
	times := <-rolls
	if err := cmd.Wait(); err != nil {
		t.Errorf("slowray requests: %v", err)
	}
	if err := called.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	fromClients := <-made
	if err := called.Wait(); err != nil {
		t.Errorf("slowray requests --side called: %v", err)
	}
	// The servers write the last lines when they end.
	end := []byte("spec: {replicas: 0}")
	if err := c.Patch(ctx, "roll", "web", end); err != nil {
		t.Fatal(err)
	}
	if err := c.RolledOut(ctx, "roll", "web"); err != nil {
		t.Fatal(err)
	}
	truth := readTruth(t, filepath.Join(n.Dir, "lib/up/truth"))
	compare(t, seen, truth)
	compareCalls(t, fromClients, truth)
	t.Logf("%d roll-outs", times)
	if times < 3 {
		t.Errorf("%d roll-outs while requests ran: that tests too little", times)
	}
}

// roll rolls both Deployments, one after the other, and gives how often.
func roll(ctx context.Context, t *testing.T, c *Client) (times int) {
	for {
		for _, name := range []string{"web", "client"} {
			patch := fmt.Sprintf(`spec: {template: {metadata: {annotations: {rolled: "%d"}}}}`, times)
			if err := c.Patch(ctx, "roll", name, []byte(patch)); err == nil {
				err = c.RolledOut(ctx, "roll", name)
				if err == nil {
					times++
				} else if ctx.Err() == nil {
					t.Error(err)
				}
			}
			if ctx.Err() != nil {
				return times
			}
		}
	}
}

// reported is a line of slowray requests.
type reported struct {
	Start    time.Time
	TotalUS  float64 `json:"total_us"`
	Addr     netip.Addr
	Port     uint16
	PeerAddr netip.Addr `json:"peer_addr"`
	PeerPort uint16     `json:"peer_port"`
	Process  struct{ Workload observe.Workload }
	Peer     observe.Workload `json:"peer_workload"`
}

func readRequests(t *testing.T, from io.Reader) (list []reported) {
	t.Helper()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r reported
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Errorf("%v: %s", err, lines.Bytes())
			continue
		}
		list = append(list, r)
	}
	return list
}

// readTruth reads what the servers wrote, by connection, in the order in which it came.
func readTruth(t *testing.T, dir string) map[connection][]served {
	t.Helper()
	truth := map[connection][]served{}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var s served
			var local, peer string
			if _, err := fmt.Sscan(line, &s.at, &local, &peer, &s.by, &s.of); err != nil {
				t.Errorf("%s: %q: %v", file.Name(), line, err)
				continue
			}
			at := connection{addrPort(t, local), addrPort(t, peer)}
			truth[at] = append(truth[at], s)
		}
	}
	return truth
}

func addrPort(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", text)
	if err != nil {
		t.Fatal(err)
	}
	ap := a.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// compare fails where slowray names a pod that was not it, or too often none.
func compare(t *testing.T, seen []reported, truth map[connection][]served) {
	t.Helper()
	var compared, wrong, unnamed, unknownPeer, reused int
	byAddr := map[netip.Addr]map[string]bool{}
	for at, list := range truth {
		for _, s := range list {
			if byAddr[at.local.Addr()] == nil {
				byAddr[at.local.Addr()] = map[string]bool{}
			}
			byAddr[at.local.Addr()][s.by] = true
		}
	}
	for _, pods := range byAddr {
		if len(pods) > 1 {
			reused++
		}
	}
	for _, r := range seen {
		at := connection{netip.AddrPortFrom(r.Addr, r.Port), netip.AddrPortFrom(r.PeerAddr, r.PeerPort)}
		s, ok := during(truth[at], r)
		if !ok { // a probe of the kubelet
			continue
		}
		compared++
		if r.Process.Workload == (observe.Workload{}) {
			unnamed++
		} else if r.Process.Workload.Pod != s.by || r.Process.Workload.Name != "web" {
			if wrong++; wrong < 10 {
				t.Errorf("%s: answered by %s, and slowray says %+v", r.Start, s.by, r.Process.Workload)
			}
		}
		if r.Peer == (observe.Workload{}) {
			unknownPeer++
		} else if r.Peer.Pod != s.of || r.Peer.Name != "client" {
			if wrong++; wrong < 10 {
				t.Errorf("%s: asked by %s, and slowray says %+v", r.Start, s.of, r.Peer)
			}
		}
	}
	t.Logf("%d requests compared, %d attributed to the wrong pod; %d without server, %d without client; %d addresses of servers used again", compared, wrong, unnamed, unknownPeer, reused)
	if compared < rolled {
		t.Errorf("only %d of %d requests could be compared", compared, len(seen))
	}
	if wrong > 0 {
		t.Errorf("%d of %d requests attributed to the wrong pod", wrong, compared)
	}
	if unnamed > compared/100 || unknownPeer > compared/20 {
		t.Errorf("%d requests without server, %d without client, of %d", unnamed, unknownPeer, compared)
	}
	if reused == 0 {
		t.Error("no address was used again: that tests too little")
	}
}

// compareCalls fails where slowray names a pod behind the service that did not answer. Only
// some hundred calls a second are looked up.
func compareCalls(t *testing.T, seen []reported, truth map[connection][]served) {
	t.Helper()
	byClient := map[netip.AddrPort][]served{}
	for at, list := range truth {
		byClient[at.peer] = append(byClient[at.peer], list...)
	}
	var compared, wrong, unknown int
	for _, r := range seen {
		s, ok := during(byClient[netip.AddrPortFrom(r.Addr, r.Port)], r)
		if !ok {
			continue
		}
		compared++
		switch {
		case r.Peer.Pod == "" && (r.Peer == observe.Workload{} || r.Peer.Kind == "Service" && r.Peer.Name == "web"):
			unknown++
		case r.Peer.Pod != s.by || r.Peer.Name != "web" || r.Peer.Kind != "Deployment" || r.Peer.Service != "web":
			if wrong++; wrong < 10 {
				t.Errorf("%s: %s was answered by %s, and slowray says %+v", r.Start, s.of, s.by, r.Peer)
			}
		}
	}
	t.Logf("%d calls of the service compared, %d led to the wrong pod, %d to one that is not known", compared, wrong, unknown)
	if wrong > 0 {
		t.Errorf("%d of %d calls led to the wrong pod", wrong, compared)
	}
	if compared-unknown < 1000 {
		t.Errorf("of %d calls only %d were led to a pod: that tests too little", compared, compared-unknown)
	}
}

// during is what was written of a request: servers write while they work on it.
func during(list []served, r reported) (served, bool) {
	start := r.Start.UnixNano()
	for _, s := range list {
		const clocks = int64(time.Millisecond) // two of them
		if s.at >= start-clocks && s.at <= start+int64(r.TotalUS*1e3)+clocks {
			return s, true
		}
	}
	return served{}, false
}
