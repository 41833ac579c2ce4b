package incident

import (
	"slices"
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// desk is a healthy server that needs something of the host.
func desk(is server.Desk) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(server.DeskApp)
		s.Desk = is
		return s
	}
}

// deskLoad leaves the CPUs with little to do: what is missing counts, not what
// it costs to find that out.
var deskLoad = load.Load{Conns: 10, Think: 5 * time.Millisecond}

// lacks is a service whose requests fail for lack of something.
func lacks(name, cause, summary, text string, healthy server.Desk, inject func(*server.Desk)) Incident {
	return Incident{
		Name: name, Summary: summary, Setup: desk(healthy), Load: deskLoad, Quick: true,
		Light:  !healthy.Segment && !healthy.Watch, // whose limits hold for the host, and so for a service next to it
		Faults: []Fault{{Name: "lack", Cause: cause, Text: text, Inject: func(s *server.Setup) { inject(&s.Desk) }}},
	}
}

// hostLacks is services that do not get of the host what their requests need.
func hostLacks() []Incident {
	return []Incident{
		lacks("disk-full", "disk-full", "a request writes a file, on a disk that is full", "old logs fill the disk",
			server.Desk{Store: "ext4"}, func(d *server.Desk) { d.Full = true }),
		lacks("inodes-exhausted", "inodes-exhausted", "a request writes a file, on a disk with room and without inodes", "small files take all inodes",
			server.Desk{Store: "ext4"}, func(d *server.Desk) { d.NoInodes = true }),
		lacks("tmpfs-full", "shm-full", "a request writes a file, on a file system in memory that is full", "old files fill it",
			server.Desk{Store: "tmpfs"}, func(d *server.Desk) { d.Full = true }),
		lacks("filesystem-read-only", "filesystem-read-only", "a request writes a file, and the disk becomes read-only", "it is mounted again, read-only",
			server.Desk{Store: "ext4"}, func(d *server.Desk) { d.ReadOnly = true }),
		lacks("max-map-count", "max-map-count", "a request maps memory, and the process has forgotten to unmap some", "it has all the mappings that the kernel allows",
			server.Desk{Map: true}, func(d *server.Desk) { d.Maps = 200_000 }),
		lacks("inotify-limit", "inotify-limit", "a request watches a file, and the user has no instance left", "the user has all the instances that it may",
			server.Desk{Watch: true}, func(d *server.Desk) { d.Watches = 100_000 }),
		lacks("file-denied", "security-denials", "a request reads a file, and somebody took the right to away", "the file belongs to root, and only root may read it",
			server.Desk{Open: true}, func(d *server.Desk) { d.Denied = true }),
		lacks("file-size-limit", "file-size-limit", "a request writes to the end of a file that may not grow any further", "RLIMIT_FSIZE is 64 KB",
			server.Desk{Append: true}, func(d *server.Desk) { d.FileLimit = 64 << 10 }),
		lacks("semaphores-used-up", "sysv-ipc-limit", "a request makes a set of semaphores, and programs that ended left theirs behind", "there are as many sets as there may be",
			server.Desk{Segment: true}, func(d *server.Desk) { d.Segments = 1_000_000 }),
	}
}

// slowedDown is a service whose requests wait for something of the host.
func slowedDown(name, cause, summary, text string, healthy server.Desk, l load.Load, inject func(*server.Desk)) Incident {
	i := lacks(name, cause, summary, text, healthy, inject)
	i.Load, i.Faults[0].Name = l, "slow"
	return i
}

// hostWaits is services whose requests wait for something of the host.
func hostWaits() []Incident {
	return append(slices.Concat(onHost(), manyCalls(), bySetup(), onTheWay()),
		slowedDown("syslog-blocked", "syslog-blocked", "a request sends a line to the system's log, and its daemon is slow", "the daemon takes 50 ms for a line",
			server.Desk{Syslog: true}, booking, func(d *server.Desk) { d.SyslogPause = 50 * time.Millisecond }),
		slowedDown("slow-console", "slow-console", "a request writes a line to a terminal, and what shows that is slow", "the program behind the terminal reads once in 400 ms",
			server.Desk{Console: true}, booking, func(d *server.Desk) { d.ConsolePause = 400 * time.Millisecond }),
		slowedDown("tracer-attached", "tracer-attached", "a request makes 200 system calls, and strace watches the service", "strace -f",
			server.Desk{Calls: 200, Work: time.Millisecond}, booking, func(d *server.Desk) { d.Traced = true }),
	)
}

// hostControls look alarming, and no request is the worse for it.
func hostControls() []Incident {
	list := []Incident{{
		Name:    "disk-nearly-full",
		Summary: "a disk is full to 97 %, and each request finds room for its file",
		Setup:   desk(server.Desk{Store: "ext4", NearlyFull: true}),
		Load:    deskLoad,
	}}
	for n := range list {
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
