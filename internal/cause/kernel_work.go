package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// Causes by what the kernel does on a service's behalf (ClassKernelWork): a good
// part of its CPU time is in functions of the kernel that belong to one thing,
// while its requests wait for that CPU time.

// kernelWork is one of them.
type kernelWork struct {
	functions []string // any of them, with all that it calls
	least     float64  // of the service's CPU time
	doing     string   // in a sentence: "spends … of its CPU time …"
	// also is what must hold besides, with the evidence for it; nil is nothing.
	also func(v *View, w *atWork) (Evidence, bool)
	fix  func(v *View, w *atWork) (string, []shell.Command)
}

const (
	SlowClocksource     ID = "slow-clocksource"
	FilesPerRequest     ID = "files-per-request"
	ContextSwitchThrash ID = "context-switch-thrash"
	LogFlooding         ID = "log-flooding"
)

var (
	slowClocksource = Cause{
		ID: SlowClocksource, Title: "The clock source is slow (not tsc)",
		Layer: LayerMachine,
		Class: ClassHost | ClassKernelWork, Needs: []observe.Kind{observe.KindRequests, observe.KindProfile, observe.KindProcess},
		Check: checkKernelWork(&kernelWork{
			functions: []string{"read_hpet", "acpi_pm_read", "acpi_pm_read_verified", "acpi_pm_read_slow", "acpi_pm_check_graylist"}, least: clockShare,
			doing: "reading the clock",
			also: func(v *View, _ *atWork) (Evidence, bool) {
				return Evidence{Fact: "clocksource", Value: v.State.Clocksource, Limit: strings.Join(v.State.Clocksources, " "), Source: "/sys/devices/system/clocksource"}, slices.Contains(slowClocks, v.State.Clocksource)
			},
			fix: func(v *View, _ *atWork) (string, []shell.Command) {
				commands := []shell.Command{shell.Line("dmesg | grep -i clocksource")}
				if better := v.betterClock(); better != "" {
					commands = append(commands, shell.Write(better, clocksourceFile))
				}
				return "See in the kernel log why the CPU's counter was given up, and go back to it where it is still offered (clocksource=tsc tsc=reliable on the kernel's command line keeps it); on a virtual machine use the hypervisor's clock.", commands
			},
		}),
		Try: onHost(tryBetterClock),
	}
	filesPerRequest = Cause{
		ID: FilesPerRequest, Title: "The service spends its CPU opening files",
		Layer: LayerApplication,
		Class: ClassHost | ClassKernelWork, Needs: []observe.Kind{observe.KindRequests, observe.KindProfile, observe.KindProcess},
		Check: checkKernelWork(&kernelWork{
			functions: []string{"do_sys_openat2", "do_sys_open", "do_filp_open", "path_openat", "do_unlinkat", "filename_create", "do_mkdirat", "do_renameat2"}, least: fileWorkShare,
			doing: "opening, making and deleting files",
			fix: func(v *View, w *atWork) (string, []shell.Command) {
				return "Keep in memory what is read for each request: an opcode and template cache, an open-file cache (nginx: open_file_cache), sessions in a store.",
					[]shell.Command{shell.Line("slowray func --pid %s openat   # which, and how often", v.busiestOf(w)), shell.Line("slowray flame --pid %s -o flame.html", v.busiestOf(w))}
			},
		}),
	}
	contextSwitchThrash = Cause{
		ID: ContextSwitchThrash, Title: "Context switches take the service's CPU",
		Layer: LayerApplication,
		Class: ClassHost | ClassKernelWork, Needs: []observe.Kind{observe.KindRequests, observe.KindProfile, observe.KindProcess},
		Check: checkKernelWork(&kernelWork{
			functions: []string{"__schedule", "schedule"}, least: switchShare, doing: "switching between threads",
			also: func(v *View, w *atWork) (Evidence, bool) {
				var slices uint64
				for _, p := range w.procs {
					slices += p.Timeslices
				}
				rate := float64(slices) / max(v.Window.Seconds, 1e-9)
				return Evidence{Fact: "times a second that its threads are switched to", Value: round(rate), Source: "/proc/PID/task/TID/schedstat"}, rate >= switchRate
			},
			fix: func(v *View, w *atWork) (string, []shell.Command) {
				return "Run fewer threads, about as many as there are CPUs, give them larger pieces of work, and hold locks for shorter.",
					[]shell.Command{shell.Line("slowray flame --pid %s --off-cpu -o flame.html   # what they wait for, so often", v.busiestOf(w))}
			},
		}),
	}
	logFlooding = Cause{
		ID: LogFlooding, Title: "The service spends its CPU writing logs",
		Layer: LayerApplication,
		Class: ClassHost | ClassKernelWork, Needs: []observe.Kind{observe.KindRequests, observe.KindProfile, observe.KindProcess},
		Check: checkKernelWork(&kernelWork{
			functions: []string{"ext4_file_write_iter", "ext4_buffered_write_iter", "xfs_file_write_iter", "xfs_file_buffered_write", "btrfs_file_write_iter", "f2fs_file_write_iter",
				"generic_file_write_iter", "shmem_file_write_iter", "ovl_write_iter", "ext2_file_write_iter"}, least: fileWorkShare,
			doing: "writing files",
			also: func(_ *View, w *atWork) (Evidence, bool) {
				e := Evidence{Fact: "the file that it has written most of", Value: "not seen: it is closed again each time", Source: "/proc/PID/fdinfo"}
				most := uint64(0)
				for _, p := range w.procs {
					for _, f := range p.Writes {
						if f.Bytes > most {
							most = f.Bytes
							e.Value, e.Limit, e.Unit = f.Path, nil, fmt.Sprintf("(%d MB)", f.Bytes>>20)
						}
					}
				}
				return e, true
			},
			fix: func(v *View, w *atWork) (string, []shell.Command) {
				return "Lower the log level, write fewer and shorter lines, and gather them before they are written (nginx: access_log … buffer=).",
					[]shell.Command{shell.Line("slowray func --pid %s write   # how often, and how much", v.busiestOf(w)), shell.Line("ls -l /proc/%s/fd", v.busiestOf(w))}
			},
		}),
	}
)

