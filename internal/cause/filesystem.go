package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

const (
	DiskFull           ID = "disk-full"
	InodesExhausted    ID = "inodes-exhausted"
	ShmFull            ID = "shm-full"
	FilesystemReadOnly ID = "filesystem-read-only"
	DiskQuotaExceeded  ID = "disk-quota-exceeded"
	DiskIOErrors       ID = "disk-io-errors"
)

// Causes about file systems that take nothing more, by the calls that fail on
// them: see judgeLack. A full file system on which nothing fails that a request
// needs is none.
var (
	// diskFull: ENOSPC, with no byte left. Reproduced in the lab.
	diskFull = Cause{
		ID: DiskFull, Title: "A file system is full",
		Layer: LayerMachine, Needs: []observe.Kind{observe.KindErrors, observe.KindRequests, observe.KindFiles},
		Check: checkNoSpace("full"),
	}
	// inodesExhausted: ENOSPC, with bytes left and no inode.
	inodesExhausted = Cause{
		ID: InodesExhausted, Title: "A file system is out of inodes",
		Layer: LayerMachine, Needs: []observe.Kind{observe.KindErrors, observe.KindRequests, observe.KindFiles},
		Check: checkNoSpace("inodes"),
	}
	// shmFull: ENOSPC on a file system that lives in memory.
	shmFull = Cause{
		ID: ShmFull, Title: "A tmpfs is full",
		Layer: LayerMachine, Needs: []observe.Kind{observe.KindErrors, observe.KindRequests, observe.KindFiles},
		Check: checkNoSpace("memory"),
	}
	// filesystemReadOnly: EROFS.
	filesystemReadOnly = Cause{
		ID: FilesystemReadOnly, Title: "A file system is read-only",
		Layer: LayerMachine, Needs: []observe.Kind{observe.KindErrors, observe.KindRequests, observe.KindFiles},
		ConsequenceOf: []Parent{DiskIOErrors}, Folds: true,
		Check: checkReadOnly,
	}
	// diskQuotaExceeded: EDQUOT. A file system with quotas cannot be made in the
	// lab.
	diskQuotaExceeded = Cause{
		ID: DiskQuotaExceeded, Title: "A disk quota is exceeded",
		Layer: LayerMachine, Needs: []observe.Kind{observe.KindErrors, observe.KindRequests},
		Check: checkQuota,
	}
	// diskIOErrors: EIO, or EUCLEAN for what is damaged on the disk. A disk that
	// fails cannot be made in the lab (there is no device mapper).
	diskIOErrors = Cause{
		ID: DiskIOErrors, Title: "A disk fails with I/O errors",
		Layer: LayerMachine, Needs: []observe.Kind{observe.KindErrors, observe.KindRequests},
		Check: checkIOErrors,
	}
)

// noSpaceCalls are calls for which ENOSPC is not about a file system.
var noSpaceCalls = []string{"inotify_add_watch", "shmget", "semget", "msgget", "epoll_ctl"}

// lacksWhat says what is used up of the file system that a call failed on.
func (v *View) lacksWhat(e *observe.CallError) string {
	f := v.filesystemOf(e)
	switch {
	case f == nil:
		return "full"
	case f.Inodes > 0 && ratio(f.FreeInodes, f.Inodes) < fullShare && !isFull(f):
		return "inodes"
	case f.Type == "tmpfs" || f.Type == "ramfs" || f.Type == "hugetlbfs":
		return "memory"
	}
	return "full"
}

// filesystemOf is the file system that a call failed on; nil when that is not
// known, or it was not looked at.
func (v *View) filesystemOf(e *observe.CallError) *observe.Filesystem {
	switch {
	case e.Device != "":
		return v.mounts[mount{device: e.Device}]
	case e.Mount != "":
		return v.mounts[mount{dir: e.Mount, ns: e.MountNS}]
	}
	return nil
}

func checkNoSpace(what string) func(*View) Result {
	return func(v *View) Result {
		return v.judgeLack(func(e *observe.CallError) bool {
			return e.Error == "ENOSPC" && !slices.Contains(noSpaceCalls, e.Call) && v.lacksWhat(e) == what
		}, v.fullest(what), func(k *lack, f *Finding) {
			fs := v.filesystemOf(k.first())
			if fs == nil {
				f.Fix.Text = "Find out which file system it writes to, and make room there."
				f.Fix.Commands = []shell.Command{shell.Line("df -h"), shell.Line("df -i")}
				return
			}
			v.aboutFilesystem(f, fs)
			f.Fix.Text, f.Fix.Commands = v.makeRoom(fs, what)
		})
	}
}

