package cause

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

const (
	MaxMapCount     ID = "max-map-count"
	CommitLimit     ID = "commit-limit"
	FileMax         ID = "file-max"
	InotifyLimit    ID = "inotify-limit"
	AIOLimit        ID = "aio-limit"
	SysVIPCLimit    ID = "sysv-ipc-limit"
	FileSizeLimit   ID = "file-size-limit"
	NFSStaleHandle  ID = "nfs-stale-handle"
	SecurityDenials ID = "security-denials"
)

// Causes about limits of the kernel that system calls run into, by the calls
// that fail for them: see judgeLack.
var (
	// maxMapCount: ENOMEM for a mapping, with vm.max_map_count mappings.
	// Reproduced in the lab.
	maxMapCount = limitCause(MaxMapCount, checkMaxMapCount, onHost(func(v *View) []Change { return v.raised(nil, "vm.max_map_count", v.wantedMaps()) }), "vm.max_map_count reached")
	// commitLimit: ENOMEM with vm.overcommit_memory 2. The mode is host-wide, so
	// that it is not made in the lab.
	commitLimit = limitCause(CommitLimit, checkCommitLimit, nil, "The commit limit is reached (vm.overcommit_memory 2)")
	// fileMax: ENFILE. The limit is host-wide, and does not bind root: it is not
	// made in the lab.
	fileMax = limitCause(FileMax, checkFileMax, onHost(func(v *View) []Change { return v.raised(nil, "fs.file-max", v.wantedFiles()) }), "The host is out of open files (fs.file-max)", FDLimit)
	// inotifyLimit: the user has no watch, or no instance, left.
	inotifyLimit = limitCause(InotifyLimit, checkInotify, onHost(tryInotify), "inotify limit reached")
	// aioLimit: io_setup(2) fails with EAGAIN. The limit is host-wide.
	aioLimit = limitCause(AIOLimit, checkAIO, onHost(func(v *View) []Change { return v.raised(nil, "fs.aio-max-nr", v.wantedAIO()) }), "Asynchronous I/O limit reached (fs.aio-max-nr)")
	// sysvLimit: no shared memory segment, semaphore set or message queue left.
	sysvLimit = limitCause(SysVIPCLimit, checkSysV, nil, "System V IPC limit reached")
	// fileSizeLimit: EFBIG.
	fileSizeLimit = limitCause(FileSizeLimit, checkFileSize, foundOnly, "File size limit reached (EFBIG)")
	// staleHandle: ESTALE. No network file system can be made in the lab.
	staleHandle = limitCause(NFSStaleHandle, checkStale, nil, "Stale NFS file handle (ESTALE)")
	// securityDenials: EACCES or EPERM for a file.
	securityDenials = limitCause(SecurityDenials, checkDenials, nil, "The service is denied access to files")
)

// limitCause declares a limit of the kernel that system calls run into.
func limitCause(id ID, check func(*View) Result, try func(*View, Target) []Change, title string, follows ...Parent) Cause {
	return Cause{ID: id, Title: title, Layer: LayerMachine, Needs: []observe.Kind{observe.KindErrors, observe.KindRequests},
		ConsequenceOf: follows, Folds: len(follows) > 0, Check: check, Try: try}
}

// mapCalls are the calls that make, move or split mappings.
var mapCalls = []string{"mmap", "mprotect", "munmap", "mremap", "madvise", "brk", "clone", "clone3", "fork", "mlock"}

// sysctlNumber is the n-th number of a knob of the host; 0 when it is not known.
func (v *View) sysctlNumber(name string, n int) uint64 {
	f := strings.Fields(v.Sysctl[name])
	if n >= len(f) {
		return 0
	}
	value, _ := strconv.ParseUint(f[n], 10, 64)
	return value
}

// outOfMaps says that a process that got ENOMEM has all the mappings it may.
func (v *View) outOfMaps(pid int) bool {
	p, limit := v.Process(pid), v.sysctlNumber("vm.max_map_count", 0)
	return p != nil && limit > 0 && float64(p.Maps) >= nearLimit*float64(limit)
}

func checkMaxMapCount(v *View) Result {
	limit := v.sysctlNumber("vm.max_map_count", 0)
	match := func(e *observe.CallError) bool {
		return e.Error == "ENOMEM" && slices.Contains(mapCalls, e.Call) && v.outOfMaps(e.PID)
	}
	return v.judgeLack(match, "no process that was refused a mapping has as many as it may", func(k *lack, f *Finding) {
		e := k.first()
		f.Evidence = append(f.Evidence, Evidence{Fact: "memory mappings of " + e.Comm, Value: v.Process(e.PID).Maps, Limit: limit, Unit: "mappings", Source: "/proc/PID/maps, vm.max_map_count"})
		f.Fix.Text = fmt.Sprintf("Raise vm.max_map_count on the host (it is one for all containers), or have %s map fewer and larger pieces: many threads, guard pages and mapped files are what uses them.", e.Comm)
		v.setSysctl(&f.Fix, nil, "vm.max_map_count", v.wantedMaps())
	})
}

