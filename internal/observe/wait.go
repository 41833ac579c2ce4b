package observe

import "strings"

// Waits is what the threads of one process, and of its workers, were waiting for at one moment, and
// how far that held until a second look some time later.
type Waits struct {
	Process WaitProcess `json:"process"`
	// Workers are the processes that serve for it, as those of nginx: their threads are
	// looked at too. None where only a thread or a worker was asked for.
	Workers  []WaitProcess `json:"workers,omitempty"`
	TID      int           `json:"tid,omitempty"` // only this thread was asked for; 0 = the whole process
	WindowNS int64         `json:"window_ns"`     // between the two looks
	Threads  int           `json:"threads"`       // that the process has
	Looked   int           `json:"looked"`        // threads that were looked at, workers' too
	// Goroutines is how many were looked at, of a Go program.
	Goroutines int `json:"goroutines,omitempty"`
	// Brief is waits that two looks see little of: each lasts for moments, and there
	// are many.
	Brief []WaitShare `json:"brief,omitempty"`
	// Held is the locks of files that the process has and other processes wait for.
	Held   []HeldLock  `json:"held,omitempty"`   // most waiting threads first
	Chains []WaitChain `json:"chains"`           // most telling first
	Unseen []string    `json:"unseen,omitempty"` // what could not be read and why, one sentence each
}

// WaitProcess is what a process in a chain is known by.
type WaitProcess struct {
	PID       int    `json:"pid"`
	Comm      string `json:"comm"`            // of its main thread
	NetNS     uint64 `json:"netns,omitempty"` // 0 when not known
	Container string `json:"container,omitempty"`
	Unit      string `json:"unit,omitempty"`
	// ContainerName is what its engine calls the container, where that is known.
	ContainerName string `json:"container_name,omitempty"`
}

// WaitChain is who waits for whom, from a thread of the process that was asked
// for to the last that can be seen.
type WaitChain struct {
	Threads []int     `json:"threads"`         // threads of the process that wait alike, ascending, at most 64; the chain is that of the first
	Count   int       `json:"count"`           // how many they are
	Hops    []WaitHop `json:"hops"`            // at least one
	End     WaitEnd   `json:"end"`             // why there is no further hop
	Text    string    `json:"text"`            // the same in words
	Actor   int       `json:"actor,omitempty"` // process that could end the wait by letting go: a tracer, 0 = none
	Path    string    `json:"path,omitempty"`  // of what ends the chain: a frozen control group, a mount point
	BackTo  int       `json:"back_to"`         // index of the hop that the last one waits for; -1 when the chain does not come back to itself
	Sure    bool      `json:"sure"`            // of a chain that comes back to itself: nobody outside could end it, it is a deadlock
	Branch  int       `json:"branch"`          // 0 is the most telling chain of these threads, 1… are others that start alike
	Cut     string    `json:"cut,omitempty"`   // what was left out, as "12 more processes hold it"
}

// WaitHop is a thread, and what it waits for.
type WaitHop struct {
	Process WaitProcess `json:"process"`
	TID     int         `json:"tid"`
	Comm    string      `json:"comm"`              // of the thread
	State   string      `json:"state"`             // letter of proc_pid_stat(5)
	Syscall string      `json:"syscall,omitempty"` // name, or its number when it has none here; empty outside of a call
	Wchan   string      `json:"wchan,omitempty"`   // kernel function it sleeps in; empty when not known
	// Goroutine is its number when the hop is a goroutine; TID is then the thread
	// that executes it, or that of the process when none does.
	Goroutine uint64   `json:"goroutine,omitempty"`
	Stack     []string `json:"stack,omitempty"` // functions of the program, innermost first, at most 8: "main.book orders.go:41"
	How       WaitHow  `json:"how,omitempty"`   // how it is known that the hop before waits for this one; empty for the first
	Why       string   `json:"why,omitempty"`   // the same in words: "holds the mutex"

	Kind     WaitKind   `json:"kind"`               // what it waits for itself
	Wants    WaitWants  `json:"wants,omitempty"`    // what would end the wait; empty at an end
	Object   string     `json:"object,omitempty"`   // "fd 5 → pipe:[1234]"
	Detail   string     `json:"detail,omitempty"`   // figures of the object: "117,440 bytes not read"
	Remote   string     `json:"remote,omitempty"`   // address of the other end, when the chain leaves the host there
	ForNS    int64      `json:"at_least_ns"`        // it did not run in this time; 0 when not known
	QuietNS  int64      `json:"quiet_ns,omitempty"` // nothing passed on the object for this long, by the kernel's own clock
	Datagram bool       `json:"datagram,omitempty"` // of a unix socket: it passes messages, not a stream
	Inside   WaitInside `json:"inside,omitempty"`   // the kernel: what it waits for there
	Mount    *WaitMount `json:"mount,omitempty"`    // of a file: what it lies on
	Moving   bool       `json:"moving,omitempty"`   // it ran between the looks: it waits now and then
	RunNS    int64      `json:"run_ns,omitempty"`   // runnable: time on a CPU between the looks
	DelayNS  int64      `json:"delay_ns,omitempty"` // runnable: time it had to wait for a CPU between the looks
}

