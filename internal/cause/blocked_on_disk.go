package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// FsyncBound: threads that should answer wait until what they wrote has reached
// the disk.
const FsyncBound ID = "fsync-bound"

var fsyncBound = Cause{
	ID:            FsyncBound,
	Title:         "Requests wait for fsync()",
	Layer:         LayerApplication,
	Class:         ClassWait,
	Needs:         []observe.Kind{observe.KindWaits},
	ConsequenceOf: []Parent{DiskSaturated, CgroupIOThrottled, PageCacheThrash, MemoryHighThrottled, RAIDDegraded},
	Folds:         true,
	Check:         checkFsyncBound,
	Try: func(v *View, t Target) []Change {
		// A second of writes may be lost in a crash, as the finding says.
		d := v.databaseFor(t)
		if d == nil || d.Settings["appendfsync"].Value != "always" {
			return nil
		}
		return setRedis(d, "appendfsync", "always", "everysec")
	},
}

// BlockedOnDisk: threads that should answer wait for storage: a disk, a network
// file system, a file system in user space.
const BlockedOnDisk ID = "blocked-on-disk"

var blockedOnDisk = Cause{
	ID:    BlockedOnDisk,
	Title: "Requests wait for storage",
	Layer: LayerApplication,
	Class: ClassWait,
	Needs: []observe.Kind{observe.KindWaits},
	ConsequenceOf: []Parent{DiskSaturated, MemoryPressure, ProcessStopped, CgroupIOThrottled, PageCacheThrash, MemoryHighThrottled,
		RAIDDegraded, CachesDropped, SlabBloat},
	Folds: true,
	Check: checkBlockedOnDisk,
}

func checkFsyncBound(v *View) Result {
	return v.judgeRoots(FsyncBound, "no thread that answers requests was seen to wait in fsync()", func(r *root, f *Finding) {
		h := r.last()
		f.Subject.Path = r.example().Path
		f.Title = fmt.Sprintf("Requests of %s wait for %s()", v.Comm(r.shares[0].PID), h.Syscall)
		f.Evidence = append(f.Evidence, Evidence{Fact: "file", Value: h.Object, Source: "/proc/PID/fd"})
		f.Evidence = append(f.Evidence, v.diskEvidence(r.store())...)
		f.Fix.Text = "Let several requests share a sync (group commit), or sync in the background where losing the last second in a crash is allowed (Redis: appendfsync everysec; MariaDB: innodb_flush_log_at_trx_commit = 2); or put these files on storage that is quick to confirm a write."
		f.Fix.Commands = []shell.Command{lookAtWaits(h.Process.PID)}
	})
}

func checkBlockedOnDisk(v *View) Result {
	return v.judgeRoots(BlockedOnDisk, "no thread that answers requests was seen to wait for storage", func(r *root, f *Finding) {
		c, h := r.example(), r.last()
		if r.at < len(c.Hops)-1 {
			onServer(v, r, f)
			return
		}
		f.Subject.Path = c.Path
		f.Evidence = append(f.Evidence, Evidence{Fact: "what is waited for", Value: strings.TrimSpace(h.Object + " " + c.Text), Source: "/proc/PID/task/TID/stack"})
		switch {
		case c.End == observe.EndFuse:
			f.Title = "A FUSE file system does not answer"
			f.Fix.Text = fmt.Sprintf("Look at the process that serves %s (FUSE): it does not answer. Ending it, or umount -f, lets the waiting calls fail.", nameOf(c.Path))
			f.Fix.Commands = []shell.Command{shell.Line("findmnt -t fuse,fuse.sshfs,fuseblk -o TARGET,SOURCE,FSTYPE")}
		default:
			f.Evidence = append(f.Evidence, v.diskEvidence(r.store())...)
			if at := r.storedOn(); at != nil {
				if x := v.volumeOf(at); x != nil && x.claim() != "" {
					f.Title = "Requests wait for PersistentVolumeClaim " + x.claim()
				}
			}
			f.Fix.Text = "Find who else keeps the disk busy, and what these threads read or write: it is not in memory."
			f.Fix.Commands = []shell.Command{shell.Line("iostat -x 1 5"), lookAtWaits(h.Process.PID)}
		}
	})
}

