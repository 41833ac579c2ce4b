package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// MemoryHighThrottled: a group above memory.high is slowed down at each
// allocation (mem_cgroup_handle_over_high, mm/memcontrol.c), and never killed.
const MemoryHighThrottled ID = "memory-high-throttled"

var memoryHighThrottled = Cause{
	ID:    MemoryHighThrottled,
	Title: "The service exceeds memory.high",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit,
	Needs: []observe.Kind{observe.KindCgroup, observe.KindRequests},
	Check: checkMemoryHigh,
	Try:   inGroups((*View).moreMemoryHigh),
}

// PageCacheThrash: a group at its limit drops pages of files that it needs
// again at once.
const PageCacheThrash ID = "page-cache-thrash"

var pageCacheThrash = Cause{
	ID:    PageCacheThrash,
	Title: "The memory limit causes page cache thrashing",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit,
	Needs: []observe.Kind{observe.KindCgroup, observe.KindRequests},
	Check: checkThrash,
	Try:   inGroups((*View).moreMemory),
}

// CgroupIOThrottled: a group has used up what it may read or write.
const CgroupIOThrottled ID = "cgroup-io-throttled"

var cgroupIOThrottled = Cause{
	ID:    CgroupIOThrottled,
	Title: "A cgroup I/O limit throttles the service",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit,
	// What is read again and again, because memory ran out or of the cache, uses up any limit.
	ConsequenceOf: []Parent{PageCacheThrash, CachesDropped, SwapThrash},
	Folds:         true,
	Needs:         []observe.Kind{observe.KindCgroup, observe.KindRequests},
	Check:         checkGroupIO,
	Try:           inGroups((*View).moreIO),
}

// PIDsLimit: fork() and clone() fail, because the group has as many tasks as it
// may have.
const PIDsLimit ID = "pids-limit"

var pidsLimit = Cause{
	ID:    PIDsLimit,
	Title: "pids limit reached",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit,
	Needs: []observe.Kind{observe.KindCgroup, observe.KindRequests},
	Check: checkPIDs,
	Try:   inGroups((*View).moreTasks),
}

// judgeGroups runs a check on each control group that answers an endpoint.
// check says why there is no finding, or gives one.
func (v *View) judgeGroups(none string, check func(l *ledger, c *observe.Cgroup) judged) Result {
	r := v.judgeLedgers(fewRequests, func(l *ledger) judged {
		best := judged{because: none, near: -1}
		if l.called() {
			return best
		}
		for _, c := range v.groupsOf(l) {
			j := check(l, c)
			if j.finding != nil {
				return j
			}
			if j.because != "" && j.near > best.near {
				best = j
			}
		}
		return best
	})
	return r
}

// waitsForDisk is what the threads of an endpoint's requests lose to the disk,
// and whether that is much.
func (v *View) waitsForDisk(l *ledger) (k cost, much bool) {
	if s := l.Split; s != nil && s.Requests >= fewRequests {
		if k = l.serverCost(observe.ServerDisk); l.noticed(k, threadFloor) {
			return k, true
		}
	}
	// A thread that serves others meanwhile lets them wait in their sockets.
	var disk, busy int
	for _, p := range v.workers(l) {
		if p.States != nil {
			disk += p.States.Disk
			busy += p.States.Busy()
		}
	}
	share := ratio(disk, busy)
	// Idle threads next to it make that little; what held up the slow requests
	// was seen hop by hop.
	share = max(share, v.onDisk()[l.pid])
	k = scaled(l.cost(1, threadParts...), share)
	return k, share >= diskOfBusy && l.noticed(k, threadFloor)
}

// findOnDisk is the greatest share of the slow requests' time that a disk is
// seen to hold up, by the processes on the way.
func (v *View) findOnDisk() map[int]float64 {
	out := map[int]float64{}
	for _, r := range []Result{checkFsyncBound(v), checkBlockedOnDisk(v)} {
		for i := range r.Findings {
			f := &r.Findings[i]
			for _, pid := range slices.Concat(f.Holds, f.Via) {
				out[pid] = max(out[pid], f.Impact.Share)
			}
		}
	}
	return out
}

