package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// ScheduledJobCollision: what takes the CPUs or a disk from a service was
// started by cron or a timer: it comes again at the same time.
const ScheduledJobCollision ID = "scheduled-job-collision"

var scheduledJobCollision = Cause{
	ID:    ScheduledJobCollision,
	Title: "A scheduled job takes CPUs or disk",
	Layer: LayerMachine,
	Class: ClassHost,
	Needs: []observe.Kind{observe.KindCPU, observe.KindProcess, observe.KindDisk},
	Check: checkScheduledJob,
	Try:   foundOnly,
}

// schedulers are programs that start others at given times, as the kernel
// shortens their names.
var schedulers = []string{"cron", "crond", "anacron", "atd", "fcron", "systemd-cron", "supercronic", "busybox-crond", "dcron", "jobber"}

// timerUnits are units that systemd's own timers start on usual systems; that a
// unit was started by a timer is not written in /proc.
var timerUnits = []string{"apt-daily", "apt-daily-upgrade", "unattended-upgrades", "dnf-makecache", "dnf-automatic", "logrotate", "man-db", "mlocate-updatedb", "plocate-updatedb", "updatedb",
	"fstrim", "e2scrub_all", "btrfs-scrub", "mdcheck_start", "mdcheck_continue", "raid-check", "certbot", "sysstat-collect", "sysstat-summary", "systemd-tmpfiles-clean", "backup", "restic", "borgmatic", "clamav-freshclam", "aide", "dailyaidecheck"}

// job is processes that a scheduler started.
type job struct {
	root  *observe.Process // the first of them
	by    string           // which scheduler
	cpu   float64          // s, with its children
	bytes uint64           // to and from disks
}

// jobOf is the process that a scheduler started, of which this is one or a
// child; nil when none did.
func (v *View) jobOf(p *observe.Process) (root *observe.Process, by string) {
	unit, _, _ := strings.Cut(p.Unit, ".")
	unit, _, _ = strings.Cut(unit, "@")
	if unit != "" && slices.Contains(timerUnits, unit) {
		return p, "a timer (" + p.Unit + ")"
	}
	for range 16 {
		parent := v.Process(p.PPID)
		if parent == nil || parent.PID <= 1 {
			return nil, ""
		}
		if slices.Contains(schedulers, strings.ToLower(parent.Comm)) && !slices.Contains(schedulers, strings.ToLower(p.Comm)) {
			return p, fmt.Sprintf("%s (pid %d)", parent.Comm, parent.PID)
		}
		p = parent
	}
	return nil, ""
}

// jobs sums up what scheduled jobs used, and what all did that is not on the
// requests' way.
func (v *View) jobs() (list []*job, cpu float64, bytes uint64) {
	byRoot := map[string]*job{}
	for i := range v.Processes {
		p := &v.Processes[i]
		if !v.outsider(p) {
			continue
		}
		cpu += p.CPUSeconds()
		bytes += p.MovedBytes()
		root, by := v.jobOf(p)
		if root == nil {
			continue
		}
		key := itoa(root.PID)
		if strings.HasPrefix(by, "a timer") {
			key = root.Unit
		}
		j := byRoot[key]
		if j == nil {
			j = &job{root: root, by: by}
			byRoot[key] = j
			list = append(list, j)
		}
		j.cpu += p.CPUSeconds()
		j.bytes += p.MovedBytes()
	}
	return list, cpu, bytes
}

func checkScheduledJob(v *View) Result {
	list, cpu, bytes := v.jobs()
	if len(list) == 0 {
		return ruledOut("no process that cron or a timer started used the CPUs or a disk")
	}
	top := slices.MaxFunc(list, func(a, b *job) int {
		switch {
		case a.cpu+float64(a.bytes)/1e9 < b.cpu+float64(b.bytes)/1e9:
			return -1
		case a.cpu+float64(a.bytes)/1e9 > b.cpu+float64(b.bytes)/1e9:
			return 1
		}
		return b.root.PID - a.root.PID
	})
	name := fmt.Sprintf("%s (pid %d), started by %s,", top.root.Comm, top.root.PID, top.by)
	text := fmt.Sprintf("%s used %s of CPU and moved %d MB", name, seconds(top.cpu), top.bytes>>20)
	for _, of := range []struct {
		result Result
		share  float64
		what   string
	}{
		{checkCPUSaturated(v), ratio(top.cpu, cpu), "the CPUs"},
		{checkDiskSaturated(v), ratio(top.bytes, bytes), "a disk"},
	} {
		if len(of.result.Findings) == 0 || of.share < jobShare {
			continue
		}
		child := &of.result.Findings[0]
		f := supported(Subject{Kind: "process", PID: top.root.PID, Comm: top.root.Comm})
		f.Weight, f.Impact = child.Weight, child.Impact
		f.Title = fmt.Sprintf("A scheduled job, %s, takes %s", top.root.Comm, of.what)
		f.Evidence = append([]Evidence{
			{Fact: "who started it", Value: top.by, Source: "/proc/PID/stat"},
			{Fact: "it and its children use, of what others take of " + of.what, Value: round(of.share), Limit: 1, Unit: "share", Source: "/proc/PID/stat, /proc/PID/io"},
		}, child.Evidence...)
		f.Fix.Changes = niceChanges(v.family(top.root), 19)
		f.Fix.Text = "Run it at another time, or let it give way to the service."
		var family []string // of a job it is the children that do the work
		for _, p := range v.family(top.root) {
			family = append(family, itoa(p.PID))
		}
		pids := strings.Join(family[:min(len(family), 8)], ",")
		f.Fix.Commands = []shell.Command{shell.Line("ps -o pid,ppid,lstart,args -g $(ps -o sid= -p %s)", top.root.PID), shell.Line("renice -n 19 -p $(ps -L -o lwp= -p %s)", pids), shell.Line("ionice -c 3 -p $(ps -L -o lwp= -p %s)", pids),
			shell.Line("systemctl list-timers; ls /etc/cron* /var/spool/cron")}
		return Result{Findings: []Finding{f}}
	}
	return ruledOut(text + "; no request is slow for that")
}