func checkCommitLimit(v *View) Result {
	m := &v.Use.Memory
	strict := v.sysctlNumber("vm.overcommit_memory", 0) == 2
	none := "no call of a service was refused memory: the kernel promises beyond what it has (vm.overcommit_memory is not 2)"
	if strict {
		none = fmt.Sprintf("no call of a service was refused memory; %s are promised", memoryOf(m.Committed, m.CommitLimit))
	}
	match := func(e *observe.CallError) bool {
		return strict && e.Error == "ENOMEM" && slices.Contains(mapCalls, e.Call) && !v.outOfMaps(e.PID) && float64(m.Committed) >= nearLimit*float64(m.CommitLimit)
	}
	return v.judgeLack(match, none, func(k *lack, f *Finding) {
		f.Evidence = append(f.Evidence, Evidence{Fact: "memory promised", Value: m.Committed, Limit: m.CommitLimit, Unit: "bytes", Source: "/proc/meminfo Committed_AS, CommitLimit"})
		f.Fix.Text = "End what has been promised most, add memory or swap, or raise vm.overcommit_ratio on the host; with vm.overcommit_memory 0 the kernel refuses only what is absurd."
		f.Fix.Commands = []shell.Command{shell.Line("sysctl vm.overcommit_memory vm.overcommit_ratio"), shell.Line("ps -eo pid,vsz,rss,comm --sort=-vsz | head")}
	})
}

func checkFileMax(v *View) Result {
	open, limit := v.sysctlNumber("fs.file-nr", 0), v.sysctlNumber("fs.file-max", 0)
	none := "no call failed for lack of a file"
	if limit > 0 {
		none += fmt.Sprintf("; %s are open on the host", ofLimit(open, limit, "files"))
	}
	// accept() without one is reported by fd-limit, for all that listen.
	match := func(e *observe.CallError) bool { return e.Error == "ENFILE" && !strings.HasPrefix(e.Call, "accept") }
	return v.judgeLack(match, none, func(_ *lack, f *Finding) {
		f.Evidence = append(f.Evidence, Evidence{Fact: "files open on the host", Value: open, Limit: limit, Unit: "files", Source: "/proc/sys/fs/file-nr"})
		f.Fix.Text = "Find who holds so many files, and raise fs.file-max on the host."
		v.setSysctl(&f.Fix, nil, "fs.file-max", v.wantedFiles())
		f.Fix.Commands = append(f.Fix.Commands, shell.Line("lsof -n | awk '{print $1, $2}' | sort | uniq -c | sort -n | tail"))
	})
}

func checkInotify(v *View) Result {
	match := func(e *observe.CallError) bool {
		return e.Call == "inotify_add_watch" && e.Error == "ENOSPC" || strings.HasPrefix(e.Call, "inotify_init") && e.Error == "EMFILE"
	}
	return v.judgeLack(match, "no service was refused an inotify watch or instance", func(k *lack, f *Finding) {
		knob, want := v.inotifyWanted(k.first().Error)
		limit := v.sysctlNumber(knob, 0)
		f.Fix.Changes = v.raised(nil, knob, want)
		f.Evidence = append(f.Evidence, Evidence{Fact: knob, Value: limit, Unit: "for each user", Source: "/proc/sys/fs/inotify"})
		f.Fix.Text = fmt.Sprintf("Raise %s on the host (in a user namespace the limit of who made it counts too), or watch less.", knob)
		v.setSysctl(&f.Fix, nil, knob, want)
	})
}

func checkAIO(v *View) Result {
	used, limit := v.sysctlNumber("fs.aio-nr", 0), v.sysctlNumber("fs.aio-max-nr", 0)
	none := "no call of io_setup() failed"
	if limit > 0 {
		none += fmt.Sprintf("; %s are in use", ofLimit(used, limit, "events"))
	}
	match := func(e *observe.CallError) bool { return e.Call == "io_setup" && e.Error == "EAGAIN" }
	return v.judgeLack(match, none, func(_ *lack, f *Finding) {
		f.Evidence = append(f.Evidence, Evidence{Fact: "events of asynchronous I/O", Value: used, Limit: limit, Unit: "events", Source: "/proc/sys/fs/aio-nr, aio-max-nr"})
		f.Fix.Text = "Raise fs.aio-max-nr on the host."
		v.setSysctl(&f.Fix, nil, "fs.aio-max-nr", v.wantedAIO())
	})
}

