package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

const (
	CPUFrequencyCapped ID = "cpu-frequency-capped"
	SoftLockup         ID = "soft-lockup"
)

// Causes about the CPUs as hardware. None of them can be made in the lab.
var (
	// cpuFrequencyCapped: the CPUs run at a part of their clock rate.
	cpuFrequencyCapped = Cause{
		ID: CPUFrequencyCapped, Title: "The CPUs are clocked far below their maximum",
		Layer: LayerMachine,
		Class: ClassHost, Needs: []observe.Kind{observe.KindRequests, observe.KindProcess, observe.KindCPU},
		Check: checkFrequency,
	}
	// softLockup: a CPU did nothing but one thing in the kernel for many seconds.
	softLockup = Cause{
		ID: SoftLockup, Title: "A CPU was stuck in the kernel",
		Layer: LayerMachine,
		Class: ClassHost, Needs: []observe.Kind{observe.KindRequests, observe.KindKernelLog},
		Check: checkLockup,
	}
)

func checkFrequency(v *View) Result {
	s := &v.State
	if s.CPUFreqMaxKHz == 0 {
		return ruledOut("no frequency of the CPUs is shown (virtual machines show none)")
	}
	share := ratio(s.CPUFreqKHz, s.CPUFreqMaxKHz)
	busy := ratio(v.Use.CPU.Busy(), v.Use.CPU.Total())
	text := fmt.Sprintf("the CPUs ran at %d of %d MHz, %s of them in use", s.CPUFreqKHz/1000, s.CPUFreqMaxKHz/1000, percent(busy))
	if share >= freqCapped || busy < freqBusy {
		return ruledOut(text)
	}
	r := v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if l.called() {
			return judged{because: text, near: -1}
		}
		w := v.atWork(l)
		k := l.cost(1, threadParts...)
		scarce, why := v.computingIsScarce(l, &w, l.ownCPU(&w))
		if !l.noticed(k, threadFloor) || scarce == 0 {
			return judged{because: text + "; no request waits for what is computed: " + l.whereTimeGoes(), near: k.slowNS}
		}
		// At full speed this much of the time would not have been.
		f := v.found(l, scaled(k, scarce*(1-share)), threadFloor, "because the CPUs run slowly")
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "frequency of the CPUs, mean", Value: s.CPUFreqKHz / 1000, Limit: s.CPUFreqMaxKHz / 1000, Unit: "MHz", Source: "/sys/devices/system/cpu/cpu*/cpufreq"},
			Evidence{Fact: "that they are limited to", Value: s.CPUFreqLimitKHz / 1000, Unit: "MHz", Source: "scaling_max_freq"},
			Evidence{Fact: "slowed down for heat", Value: s.Throttled, Unit: "times in the window", Source: "thermal_throttle"},
			Evidence{Fact: "why its requests wait for it", Value: why, Source: "/proc/PID/schedstat, request records"})
		f.Fix.Text = "Set the governor to performance, or take the limit away."
		if s.Throttled > 0 || v.kernelLine("thermal-throttle") != nil {
			f.Fix.Text = "The CPUs are too hot: see to fans, filters and the room. " + f.Fix.Text
		}
		f.Fix.Commands = []shell.Command{shell.Line("cpupower frequency-info"), shell.Line("cpupower frequency-set -g performance")}
		return judged{finding: f}
	})
	if r.NotChecked != "" {
		return ruledOut(text + ", and " + r.NotChecked)
	}
	return heaviest(r)
}

const mendLockup = "The stack in the kernel log names the code: a newer kernel or driver. On a virtual machine look at the host: too many virtual CPUs on it."

func checkLockup(v *View) Result {
	var line *observe.KernelLine
	for _, kind := range []string{"soft-lockup", "hard-lockup", "rcu-stall"} {
		if line == nil {
			line = v.kernelLine(kind)
		}
	}
	if line == nil {
		return ruledOut("no CPU was stuck, as far as the kernel logged")
	}
	r := v.judgeLedgers(fewRequests, func(l *ledger) judged {
		k := l.cost(1, threadParts...)
		if l.called() || !l.noticed(k, threadFloor) || k.slowNS < lockupSlow {
			return judged{because: fmt.Sprintf("the kernel logged %q, and no request stood still: %s", line.Example, l.whereTimeGoes()), near: k.slowNS}
		}
		f := v.found(l, k, threadFloor, "for threads, while a CPU was stuck")
		f.Evidence = append(f.Evidence, Evidence{Fact: "the kernel logged", Value: line.Example, Unit: fmt.Sprintf("(%s times)", count(line.Count)), Source: "kernel log"})
		f.Fix.Text = mendLockup
		f.Fix.Commands = []shell.Command{shell.Line("dmesg | grep -A 30 -e 'soft lockup' -e 'hard LOCKUP' -e 'detected stall'")}
		return judged{finding: f}
	})
	if r.NotChecked != "" {
		return ruledOut(fmt.Sprintf("the kernel logged %q, and %s", line.Example, r.NotChecked))
	}
	return heaviest(r)
}
