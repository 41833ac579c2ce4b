package report

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/observe"
)

func waitProcess(pid int, comm string) observe.WaitProcess {
	return observe.WaitProcess{PID: pid, Comm: comm, NetNS: 4026531840}
}

// waits is a service whose threads wait for a log collector that is stopped,
// and a pool that has nothing to do.
func waits() *observe.Waits {
	const window = 500_000_000
	shim := observe.WaitHop{Process: waitProcess(950, "containerd-shim"), TID: 953, Comm: "containerd-shim", State: "S", Syscall: "write",
		How: observe.HowInferred, Why: "has the other end, and does not read", Kind: observe.WaitTCP, Wants: observe.WantsRoom,
		Object: "fd 7 → tcp to 127.0.0.1:24224", Detail: "3924674 bytes not taken by the other end", ForNS: window, QuietNS: 23_000_000_000}
	collector := observe.WaitHop{Process: waitProcess(1200, "fluentd"), TID: 1200, Comm: "fluentd", State: "T",
		How: observe.HowPeer, Why: "has the other end, and does not read", Kind: observe.WaitStopped, ForNS: window}
	collector.Process.Unit = "fluentd.service"
	first := observe.WaitHop{Process: waitProcess(900, "python3"), TID: 900, Comm: "python3", State: "S", Syscall: "write",
		Kind: observe.WaitPipe, Wants: observe.WantsRoom, Object: "fd 5 → pipe:[1234]", ForNS: window}
	behind := observe.WaitHop{Process: first.Process, TID: 901, Comm: "worker", State: "S", Syscall: "futex",
		Kind: observe.WaitLock, Wants: observe.WantsRelease, Object: "mutex at 0x7f00", ForNS: window}
	owner := first
	owner.How, owner.Why = observe.HowOwner, "holds the mutex"
	stopped := func(hops ...observe.WaitHop) observe.WaitChain {
		return observe.WaitChain{Threads: []int{hops[0].TID}, Count: 1, Hops: hops, End: observe.EndStopped, BackTo: -1,
			Text: "fluentd (pid 1200) is stopped by a signal and does nothing until it is continued"}
	}
	locked := stopped(behind, owner, shim, collector)
	locked.Threads, locked.Count = []int{901, 902}, 2
	idle := observe.WaitChain{Threads: []int{910}, Count: 12, BackTo: -1, End: observe.EndIdle, Text: "an event loop without work",
		Hops: []observe.WaitHop{{Process: first.Process, TID: 910, Comm: "python3", State: "S", Syscall: "epoll_wait", Kind: observe.WaitEpoll, ForNS: window}}}
	moving := observe.WaitChain{Threads: []int{920}, Count: 1, BackTo: -1, End: observe.EndRemote, Text: "the chain leaves this host: the other end is 10.0.0.9:5432",
		Hops: []observe.WaitHop{{Process: first.Process, TID: 920, Comm: "python3", State: "S", Syscall: "recvfrom", Kind: observe.WaitTCP,
			Wants: observe.WantsAnswer, Object: "fd 8 → tcp to 10.0.0.9:5432", Remote: "10.0.0.9:5432", Moving: true}}}
	return &observe.Waits{
		Process: first.Process, WindowNS: window, Threads: 16, Looked: 16,
		Chains: []observe.WaitChain{stopped(first, shim, collector), locked, moving, idle},
		Unseen: []string{"open files of process 4: not permitted (needs CAP_SYS_PTRACE)"},
	}
}

const goldenWait = `PROBLEM  python3 (pid 900)  3 threads held up: waits for fluentd (pid 1200), which is stopped by a …
python3 (pid 900): 16 threads, looked at twice within 500 ms

1. Waits for fluentd (pid 1200), which is stopped by a signal
   python3 900              write fd 5 → pipe:[1234], at least 500 ms
   containerd-shim 950/953  has the other end, and does not read [inferred]
                            write fd 7 → tcp to 127.0.0.1:24224, at least 500 ms; 3924674 bytes not
                            taken by the other end; nothing has passed for 23 s
   fluentd 1200             has the other end, and does not read [peer of the fd], in
                            fluentd.service
                            stopped, at least 500 ms
   end                      fluentd (pid 1200) is stopped by a signal and does nothing until it is
                            continued
   fix                      Let it go on:
                            kill -CONT 1200

2. Waits for fluentd (pid 1200), which is stopped by a signal
   python3 900/901          worker: futex mutex at 0x7f00, at least 500 ms
   python3 900              holds the mutex [owner read]
                            and so on as in 1
   threads                  2 wait like this: 901, 902

Waits of other kinds, and those that come and go
      1  recvfrom fd 8 → tcp to 10.0.0.9:5432, now and then: the chain leaves this host: the other
         end is 10.0.0.9:5432

Not held up by anybody
     12  epoll_wait, at least 500 ms: an event loop without work

Not checked
  open files of process 4: not permitted (needs CAP_SYS_PTRACE)

PROBLEM  python3 (pid 900)  3 threads held up: waits for fluentd (pid 1200), which is stopped by a …
`