func checkMemoryHigh(v *View) Result {
	return v.judgeGroups("no service has a memory.high that it passed", func(l *ledger, c *observe.Cgroup) judged {
		if c.MemoryHighBytes == 0 {
			return judged{}
		}
		stall := ratio(c.MemoryStallSeconds, v.Window.Seconds)
		k := l.cost(1, threadParts...)
		text := fmt.Sprintf("%s uses %s with memory.high at %s: it passed it %s times, and stalled %s of the window", c.Path, byteText(c.MemoryUsedBytes), byteText(c.MemoryHighBytes), count(c.MemoryAtHigh), percent(stall))
		if c.MemoryAtHigh == 0 || stall < memoryStall || !l.noticed(k, threadFloor) {
			return judged{because: text, near: stall}
		}
		h := v.holderOfGroup(c)
		f := v.found(l, k, threadFloor, "waiting for its threads")
		f.Subject.Kind, f.Subject.Path = "cgroup", c.Path
		f.Weight = min(f.Weight, max(stall, memoryStall))
		f.Evidence = append(f.Evidence, Evidence{Fact: "memory of " + h.text + ", where memory.high is " + byteText(c.MemoryHighBytes), Value: byteText(c.MemoryUsedBytes), Source: "memory.current"},
			Evidence{Fact: "times it was slowed down", Value: c.MemoryAtHigh, Source: "memory.events high"},
			Evidence{Fact: "time in which a task of it stalled for memory", Value: round(stall), Limit: 1, Unit: "share of the window", Source: "memory.pressure"})
		want := wantedMemoryHigh(c)
		f.Fix.Text = fmt.Sprintf("Raise memory.high of %s from %s, or leave only memory.max.%s", h.text, byteText(c.MemoryHighBytes), h.setsWhere())
		// The kubelet derives it from the limit (MemoryQoS).
		h.raise(&f.Fix, c.HighFile, utoa(want), raised{systemd: fmt.Sprintf("MemoryHigh=%dM", want>>20), resource: "limits.memory", amount: mebibytes(want)})
		if h.what == "container" {
			f.Fix.Persist = []shell.Command{shell.Line("# the memory.high of the specification of the container")}
		}
		return judged{finding: f}
	})
}

func checkThrash(v *View) Result {
	return v.judgeGroups("no service is at a memory limit", func(l *ledger, c *observe.Cgroup) judged {
		if c.MemoryLimitBytes == 0 {
			return judged{}
		}
		used := ratio(c.MemoryUsedBytes, c.MemoryLimitBytes)
		rate := float64(c.Refaults) / max(v.Window.Seconds, 1)
		text := fmt.Sprintf("%s uses %s, and %.0f pages of files a second were read again", c.Path, memoryOf(c.MemoryUsedBytes, c.MemoryLimitBytes), rate)
		if used < nearLimit || rate < refaultRate {
			return judged{because: text, near: rate}
		}
		k, much := v.waitsForDisk(l)
		if !much {
			return judged{because: text + ", but no request is slow for it: " + l.whereTimeGoes(), near: rate}
		}
		h := v.holderOfGroup(c)
		f := v.found(l, k, threadFloor, "reading files again")
		f.Subject.Kind, f.Subject.Path = "cgroup", c.Path
		f.Evidence = append(f.Evidence, memoryEvidence("memory of "+h.text, c.MemoryUsedBytes, c.MemoryLimitBytes, "memory.current, memory.usage_in_bytes"),
			Evidence{Fact: "pages of files read again soon after they were dropped", Value: round(rate), Unit: "pages/s", Source: "memory.stat workingset_refault_file"},
			Evidence{Fact: "files in memory now", Value: byteText(c.MemoryFileBytes), Source: "memory.stat"},
			memoryEvidence("memory of the machine available", v.Use.Memory.AvailableBytes, v.Use.Memory.TotalBytes, "/proc/meminfo"))
		want := 2 * c.MemoryLimitBytes
		f.Fix.Text = fmt.Sprintf("Raise the memory limit of %s (%s) by as much as the files need that it reads.%s", h.text, byteText(c.MemoryLimitBytes), h.setsWhere())
		h.raise(&f.Fix, c.MemoryFile, utoa(want), memorySetting(want))
		return judged{finding: f}
	})
}

