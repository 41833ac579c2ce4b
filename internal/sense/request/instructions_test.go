package request

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
)

// instructionsOfRequest are what recording adds to a request on loopback: instructions of
// the BPF programs, with what they call, and of user space, on Debian 13's kernel in an
// emulated machine whose clock counts instructions (script/kernels.sh --instructions).
// docs/cost.md shows them. Rises are to be meant; after a fall, note it here.
var instructionsOfRequest = map[string]float64{
	"served, with what the server does": 5400,
	"both ends, with what they do":      9350,
	"both ends, out of its turn":        680,
}

// A measurement may be so far from them: the boot decides where maps lie and which of their
// places collide, which makes 40 instructions between boots (666 to 708 of the least).
const (
	instructionsTolerance = 0.03
	instructionsOfBoot    = 50
)

// TestInstructions counts the instructions of a request, with the recorder and without.
func TestInstructions(t *testing.T) {
	if os.Getenv("SLOWRAY_INSTRUCTIONS") == "" {
		t.Skip("SKIP: needs a machine whose clock counts instructions: script/kernels.sh --instructions runs it")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would come when it likes
	client, server := pingPong(t, make([]byte, 100))
	const requests, each = 6000, 100
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	floor := statsOverhead()
	for _, c := range []struct {
		name   string
		opt    Options
		follow uint
	}{
		{"served, with what the server does", Options{Side: observe.Served, Split: true, Budget: -1}, 0},
		{"both ends, with what they do", Options{Split: true, Budget: -1}, 0},
		{"both ends, out of its turn", Options{Split: true, Budget: -1}, 5},
	} {
		r, err := Start(c.opt)
		if err != nil {
			t.Fatal(err)
		}
		if c.follow > 0 {
			r.follow(c.follow)
			if err := r.objects.FollowReach.Set(uint32(0)); err != nil { // for ever
				t.Fatal(err)
			}
		}
		table := NewTable(time.Now())
		var own time.Duration
		block := func() {
			for i := range requests {
				client()
				server()
				client()
				if i%each == 0 {
					began := time.Now()
					r.Poll(table.Add)
					own += time.Since(began)
				}
			}
		}
		block() // the first ones meet everything for the first time
		own = 0
		before, told := programTimes(t), r.stats.Records
		block()
		var kernel time.Duration
		line := ""
		for name, after := range programTimes(t) {
			runs := after.RunCount - before[name].RunCount
			if runs == 0 {
				continue
			}
			took := after.Runtime - before[name].Runtime - time.Duration(runs)*floor
			kernel += took
			line += fmt.Sprintf(" %s %.1f × %d", name, float64(runs)/requests, took.Nanoseconds()/int64(runs))
		}
		told = r.stats.Records - told
		r.Close()
		added := float64((kernel + own).Nanoseconds()) / requests
		known := instructionsOfRequest[c.name]
		t.Logf("instructions added to a request, %s: %.0f, %.0f of them outside the kernel (known: %.0f)", c.name, added, float64(own.Nanoseconds())/requests, known)
		t.Logf("instructions added by each run:%s", line)
		if c.follow == 0 && told < requests {
			t.Errorf("%s: %d of %d requests were recorded", c.name, told, requests)
		}
		if added > known+max(known*instructionsTolerance, instructionsOfBoot) {
			t.Errorf("%s: %.0f instructions are added to a request, %.1f %% more than the %.0f that are known (instructions_test.go)", c.name, added, 100*(added/known-1), known)
		}
	}
}

// programTimes is what the programs of this process have taken, by name: the clock counts an
// instruction as a nanosecond.
func programTimes(t testing.TB) map[string]ebpf.ProgramStats {
	ids, err := bpf.OwnPrograms()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]ebpf.ProgramStats{}
	for _, id := range ids {
		st, ok := bpf.ProgramStats(id)
		if !ok {
			t.Fatalf("program %d cannot be read", id)
		}
		all[bpf.ProgramName(id)] = st
	}
	return all
}

// pingPong is a connection on loopback with both ends in this goroutine: client asks, or
// reads what the server answered; server answers.
func pingPong(t testing.TB, question []byte) (client, server func()) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) // its port tells which end serves
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	heard, answer := make([]byte, len(question)), make([]byte, 200)
	asked := false
	must := func(_ int, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
			if asked = !asked; asked {
				must(c.Write(question))
			} else {
				must(io.ReadFull(c, answer))
			}
		}, func() {
			must(io.ReadFull(s, heard))
			must(s.Write(answer))
		}
}

// TestInstructionsAreTold compares docs/cost.md with what is known here.
func TestInstructionsAreTold(t *testing.T) {
	text, err := os.ReadFile("../../../docs/cost.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range instructionsOfRequest {
		if row := fmt.Sprintf("| %s | %.0f |", name, n); !strings.Contains(string(text), row) {
			t.Errorf("docs/cost.md has no row %q", row)
		}
	}
}