func TestWait(t *testing.T) {
	var b bytes.Buffer
	if err := Wait(&b, waits(), Style{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(goldenWait, b.String()); diff != "" {
		t.Error(diff)
	}
	b.Reset()
	if err := Wait(&b, waits(), Style{All: true, Color: true}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "4. ") || !strings.Contains(b.String(), "\x1b[") || strings.Contains(b.String(), "as in 1") {
		t.Error(b.String())
	}
}

// TestWaitOfAMaster says which workers were looked at, and which of them do what.
func TestWaitOfAMaster(t *testing.T) {
	o := waits()
	o.Workers = []observe.WaitProcess{waitProcess(901, "python3"), waitProcess(902, "python3")}
	var b bytes.Buffer
	if err := Wait(&b, o, Style{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\npython3 (pid 900): 16 threads, and its 2 workers (pids 901, 902), looked at", "\n     12  python3 910…: epoll_wait,"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

func TestWaitWithoutCulprit(t *testing.T) {
	o := waits()
	o.Chains = o.Chains[2:]
	var b bytes.Buffer
	if err := Wait(&b, o, Style{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "OK  python3 (pid 900)  nobody holds it up\n") || strings.Contains(b.String(), "PROBLEM") || strings.Contains(b.String(), "1. ") {
		t.Error(b.String())
	}
}

// TestWaitNotFollowed: where waits were not followed in time, it is not said that all is well.
func TestWaitNotFollowed(t *testing.T) {
	o := waits()
	late := o.Chains[0]
	late.Hops, late.End, late.Count = late.Hops[:1], observe.EndTooLong, 84
	o.Chains = append([]observe.WaitChain{late}, o.Chains[2:]...)
	var b bytes.Buffer
	if err := Wait(&b, o, Style{}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(b.String(), "UNKNOWN  python3 (pid 900)  84 threads could not be followed in the time there is\n") {
		t.Error(b.String())
	}
}

// TestWaitTitles: every end has a title and, where there is one, a remedy.
func TestWaitTitles(t *testing.T) {
	for _, end := range allEnds {
		for _, n := range []int{1, 2} {
			c := observe.WaitChain{End: end, Text: "so it ends", BackTo: -1, Path: "/sys/fs/cgroup/a b/freezer.state", Threads: []int{1}, Count: 1}
			for i := range n {
				c.Hops = append(c.Hops, observe.WaitHop{Process: waitProcess(10+i, "app"), TID: 10 + i, Wants: observe.WantsRoom, Remote: "10.0.0.9:80"})
			}
			if end == observe.EndCycle {
				c.BackTo, c.Sure = 0, true
			}
			if title := waitTitle(&c); len(title) < 8 || strings.HasSuffix(title, ", ") {
				t.Errorf("%s, %d hops: %q", end, n, title)
			}
			if _, command := waitFix(&c); end == observe.EndFrozen && command.String() != "echo THAWED > '/sys/fs/cgroup/a b/freezer.state'" {
				t.Error(command)
			}
		}
	}
}

var allEnds = []observe.WaitEnd{observe.EndCycle, observe.EndStopped, observe.EndTraced, observe.EndFrozen, observe.EndGone, observe.EndRemote,
	observe.EndDisk, observe.EndFuse, observe.EndKernel, observe.EndRunning, observe.EndMutual, observe.EndNoOwner, observe.EndIdle, observe.EndSleep,
	observe.EndEnded, observe.EndUnseen, observe.EndTooLong, observe.EndNoHolder}

// TestHostileWait: nothing that comes from the host drives a terminal, neither
// in text nor in JSON, and JSON keeps to its schema.
func TestHostileWait(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../schema/wait.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	list := []*observe.Waits{waits(), {Process: waitProcess(1, "x"), Chains: []observe.WaitChain{}}}
	for range 50 {
		list = append(list, hostileWaits(rng))
	}
	for _, o := range list {
		var text, out bytes.Buffer
		if err := Wait(&text, o, Style{All: rng.IntN(2) == 0, Width: 40 + rng.IntN(100)}); err != nil {
			t.Fatal(err)
		}
		if err := WaitJSON(&out, o); err != nil {
			t.Fatal(err)
		}
		for _, c := range text.String() + out.String() {
			if c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) {
				t.Fatalf("control character %U in\n%q\n%q", c, text.String(), out.String())
			}
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		if err := schema.Validate(v); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		var back struct {
			Chains []struct {
				Culprit, Deadlock bool
				Hops              []observe.WaitHop
			}
		}
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back.Chains) != len(o.Chains) {
			t.Fatal(err)
		}
		for i := range o.Chains {
			if back.Chains[i].Culprit != o.Chains[i].Culprit() || back.Chains[i].Deadlock != o.Chains[i].Deadlock() {
				t.Errorf("%+v", back.Chains[i])
			}
		}
	}
}

// hostileWaits is chains of any shape with the worst of names.
func hostileWaits(rng *rand.Rand) *observe.Waits {
	o := waits()
	o.Process.Comm, o.Process.Container = hostile, hostile
	o.Unseen = []string{hostile}
	for i := range o.Chains {
		c := &o.Chains[i]
		c.End, c.Text, c.Path, c.Cut = allEnds[rng.IntN(len(allEnds))], hostile, hostile, hostile
		c.Branch = rng.IntN(2)
		if c.End == observe.EndCycle {
			c.BackTo, c.Sure = rng.IntN(len(c.Hops)), rng.IntN(2) == 0
		}
		for j := range c.Hops {
			h := &c.Hops[j]
			h.Process.Comm, h.Comm, h.Object, h.Detail, h.Why, h.Remote, h.Wchan = hostile, hostile, hostile, hostile, hostile, hostile, hostile
			h.Process.Unit, h.Process.Container = hostile, hostile
			h.Moving = rng.IntN(3) == 0
		}
	}
	return o
}