// isFull says that no byte to speak of is left.
func isFull(f *observe.Filesystem) bool { return ratio(f.FreeBytes, f.SizeBytes) < fullShare }

// fullest says how full the file systems of the services are, where no call
// failed.
func (v *View) fullest(what string) string {
	none := "no write of a service failed because space ran out"
	top, text := -1.0, ""
	for i := range v.Filesystems {
		f := &v.Filesystems[i]
		inMemory := f.Type == "tmpfs" || f.Type == "ramfs"
		used := 1 - ratio(f.FreeBytes, f.SizeBytes)
		if what == "inodes" {
			used = 1 - ratio(f.FreeInodes, f.Inodes)
		}
		if used <= top || (what == "memory") != inMemory && what != "inodes" || what == "inodes" && f.Inodes == 0 || f.ReadOnlyFS {
			continue
		}
		top = used
		text = fmt.Sprintf("; fullest is %s (%s), %s used", f.Dir, f.Type, percent(used))
		if what == "inodes" {
			text = fmt.Sprintf("; most inodes are used on %s (%s): %s of %s", f.Dir, f.Type, count(f.Inodes-f.FreeInodes), count(f.Inodes))
		}
	}
	return none + text
}

// aboutFilesystem puts a file system into a finding.
func (v *View) aboutFilesystem(f *Finding, fs *observe.Filesystem) {
	f.Subject.Path = fs.Dir
	f.Evidence = append(f.Evidence,
		Evidence{Fact: fmt.Sprintf("free on %s (%s on %s)", fs.Dir, fs.Type, fs.Source), Value: fs.FreeBytes, Limit: fs.SizeBytes, Unit: "bytes", Source: "statfs(2), at the end of the window"})
	if fs.Inodes > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "free inodes there", Value: fs.FreeInodes, Limit: fs.Inodes, Unit: "inodes", Source: "statfs(2)"})
	}
}

// makeRoom says how a file system gets room again.
func (v *View) makeRoom(fs *observe.Filesystem, what string) (string, []shell.Command) {
	dir := v.seenAt(fs.PID, fs.MountNS, fs.Dir)
	switch what {
	case "inodes":
		return fmt.Sprintf("Delete files on %s: it is their number that counts, so look for directories with very many (sessions, caches, mail queues). How many inodes there are is fixed when the file system is made.", fs.Dir),
			[]shell.Command{shell.Line("du --inodes -x -d 3 %s | sort -n | tail", dir), shell.Line("df -i %s", dir)}
	case "memory":
		if v.elsewhere(fs.MountNS) {
			return fmt.Sprintf("Delete files on %s, or make it larger where it is mounted for pid %d (docker run --shm-size or --tmpfs, sizeLimit of an emptyDir, the unit): it lives in memory, so there must be enough of that.", fs.Dir, fs.PID),
				[]shell.Command{shell.Line("du -xa %s | sort -n | tail -20", dir)}
		}
		return fmt.Sprintf("Delete files on %s, or make it larger: it lives in memory, so there must be enough of that.", fs.Dir),
			[]shell.Command{shell.Line("du -xa %s | sort -n | tail -20", dir), shell.Line("mount -o remount,size=%sM %s", max(2*fs.SizeBytes>>20, 16), dir)}
	}
	return fmt.Sprintf("Make room on %s: old logs and dumps first. What was deleted while a process has it open is freed when that closes it.", fs.Dir),
		[]shell.Command{shell.Line("du -xa %s | sort -n | tail -20", dir), shell.Line("lsof -nP +L1   # deleted, and still open"), shell.Line("df -h %s", dir)}
}