// ioUse is the use of one limit of a group.
type ioUse struct {
	limit           *observe.IOLimit
	what            string
	done, most      float64 // a second
	share           float64
	v1File, v2Field string
	docker          shell.Command
	systemd         string
}

// ioUses lists what a group used of its I/O limits, most first.
func (v *View) ioUses(c *observe.Cgroup) []ioUse {
	var out []ioUse
	for i := range c.IO {
		l := &c.IO[i]
		for _, u := range []ioUse{
			{l, "bytes read", float64(l.ReadBytes), l.ReadBPS, 0, "blkio.throttle.read_bps_device", "rbps", shell.Line("--device-read-bps"), "IOReadBandwidthMax"},
			{l, "bytes written", float64(l.WriteBytes), l.WriteBPS, 0, "blkio.throttle.write_bps_device", "wbps", shell.Line("--device-write-bps"), "IOWriteBandwidthMax"},
			{l, "reads", float64(l.Reads), l.ReadIOPS, 0, "blkio.throttle.read_iops_device", "riops", shell.Line("--device-read-iops"), "IOReadIOPSMax"},
			{l, "writes", float64(l.Writes), l.WriteIOPS, 0, "blkio.throttle.write_iops_device", "wiops", shell.Line("--device-write-iops"), "IOWriteIOPSMax"},
		} {
			if u.most > 0 {
				u.done /= max(v.Window.Seconds, 1)
				u.share = ratio(u.done, u.most)
				out = append(out, u)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b ioUse) int { return cmp.Compare(b.share, a.share) })
	return out
}

// reads says that the limit is one of reading.
func (u *ioUse) reads() bool { return strings.HasPrefix(u.v2Field, "r") }

// flag is how docker run sets the limit to so many times what it is.
func (u *ioUse) flag(times float64) shell.Command {
	return u.docker.Then(shell.Line("/dev/%s:%s", u.limit.Disk, fmt.Sprintf("%.0f", times*u.most)))
}

// text writes an amount of what is limited.
func (u *ioUse) text(n float64) string {
	if strings.HasPrefix(u.what, "bytes") {
		return byteText(uint64(n))
	}
	return fmt.Sprintf("%.0f", n)
}

// wantedIO is how many times a limit of I/O is raised.
const wantedIO = 4

// command is the file and the text that set the limit to so many times what it is.
func (u *ioUse) command(c *observe.Cgroup, times float64) (file, value string) {
	if u.limit.Number == "" || u.limit.File == "" {
		return "", ""
	}
	if c.Version == 2 {
		return u.limit.File, fmt.Sprintf("%s %s=%.0f", u.limit.Number, u.v2Field, times*u.most)
	}
	at := strings.LastIndexByte(u.limit.File, '/')
	return u.limit.File[:at+1] + u.v1File, fmt.Sprintf("%s %.0f", u.limit.Number, times*u.most)
}

func checkGroupIO(v *View) Result {
	return v.judgeGroups("no service has an I/O limit", func(l *ledger, c *observe.Cgroup) judged {
		uses := v.ioUses(c)
		if len(uses) == 0 {
			return judged{}
		}
		u := &uses[0]
		text := fmt.Sprintf("%s used %s of the %s a second that it may have on %s", c.Path, percent(min(u.share, 1)), u.what, u.limit.Disk)
		if u.share < ioOfLimit {
			return judged{because: text, near: u.share}
		}
		k, much := v.waitsForDisk(l)
		if !much {
			return judged{because: text + ", but no request is slow for it: " + l.whereTimeGoes(), near: u.share}
		}
		h := v.holderOfGroup(c)
		f := v.found(l, k, threadFloor, "waiting for the disk")
		f.Subject.Kind, f.Subject.Path = "cgroup", c.Path
		used := Evidence{Fact: u.what + " a second on " + u.limit.Disk + " by " + h.text, Value: u.text(u.done), Limit: u.text(u.most), Unit: "allowed", Source: u.limit.File}
		if u.done > u.most { // what was let through before the window began is done in it
			used.Value, used.Limit, used.Unit = fmt.Sprintf("%s, all that its limit of %s lets through", u.text(u.done), u.text(u.most)), nil, ""
		}
		f.Evidence = append(f.Evidence, used)
		f.Evidence = append(f.Evidence, v.diskEvidence(u.limit.Number)...)
		if !u.reads() {
			f.Parents = []Parent{}
		}
		f.Fix.Text = fmt.Sprintf("Raise the limit of %s: %s a second on %s, now %s.%s", h.text, u.what, u.limit.Disk, u.text(u.most), h.setsWhere())
		file, value := u.command(c, wantedIO)
		h.raise(&f.Fix, file, value, raised{run: u.flag(wantedIO), systemd: fmt.Sprintf("%s=/dev/%s %.0f", u.systemd, u.limit.Disk, wantedIO*u.most)})
		return judged{finding: f}
	})
}

// wantedMemoryHigh and wantedTasks are the limits that are proposed for a group.
func wantedMemoryHigh(c *observe.Cgroup) uint64 { return 2 * max(c.MemoryUsedBytes, c.MemoryHighBytes) }
func wantedTasks(c *observe.Cgroup) uint64      { return max(4*c.PIDsLimit, 512) }

func checkPIDs(v *View) Result {
	return v.judgeGroups("no service was refused a process or thread", func(l *ledger, c *observe.Cgroup) judged {
		if c.PIDsLimit == 0 {
			return judged{}
		}
		text := fmt.Sprintf("%s has %s, and was refused %s", c.Path, ofLimit(c.Tasks, c.PIDsLimit, "tasks"), count(c.PIDsRefused))
		if c.PIDsRefused == 0 {
			return judged{because: text, near: ratio(c.Tasks, c.PIDsLimit)}
		}
		lost := l.lostRequests()
		k := l.cost(1, threadParts...)
		slow := l.noticed(k, threadFloor)
		if !l.enough(lost) && !slow {
			return judged{because: text + ", but its requests are answered in time", near: 1 + ratio(c.Tasks, c.PIDsLimit)}
		}
		h := v.holderOfGroup(c)
		f := v.found(l, k, threadFloor, "waiting for a thread")
		f.Subject.Kind, f.Subject.Path = "cgroup", c.Path
		if share := ratio(lost, l.Requests); l.enough(lost) && (!slow || share > f.Impact.Share) {
			f.Weight = share
			f.Impact = Impact{Share: round(share), Of: "requests", Text: fmt.Sprintf("%s of %s got no whole answer", count(lost), l.all())}
		}
		f.Evidence = append([]Evidence{
			{Fact: "processes and threads that could not be started", Value: c.PIDsRefused, Source: "pids.events max"},
			{Fact: "tasks of " + h.text, Value: c.Tasks, Limit: c.PIDsLimit, Source: "pids.current, pids.max"}}, f.Evidence...)
		want := wantedTasks(c)
		f.Fix.Text = fmt.Sprintf("Raise the limit of tasks of %s from %s; if their number keeps growing, find out who starts them.%s", h.text, count(c.PIDsLimit), h.setsWhere())
		h.raise(&f.Fix, c.PIDsFile, utoa(want), raised{docker: shell.Line("--pids-limit %s", want), systemd: "TasksMax=" + utoa(want), kubelet: "podPidsLimit: " + utoa(want)})
		return judged{finding: f}
	})
}