func checkSysV(v *View) Result {
	match := func(e *observe.CallError) bool {
		return slices.Contains([]string{"shmget", "semget", "msgget"}, e.Call) && (e.Error == "ENOSPC" || e.Error == "ENOMEM")
	}
	return v.judgeLack(match, "no service was refused a segment, semaphore set or queue", func(k *lack, f *Finding) {
		knob := map[string]string{"shmget": "kernel.shmmni", "semget": "kernel.sem", "msgget": "kernel.msgmni"}[k.first().Call]
		f.Fix.Text = fmt.Sprintf("Remove what ended programs left behind, or raise %s in the service's IPC namespace.", knob)
		f.Fix.Commands = []shell.Command{shell.Line("ipcs -a"), shell.Line("ipcs -l"), shell.Line("sysctl %s", shell.Sysctl(knob))}
	})
}

func checkFileSize(v *View) Result {
	match := func(e *observe.CallError) bool { return e.Error == "EFBIG" }
	return v.judgeLack(match, "no write of a service was refused for the size of a file", func(k *lack, f *Finding) {
		e := k.first()
		f.Fix.Text = fmt.Sprintf("Raise the limit of %s for the size of a file (RLIMIT_FSIZE), or rotate the file; a file system has a limit too (vfat: 4 GB).", e.Comm)
		if p := v.Process(e.PID); p != nil {
			f.Fix.Changes = []Change{rlimitChange(p, "fsize", "", "unlimited")}
		}
		f.Fix.Commands = []shell.Command{shell.Line("prlimit --pid %s --fsize", e.PID), shell.Line("prlimit --pid %s --fsize=unlimited", e.PID)}
	})
}

func checkStale(v *View) Result {
	match := func(e *observe.CallError) bool { return e.Error == "ESTALE" }
	return v.judgeLack(match, "no call of a service failed for a file that is gone at its server", func(k *lack, f *Finding) {
		f.Fix.Text = "What was opened has been removed or moved at the server, or the server exports another file system now: have the service open it again (a restart), and mount it anew if that does not help."
		f.Fix.Commands = []shell.Command{shell.Line("findmnt -t nfs,nfs4,cifs -o TARGET,SOURCE,OPTIONS")}
		if m := k.first().Mount; m != "" {
			f.Subject.Path = m
		}
	})
}

// fileCalls are calls that are refused for the rights on a file.
var fileCalls = []string{"open", "openat", "openat2", "creat", "mkdir", "mkdirat", "unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat", "symlink",
	"execve", "execveat", "chdir", "truncate", "mq_open", "connect", "bind"}

func checkDenials(v *View) Result {
	match := func(e *observe.CallError) bool {
		return (e.Error == "EACCES" || e.Error == "EPERM") && slices.Contains(fileCalls, e.Call) && !v.noWay(e)
	}
	none := "no service was refused a file"
	denied := v.kernelLine("denied")
	if denied != nil {
		none += fmt.Sprintf(", though the kernel logged %s denials: %q", count(denied.Count), denied.Example)
	}
	return v.judgeLack(match, none, func(k *lack, f *Finding) {
		e := k.first()
		f.Subject.Path = e.Path
		if denied != nil {
			f.Title = "A security policy denies the service what its requests need"
			f.Evidence = append(f.Evidence, Evidence{Fact: "the kernel logged", Value: denied.Example, Unit: fmt.Sprintf("(%s times)", count(denied.Count)), Source: "kernel log"})
			f.Fix.Text = "Look at the denials, and allow in the policy (AppArmor, SELinux, seccomp) what the service needs: the program, or the policy, has been changed."
			f.Fix.Commands = []shell.Command{shell.Line("dmesg | grep -e 'apparmor=\"DENIED\"' -e 'avc:  denied' -e type=1326 | tail")}
			return
		}
		f.Fix.Text = fmt.Sprintf("Give the user of %s the rights on the file and on the directories above it.", e.Comm)
		if e.Path != "" && strings.HasPrefix(e.Path, "/") {
			if v.elsewhere(e.MountNS) { // namei(1) would follow links of procfs by their text
				f.Fix.Commands = []shell.Command{shell.Line("ls -ldn %s", v.seenAt(e.PID, e.MountNS, path.Dir(e.Path))), shell.Line("ls -ldn %s", v.seenAt(e.PID, e.MountNS, e.Path))}
			} else {
				f.Fix.Commands = []shell.Command{shell.Line("namei -l %s", shell.Path(e.Path))}
			}
		}
		f.Fix.Commands = append(f.Fix.Commands, shell.Line("ps -o pid,user,group,label,args -p %s", e.PID))
	})
}