func checkReadOnly(v *View) Result {
	none := "no write of a service failed because a file system is read-only"
	if l := v.kernelLine("read-only"); l != nil {
		none += fmt.Sprintf(", though the kernel log has %q", l.Example)
	}
	return v.judgeLack(func(e *observe.CallError) bool { return e.Error == "EROFS" }, none, func(k *lack, f *Finding) {
		fs := v.filesystemOf(k.first())
		for _, kind := range []string{"read-only", "file-system-error", "io-error"} {
			if l := v.kernelLine(kind); l != nil {
				f.Evidence = append(f.Evidence, Evidence{Fact: "the kernel logged", Value: l.Example, Unit: fmt.Sprintf("(%s times)", count(l.Count)), Source: "kernel log"})
			}
		}
		if fs == nil {
			f.Fix.Text = "Find out why the file system is read-only: the kernel log names the error, if there was one."
			f.Fix.Commands = []shell.Command{shell.Line("dmesg | grep -i -e read-only -e 'I/O error'"), shell.Line("findmnt -O ro")}
			return
		}
		f.Subject.Path = fs.Dir
		state := "this mount is read-only, the file system is not"
		f.Fix.Text = fmt.Sprintf("%s is mounted read-only there: if that is meant, the service has to write elsewhere; if not, mount it writable.", fs.Dir)
		if fs.ReadOnlyFS {
			state = "the whole file system is read-only"
			f.Fix.Text = fmt.Sprintf("%s is read-only. If an error made it so (the kernel log tells), save the data and check the file system before anything is written again; if somebody mounted it so, mount it writable.", fs.Dir)
		}
		f.Evidence = append(f.Evidence, Evidence{Fact: fmt.Sprintf("state of %s (%s on %s)", fs.Dir, fs.Type, fs.Source), Value: state, Source: "/proc/PID/mountinfo"})
		f.Fix.Commands = []shell.Command{shell.Line("dmesg | grep -i -e read-only -e 'I/O error' -e %s", shell.Word(strings.TrimPrefix(fs.Source, "/dev/")))}
		if v.elsewhere(fs.MountNS) {
			f.Fix.Text += fmt.Sprintf(" It is mounted for pid %d and those that share its mounts (a volume of a container, ReadOnlyPaths= or ProtectSystem= of a unit): change it there.", fs.PID)
			return
		}
		f.Fix.Commands = append(f.Fix.Commands, shell.Line("mount -o remount,rw %s", shell.Path(fs.Dir)))
	})
}

// kernelLine is what the kernel logged of a kind in the window; nil if nothing.
func (v *View) kernelLine(kind string) *observe.KernelLine {
	if lines := v.logged[kind]; len(lines) > 0 {
		return lines[0]
	}
	return nil
}

func checkQuota(v *View) Result {
	match := func(e *observe.CallError) bool { return e.Error == "EDQUOT" && e.Call != "add_key" }
	return v.judgeLack(match, "no write of a service was refused for a disk quota", func(k *lack, f *Finding) {
		e := k.first()
		f.Fix.Text = fmt.Sprintf("Raise the quota of the user, group or project that %s writes as, or delete some of its files.", e.Comm)
		f.Fix.Commands = []shell.Command{shell.Line("repquota -a"), shell.Line("ps -o pid,user,group,args -p %s", e.PID)}
		if fs := v.filesystemOf(e); fs != nil {
			v.aboutFilesystem(f, fs)
		}
	})
}

// noDisk are paths on which EIO says nothing of a disk.
var noDisk = []string{"/dev/pts/", "/dev/tty", "/proc/", "/sys/", "socket:", "pipe:", "anon_inode:"}

func checkIOErrors(v *View) Result {
	none := "no read or write of a service ended with an I/O error"
	if l := v.kernelLine("io-error"); l != nil {
		none += fmt.Sprintf(", though the kernel logged %s of them: %q", count(l.Count), l.Example)
	}
	match := func(e *observe.CallError) bool {
		return (e.Error == "EIO" || e.Error == "EUCLEAN") && !slices.ContainsFunc(noDisk, func(p string) bool { return strings.HasPrefix(e.Path, p) })
	}
	return v.judgeLack(match, none, func(k *lack, f *Finding) {
		device := ""
		for i := range v.KernelLog {
			if l := &v.KernelLog[i]; l.Kind == "io-error" || l.Kind == "file-system-error" || l.Kind == "raid-failure" {
				f.Evidence = append(f.Evidence, Evidence{Fact: "the kernel logged", Value: l.Example, Unit: fmt.Sprintf("(%s times)", count(l.Count)), Source: "kernel log"})
				if device == "" {
					device = l.Subject
				}
			}
		}
		f.Fix.Text = "Save the data and replace the disk, or see why it cannot be reached (cable, controller, storage network)."
		f.Fix.Commands = []shell.Command{shell.Line("dmesg | grep -i -e 'I/O error' -e 'medium error'")}
		if fs := v.filesystemOf(k.first()); fs != nil {
			v.aboutFilesystem(f, fs)
		}
		if device != "" {
			f.Subject.Kind, f.Subject.Path = "disk", "/dev/"+device
			f.Fix.Commands = append(f.Fix.Commands, shell.Line("smartctl -a /dev/%s", device))
		}
	})
}
