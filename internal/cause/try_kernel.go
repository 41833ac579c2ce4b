package cause

import (
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// Limits and switches of the kernel, of one network namespace or of the host.

// What is proposed, in findings as in changes.
const (
	wantedBuckets    = 262144                 // net.ipv4.tcp_max_tw_buckets
	wantedRmem       = "4096 131072 16777216" // net.ipv4.tcp_rmem, bytes
	wantedWmem       = "4096 65536 16777216"  // net.ipv4.tcp_wmem, bytes
	wantedDevBacklog = 10000                  // net.core.netdev_max_backlog
	wantedOrphans    = 262144                 // net.ipv4.tcp_max_orphans
	wantedNeighbours = 4096                   // gc_thresh2; twice as many for gc_thresh3
	usualTCPMem      = "381462 508616 762924" // net.ipv4.tcp_mem where it is not known, pages
	usualDirtyRatio  = 20                     // vm.dirty_ratio of the kernel itself, percent
	dirtyOfMemory    = 10                     // of the memory available, that may be dirty
)

// inNamespace tries a change where the service, or the finding, is.
func inNamespace(try func(*View, *observe.NetNS) []Change) func(*View, Target) []Change {
	return func(v *View, t Target) []Change {
		if ns := v.targetNS(t); ns != nil {
			return try(v, ns)
		}
		return nil
	}
}

// onHost tries a change of what is one for the whole machine.
func onHost(try func(*View) []Change) func(*View, Target) []Change {
	return func(v *View, _ Target) []Change { return try(v) }
}

// tryProbing lets TCP find out the size of packets that pass, from a connection
// that hangs on; 2, from the beginning on, is left alone.
func tryProbing(v *View, ns *observe.NetNS) []Change {
	if v.sysctl(ns, "net.ipv4.tcp_mtu_probing") != "0" {
		return nil
	}
	return v.switched(ns, "net.ipv4.tcp_mtu_probing", "1")
}

// lossKnobs are what lets TCP learn of lost segments without its timer.
var lossKnobs = []struct{ name, want string }{{"net.ipv4.tcp_early_retrans", "3"}, {"net.ipv4.tcp_recovery", "1"}, {"net.ipv4.tcp_sack", "1"}}

func tryLossKnobs(v *View, ns *observe.NetNS) []Change {
	var changes []Change
	for _, knob := range lossKnobs {
		if v.sysctl(ns, knob.name) == "0" {
			changes = append(changes, v.switched(ns, knob.name, knob.want)...)
		}
	}
	return changes
}

// tryReceiverWindow gives the receiver more room, where it is on this host.
func tryReceiverWindow(v *View, t Target) []Change {
	for _, l := range v.ledgersOf(t.Service) {
		if c := v.clientHere(l); c != nil && c.ns != nil {
			return v.widened(c.ns, "net.ipv4.tcp_rmem", wantedRmem)
		}
	}
	return nil
}

// ledgersOf are the served endpoints of a service.
func (v *View) ledgersOf(s *Service) []*ledger {
	if s == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(v.ledgersAt(s.NS.Inode, s.Port())), (*ledger).called)
}

// tryLooseFilter has reverse path filtering be loose: at the device that drops,
// or at all of them.
func tryLooseFilter(v *View, t Target) []Change {
	ns := v.targetNS(t)
	if ns == nil {
		return nil
	}
	device := "all"
	if t.Finding != nil && t.Finding.Subject.Interface != "" {
		device = t.Finding.Subject.Interface
	}
	was := v.sysctl(ns, "net.ipv4.conf."+device+".rp_filter")
	if was == "2" {
		return nil
	}
	return []Change{sysctlChange(ns, rpFilterKnob(device), was, "2")}
}

// rpFilterKnob is the sysctl of a device, whose name may have dots in it
// (sysctl.d(5)).
func rpFilterKnob(device string) string {
	return "net.ipv4.conf." + strings.ReplaceAll(device, ".", "/") + ".rp_filter"
}

func (v *View) wantedMaps() uint64  { return max(4*v.sysctlNumber("vm.max_map_count", 0), 262144) }
func (v *View) wantedFiles() uint64 { return max(2*v.sysctlNumber("fs.file-max", 0), 1_000_000) }
func (v *View) wantedAIO() uint64   { return max(4*v.sysctlNumber("fs.aio-max-nr", 0), 1_048_576) }

// wantedTCPMem is what the kernel gives TCP on a host with so much memory (tcp_init_mem,
// net/ipv4/tcp.c), or twice the present limits where that is more.
func (v *View) wantedTCPMem() string {
	limits := strings.Fields(v.Sysctl["net.ipv4.tcp_mem"])
	if len(limits) != 3 {
		return usualTCPMem
	}
	sixteenth := v.Use.Memory.TotalBytes / pageBytes / 16
	for i, usual := range []uint64{sixteenth / 4 * 3, sixteenth, sixteenth / 4 * 6} {
		n, _ := strconv.ParseUint(limits[i], 10, 62)
		limits[i] = utoa(max(2*n, usual))
	}
	return strings.Join(limits, " ")
}

// pageBytes is the size of most kernels' pages: on those of larger ones more is given.
const pageBytes = 4096

// inotifyWanted is the limit that a refused call met, and what is proposed.
func (v *View) inotifyWanted(err string) (knob string, want uint64) {
	knob, want = "fs.inotify.max_user_watches", 524288
	if err == "EMFILE" {
		knob, want = "fs.inotify.max_user_instances", 1024
	}
	return knob, max(want, 4*v.sysctlNumber(knob, 0))
}

// tryInotify raises the limit that was met; where none was, that of watches.
func tryInotify(v *View) []Change {
	refused := "ENOSPC"
	if slices.ContainsFunc(v.CallErrors, func(e observe.CallError) bool {
		return strings.HasPrefix(e.Call, "inotify_init") && e.Error == "EMFILE"
	}) {
		refused = "EMFILE"
	}
	knob, want := v.inotifyWanted(refused)
	return v.raised(nil, knob, want)
}

// tryMoreDirty lets more be written before writers are slowed down, where that
// was set to less than usual.
func tryMoreDirty(v *View) []Change {
	if bytes := v.sysctlNumber("vm.dirty_bytes", 0); bytes > 0 {
		most := v.Use.Memory.AvailableBytes / 100 * dirtyOfMemory >> 20 << 20
		return v.raised(nil, "vm.dirty_bytes", most)
	}
	return v.raised(nil, "vm.dirty_ratio", usualDirtyRatio)
}