// onServer is about requests that wait for the process which serves a file system.
func onServer(v *View, r *root, f *Finding) {
	c, waiter := r.example(), r.blamed()
	server := &c.Hops[r.at+1]
	does := doesWhere(c, r.at+1)
	f.Title = fmt.Sprintf("Requests wait for %s, a slow FUSE server", server.Process.Comm)
	f.Subject.PID, f.Subject.Comm, f.Subject.Path = server.Process.PID, server.Process.Comm, objectOf(waiter)
	if v.Master(server.Process.PID) != v.Master(r.shares[0].PID) {
		f.Subject.Port = 0
	}
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "what is waited for", Value: strings.TrimSpace(waiter.Syscall + " " + objectOf(waiter)), Source: "/proc/PID/task/TID/syscall, stack"},
		Evidence{Fact: "who serves it", Value: fmt.Sprintf("%s, which %s", who(server), does), Source: "/proc/PID/fd, /proc/PID/task/TID"})
	text := fmt.Sprintf("%s answers each call on this file system (FUSE), and it %s", who(server), does)
	switch last := r.last(); {
	case last.Remote != "":
		text += fmt.Sprintf(": the file system is as quick as %s answers. Look there", last.Remote)
	case server.Kind == observe.WaitSleep:
		text += ": look for a limit or a pause in its options or its code (a rate, a retry, an interval)"
	case server.Kind == observe.WaitRunnable:
		text += ": see what it computes, and give it more threads if it has only one"
	}
	f.Fix.Text = text + ". Let the kernel keep what it has answered (kernel_cache, entry_timeout, attr_timeout), or keep what requests read on a local disk."
	f.Fix.Commands = []shell.Command{lookAtWaits(server.Process.PID), shell.Line("ps -o pid,user,lstart,args -p %s", server.Process.PID)}
}

// diskEvidence is the disk that files lie on, else, where that is not known, the busiest. Of
// files on a server there is none.
func (v *View) diskEvidence(store string) []Evidence {
	if len(v.Use.Disks) == 0 || !isDisk(store) {
		return nil
	}
	d, what := v.diskNumbered(store), "disk of these files, "
	if d == nil {
		busiest := slices.MaxFunc(v.Use.Disks, func(a, b observe.Disk) int {
			return cmp.Or(cmp.Compare(a.BusySeconds, b.BusySeconds), strings.Compare(b.Name, a.Name))
		})
		d, what = &busiest, "busiest disk, "
	}
	out := []Evidence{{Fact: what + d.Name, Value: round(ratio(d.BusySeconds, v.Window.Seconds)), Unit: "share of the time", Source: "/proc/diskstats"}}
	if d.Writes > 0 {
		out = append(out, Evidence{Fact: "a write on " + d.Name + " takes, mean", Value: round(1000 * d.WriteSeconds / float64(d.Writes)), Unit: "ms", Source: "/proc/diskstats"})
	}
	return append(out, v.claimEvidence(d.Number)...)
}

// claimEvidence is the volumes of pods on a block device, by its number.
func (v *View) claimEvidence(number string) []Evidence {
	if v.Kubernetes == nil || number == "" {
		return nil
	}
	var out []Evidence
	for i := range v.Kubernetes.Pods {
		p := &v.Kubernetes.Pods[i]
		for _, m := range p.Volumes {
			if m.Claim != "" && (m.Device == number || m.Store == number) && len(out) < 3 {
				w := p.Workload(m.Container, &v.Kubernetes.Node)
				out = append(out, Evidence{Fact: "claim on it, of " + w.ContainerText(), Value: m.Claim, Source: "spec.volumes, /proc/PID/mountinfo"})
			}
		}
	}
	return unique(out)
}