// WaitMount is the mount that a file lies on which a thread waits for
// (proc_pid_mountinfo(5)).
type WaitMount struct {
	Dir    string `json:"dir"`    // as the process sees it
	Root   string `json:"root"`   // the directory of the file system that is mounted there
	Type   string `json:"type"`   // "ext4", "nfs4"
	Source string `json:"source"` // "/dev/vdb", "server:/export"
	Device string `json:"device"` // "254:16"
	// Store is what the file system is stored on: the number of a whole disk, or the server of
	// a network file system; empty where that is not known.
	Store string `json:"store,omitempty"`
	// Kubelet is where a kubelet of this host mounted the same for a pod:
	// ".../pods/<uid>/volumes/kubernetes.io~csi/<volume>/mount".
	Kubelet string `json:"kubelet,omitempty"`
}

// KubeletVolume is what a directory that a kubelet keeps for a volume says of it: the pod's
// UID, the plugin and the volume (GetPodVolumeDir, pkg/kubelet/kubelet_getters.go of Kubernetes);
// empty for any other directory.
func KubeletVolume(dir string) (uid, plugin, name string) {
	_, rest, ok := strings.Cut(dir, "/pods/")
	uid, rest, ok2 := strings.Cut(rest, "/volumes/kubernetes.io~")
	plugin, rest, ok3 := strings.Cut(rest, "/")
	name, _, _ = strings.Cut(rest, "/")
	if !ok || !ok2 || !ok3 || name == "" || strings.Contains(uid, "/") {
		return "", "", ""
	}
	return uid, plugin, name
}

// WaitKind is the kind of object that a thread waits for.
type WaitKind string

// What a thread can wait for.
const (
	WaitLock     WaitKind = "lock"      // a mutex or read-write lock whose owner is known
	WaitChannel  WaitKind = "channel"   // what another goroutine has to do, with a request in hand
	WaitThread   WaitKind = "thread"    // the end of a thread (pthread_join)
	WaitPipe     WaitKind = "pipe"      // a pipe or FIFO
	WaitUnix     WaitKind = "unix"      // a unix socket
	WaitTCP      WaitKind = "tcp"       // a TCP connection
	WaitUDP      WaitKind = "udp"       // a UDP socket
	WaitSocket   WaitKind = "socket"    // any other socket
	WaitChild    WaitKind = "child"     // the end of a process
	WaitFileLock WaitKind = "file-lock" // flock(2), fcntl(2)
	WaitDisk     WaitKind = "disk"      // a block device or a network file system
	WaitFuse     WaitKind = "fuse"      // a file system in user space
	WaitKernel   WaitKind = "kernel"    // uninterruptible in the kernel, for something else
	WaitCond     WaitKind = "cond"      // to be woken: no owner is written anywhere
	WaitEpoll    WaitKind = "epoll"     // any of many descriptors, or completions
	WaitAccept   WaitKind = "accept"    // a new connection
	WaitEvent    WaitKind = "event"     // a signal, a timer, an eventfd, a change of a file
	WaitTerminal WaitKind = "terminal"
	WaitSleep    WaitKind = "sleep"
	WaitStopped  WaitKind = "stopped"  // by a signal, a tracer or a frozen control group
	WaitRunnable WaitKind = "runnable" // on a CPU or ready for one: it does not wait
	WaitEnded    WaitKind = "ended"    // a zombie, or gone meanwhile
	WaitUnknown  WaitKind = "unknown"  // a call that is not understood, or no right to see it
)

// WaitWants is what would end a wait.
type WaitWants string

// What can end a wait. Of the first four somebody stands in the way; with the
// others nothing need be wrong when the wait is long.
const (
	WantsRelease WaitWants = "release" // that the lock is let go
	WantsRoom    WaitWants = "room"    // that the other end reads: the buffer is full
	WantsAccept  WaitWants = "accept"  // that the connection is taken up
	WantsAnswer  WaitWants = "answer"  // that the called service answers
	WantsData    WaitWants = "data"    // that the other end writes
	WantsEnd     WaitWants = "end"     // that a process or thread ends
	WantsRequest WaitWants = "request" // that the client asks for something: ready for work
)

