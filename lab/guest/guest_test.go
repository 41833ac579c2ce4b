package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/lab/incident"
)

var slowray = flag.String("slowray", "", "slowray `program` to be tested")

// need skips unless this is a machine of script/kernels.sh that can record
// requests.
func need(t *testing.T) {
	t.Helper()
	if *slowray == "" {
		t.Skip("SKIP: no -slowray: make test-kernels injects these faults in machines of their own")
	}
	r, err := request.Start(request.Options{})
	if err != nil {
		t.Skipf("SKIP: %v: what requests suffer from is NOT tested", err)
	}
	r.Close()
}

// finding is what slowray tells of a cause.
type finding struct {
	Cause    string
	Role     string
	Subject  json.RawMessage
	Evidence json.RawMessage
	Fix      json.RawMessage
}

type excluded struct{ Cause, Because string }

// report is what slowray says of a port: the causes, first to last.
type report struct {
	Findings   []finding
	RuledOut   []excluded `json:"ruled_out"`
	NotChecked []excluded `json:"not_checked"`
}

func why(t *testing.T, port int) report {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(*slowray, "why", "--json", "--for", "6s", "--port", strconv.Itoa(port))
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("slowray: %v: %s", err, errs.String())
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f finding) bool { return f.Role != "cause" })
	return r
}

// first fails unless the cause is found first, with all words in what is reported of
// it.
func first(t *testing.T, r report, cause string, words ...string) {
	t.Helper()
	if len(r.Findings) == 0 || r.Findings[0].Cause != cause {
		for _, f := range r.Findings {
			t.Logf("found %s: %s", f.Cause, f.Evidence)
		}
		for _, e := range slices.Concat(r.RuledOut, r.NotChecked) {
			if e.Cause == cause {
				t.Logf("%s: %s", cause, e.Because)
			}
		}
		t.Errorf("%s is not found first", cause)
		return
	}
	f := &r.Findings[0]
	told := string(f.Subject) + string(f.Evidence) + string(f.Fix)
	for _, w := range words {
		if !strings.Contains(told, w) {
			t.Errorf("%q is not told of: %s", w, told)
		}
	}
}

// across starts a server in a network namespace behind a pair of devices, and
// clients of it, and returns its port and the way to its end of the pair.
func across(t *testing.T) (port int, at *netlink.Handle, device netlink.Link) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const here, there = "guest0", "guest1"
	server := start(t, true, "server", "nothing", "0.0.0.0:0")
	_, port = server.listens(t)
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: here}, PeerName: there}
	err := netlink.LinkAdd(pair)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("SKIP: no pairs of devices (veth) in this kernel")
	}
	must(err)
	t.Cleanup(func() { _ = netlink.LinkDel(pair) })
	peer, err := netlink.LinkByName(there)
	must(err)
	must(netlink.LinkSetNsPid(peer, server.Process.Pid))
	address := func(h *netlink.Handle, name, addr string) netlink.Link {
		l, err := h.LinkByName(name)
		must(err)
		a, err := netlink.ParseAddr(addr)
		must(err)
		must(h.AddrAdd(l, a))
		must(h.LinkSetUp(l))
		return l
	}
	at = handleIn(t, server.Process.Pid)
	address(&netlink.Handle{}, here, "192.0.2.1/24")
	device = address(at, there, "192.0.2.2/24")
	start(t, false, "client", "192.0.2.2:"+strconv.Itoa(port))
	return port, at, device
}

// TestNetemLoss: netem loses a part of what the server sends.
func TestNetemLoss(t *testing.T) {
	need(t)
	port, at, device := across(t)
	netem := netlink.NewNetem(netlink.QdiscAttrs{LinkIndex: device.Attrs().Index, Handle: netlink.MakeHandle(0x51, 0), Parent: netlink.HANDLE_ROOT},
		netlink.NetemQdiscAttrs{Loss: 10, Limit: 1000})
	if err := at.QdiscAdd(netem); err != nil {
		t.Skipf("SKIP: netem: %v", err)
	}
	time.Sleep(time.Second)
	first(t, why(t, port), "qdisc-drop", "netem", "51:")
}

// group makes a control group with limits, for processes that are started after
// it and so end before it goes.
func group(t *testing.T, limits map[string]string) (procs string) {
	t.Helper()
	root := "/sys/fs/cgroup"
	if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
		t.Skipf("SKIP: control groups of version 2: %v", err)
	}
	dir := filepath.Join(root, "guest")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 100 {
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	for file, value := range limits {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err != nil {
			t.Skipf("SKIP: %s: %v", file, err)
		}
	}
	return filepath.Join(dir, "cgroup.procs")
}

// TestQuota: a quota of a control group of version 2, for a server that computes.
func TestQuota(t *testing.T) {
	need(t)
	procs := group(t, map[string]string{"cpu.max": "20000 100000"})
	server := start(t, false, "server", "compute", "127.0.0.1:0")
	addr, port := server.listens(t)
	if err := os.WriteFile(procs, []byte(strconv.Itoa(server.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	start(t, false, "client", addr)
	time.Sleep(time.Second)
	first(t, why(t, port), "cpu-quota-throttled", "cpu.max")
}

// TestIncidents injects what lab/incident declares for machines like this.
func TestIncidents(t *testing.T) {
	for _, g := range incident.Guests() {
		t.Run(g.Name, func(t *testing.T) {
			need(t)
			shell(t, 0, "for m in "+g.Modules+"; do modprobe $m; done")
			t.Cleanup(func() { shell(t, 0, g.After) })
			shell(t, 0, g.Before)
			server := start(t, false, "server", g.Work, "127.0.0.1:0")
			addr, port := server.listens(t)
			shell(t, server.Process.Pid, g.Fault)
			start(t, false, "client", addr)
			time.Sleep(2 * time.Second)
			r := why(t, port)
			want := g.Cause
			if len(r.Findings) > 0 && slices.Contains(g.Or, r.Findings[0].Cause) {
				want = r.Findings[0].Cause
			}
			first(t, r, want, g.Words...)
		})
	}
}

// shell runs commands. What they leave behind in the background goes on.
func shell(t *testing.T, server int, commands string) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", commands)
	cmd.Env = append(os.Environ(), "SERVER="+strconv.Itoa(server))
	out, err := os.Create(filepath.Join(t.TempDir(), "out")) // no pipe, which they would hold open
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(out.Name())
		t.Logf("%s: %v: %s", commands, err, said)
	}
}
