package bpf

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"
)

// mostVerified is how many instructions the verifier may have to look at for one program: a
// quarter of what it looks at at all (BPF_COMPLEXITY_LIMIT_INSNS). Kernels differ, and what
// is near the limit on one is beyond it on the next.
const mostVerified = 250_000

var processed = regexp.MustCompile(`processed (\d+) insns`)

// TestVerifier loads each program alone, on whatever kernel this is: as it is, and with all
// that may be asked for.
func TestVerifier(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	_ = rlimit.RemoveMemlock()
	loaded := 0
	stats := ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}}
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){
		"request, labels": loadWithLabels,
		"callerror":       LoadCallError, "clear": LoadClear, "connect": LoadConnect, "dns": LoadDNS, "drop": LoadDrop, "flow": LoadFlow, "function": LoadFunction,
		"http2": LoadHTTP2, "profile": LoadProfile, "request": LoadRequest, "socket": LoadSocket, "stacks": LoadStacks,
	} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for program, s := range spec.Programs {
			one := spec.Copy()
			one.Programs = map[string]*ebpf.ProgramSpec{program: s.Copy()}
			c, err := ebpf.NewCollectionWithOptions(one, stats)
			if err != nil {
				if (name == "clear" || name == "http2") && HaveLoops() == nil && hasHook(t, s) {
					t.Errorf("%s: %s: %v", name, program, err) // nobody else tests all of these on each kernel
				}
				t.Logf("not loaded here: %s: %s: %v", name, program, err) // readers load what the kernel has hooks for, and their tests tell
				continue
			}
			log := c.Programs[program].VerifierLog
			c.Close()
			loaded++
			m := processed.FindStringSubmatch(log)
			if m == nil {
				t.Errorf("%s: %s: no count of instructions in %q", name, program, log)
				continue
			}
			if n, _ := strconv.Atoi(m[1]); n > mostVerified {
				t.Errorf("%s: %s: the verifier looked at %d instructions, more than %d", name, program, n, mostVerified)
			}
		}
	}
	if loaded == 0 {
		t.Error("no program was loaded")
	}
}

// loadWithLabels is LoadRequest for who asks for labels.
func loadWithLabels() (*ebpf.CollectionSpec, error) {
	spec, err := LoadRequest()
	if err == nil {
		err = spec.Variables[RequestVarWithLabels].Set(uint8(1))
	}
	return spec, err
}

// hasHook says whether this kernel has the tracepoint of a program; other programs need none.
func hasHook(t *testing.T, s *ebpf.ProgramSpec) bool {
	if s.Type != ebpf.Tracing || s.AttachType != ebpf.AttachTraceRawTp {
		return true
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var hook *btf.Typedef
	return kernel.TypeByName("btf_trace_"+s.AttachTo, &hook) == nil
}