// Demands says whether somebody stands in the way of what is wanted.
func (w WaitWants) Demands() bool {
	return w == WantsRelease || w == WantsRoom || w == WantsAccept || w == WantsAnswer
}

// Sought says in words what a thread waits for, and what would end the wait.
func (h *WaitHop) Sought() string {
	if h.Wants == "" {
		return string(h.Kind)
	}
	return string(h.Kind) + ": waits for " + map[WaitWants]string{
		WantsRelease: "its release", WantsRoom: "room in it", WantsAccept: "its acceptance", WantsAnswer: "the answer",
		WantsData: "data", WantsEnd: "its end", WantsRequest: "a request",
	}[h.Wants]
}

// WaitHow is how it is known that one thread waits for another.
type WaitHow string

// The ways to know an owner, from the surest down.
const (
	HowOwner    WaitHow = "owner read"      // written in the lock itself, in the process's memory
	HowTable    WaitHow = "file lock table" // /proc/locks
	HowChild    WaitHow = "child"
	HowPeer     WaitHow = "peer of the fd" // the other end is open there, and the thread is in a call on it
	HowInferred WaitHow = "inferred"       // the process is known, which of its threads is to blame is not
)

// WaitEnd is why a chain goes no further.
type WaitEnd string

// The ends of chains.
const (
	EndCycle    WaitEnd = "cycle"     // comes back to a thread that is in it already
	EndStopped  WaitEnd = "stopped"   // by a signal
	EndTraced   WaitEnd = "traced"    // by a debugger
	EndFrozen   WaitEnd = "frozen"    // with its control group
	EndGone     WaitEnd = "gone"      // what is waited for has ended without letting go
	EndRemote   WaitEnd = "remote"    // the chain leaves the host
	EndDisk     WaitEnd = "disk"      // storage, or a network file system
	EndFuse     WaitEnd = "fuse"      // a file system's server that is not known
	EndKernel   WaitEnd = "kernel"    // uninterruptible for something else
	EndRunning  WaitEnd = "running"   // does not wait
	EndMutual   WaitEnd = "mutual"    // both ends wait for the other to speak
	EndNoOwner  WaitEnd = "no-owner"  // waits to be woken; by whom is written nowhere
	EndIdle     WaitEnd = "idle"      // ready for work
	EndSleep    WaitEnd = "sleep"     // until a time
	EndEnded    WaitEnd = "ended"     // a zombie, or gone meanwhile
	EndUnseen   WaitEnd = "unseen"    // there is more that could not be seen
	EndTooLong  WaitEnd = "too-long"  // more hops than are followed
	EndNoHolder WaitEnd = "no-holder" // nobody is seen at the other end
)

// Deadlock says whether the threads of the chain can never go on by themselves.
func (c *WaitChain) Deadlock() bool { return c.BackTo >= 0 && c.Sure }

// Moving says whether the first thread of the chain ran between the looks.
func (c *WaitChain) Moving() bool { return len(c.Hops) > 0 && c.Hops[0].Moving }

// Culprit says whether the first thread is held up by somebody else, or by
// something that has to be fixed: by a chain that leads to more than a thread
// that is ready for work or asleep of its own will.
func (c *WaitChain) Culprit() bool {
	if len(c.Hops) == 0 || c.Moving() {
		return false
	}
	before := c.Hops[:len(c.Hops)-1]
	switch c.End {
	case EndCycle, EndStopped, EndTraced, EndFrozen, EndDisk, EndFuse, EndKernel, EndGone, EndMutual:
		return true
	case EndRemote, EndNoHolder, EndUnseen, EndNoOwner:
		return demanded(c.Hops)
	case EndRunning, EndTooLong:
		return len(before) > 0
	}
	return demanded(before)
}

// Unfollowed is how many threads wait for what was not followed, because that took too
// long: whether somebody holds them up is not known.
func (w *Waits) Unfollowed() (n int) {
	for i := range w.Chains {
		if c := &w.Chains[i]; c.End == EndTooLong && !c.Moving() && !c.Culprit() {
			n += c.Count
		}
	}
	return n
}

// demanded says whether any of the hops wants something that somebody withholds.
func demanded(hops []WaitHop) bool {
	for i := range hops {
		if hops[i].Wants.Demands() {
			return true
		}
	}
	return false
}
