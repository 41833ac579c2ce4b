package incident

// Guest is an incident that wants a kernel of its own: what it injects is of the whole
// host, or this one cannot have it. lab/guest runs it in the machines of
// script/kernels.sh, which have busybox.
type Guest struct {
	Name    string
	Summary string
	Cause   string
	Or      []string // by which it may be named too

	Modules string // of the kernel, that it needs
	Work    string // what a request does: works of lab/guest
	Before  string // commands of the shell, before the server is started
	// Fault is commands that are run once it listens; $SERVER is its process.
	Fault string
	After string // commands that put everything back

	Words []string // that are reported for it
}

// Guests is all of them.
func Guests() []Guest {
	const own = `cd /sys/fs/cgroup; echo +memory >cgroup.subtree_control; mkdir own
`
	const leave = `for p in $(cat /sys/fs/cgroup/own/cgroup.procs); do kill -9 $p; done; sleep 0.5; rmdir /sys/fs/cgroup/own
`
	return []Guest{{
		Name: "swap-thrash", Cause: "swap-thrash", Or: []string{"memory-pressure"}, Summary: "a service needs more memory than its limit, and the rest is swapped", Work: "sweep", Modules: "lzo-rle zram",
		Before: own + "echo 256M >/sys/block/zram0/disksize; mkswap /dev/zram0 >/dev/null; swapon /dev/zram0",
		Fault:  "echo 24M >/sys/fs/cgroup/own/memory.max; echo $SERVER >/sys/fs/cgroup/own/cgroup.procs", After: leave + "swapoff /dev/zram0; echo 1 >/sys/block/zram0/reset",
	}}
}