// slowClocks are clocksources that are read from a device.
var slowClocks = []string{"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"}

func checkKernelWork(work *kernelWork) func(*View) Result {
	return func(v *View) Result {
		return v.judgeLedgers(fewRequests, func(l *ledger) judged {
			if l.called() {
				return judged{because: "no request is answered here", near: -1}
			}
			w := v.atWork(l)
			e := v.executedBy(w.procs, 0)
			var most *observe.ProfileFunction
			for i := range e.functions {
				if f := &e.functions[i]; f.Kind == observe.FrameKernel && slices.Contains(work.functions, f.Name) && (most == nil || f.Total > most.Total) {
					most = f
				}
			}
			if most == nil {
				return judged{because: fmt.Sprintf("no function that takes much of the CPU of %s is for %s", v.commOf(l), work.doing), near: 0}
			}
			share := e.share(most)
			because := fmt.Sprintf("%s spends %s of its CPU time %s (%s)", v.commOf(l), percent(share), work.doing, most.Name)
			var also Evidence
			holds := true
			if work.also != nil {
				also, holds = work.also(v, &w)
			}
			k := l.cost(1, threadParts...)
			scarce, why := v.computingIsScarce(l, &w, l.ownCPU(&w))
			switch {
			case !e.enough() || share < work.least:
				return judged{because: because, near: share}
			case !holds:
				return judged{because: fmt.Sprintf("%s, %s: %v", because, also.Fact, also.Value), near: share}
			case !l.noticed(k, threadFloor):
				return judged{because: because + ", and no request is slow for it", near: share}
			case scarce == 0:
				return judged{because: because + ", and requests wait for something else", near: share}
			}
			f := v.found(l, scaled(k, scarce*share), threadFloor, "behind "+work.doing)
			f.Subject.Kind = "process"
			f.Evidence = append(f.Evidence,
				Evidence{Fact: "CPU time in " + most.Name, Value: round(share), Limit: 1, Unit: fmt.Sprintf("share of %s CPU samples", count(e.samples)), Source: "CPU samples, kernel stacks"},
				Evidence{Fact: "why its requests wait for it", Value: why, Source: "/proc/PID/schedstat, request records"})
			if also.Fact != "" {
				f.Evidence = append(f.Evidence, also)
			}
			f.Fix.Text, f.Fix.Commands = work.fix(v, &w)
			return judged{finding: f}
		})
	}
}
