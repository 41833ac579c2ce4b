package incident

// Guest is an incident that wants a kernel of its own: what it plants is of the whole
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

	Words []string // that are told of it
}

// nullDisk is a disk in memory that takes so long for each request, with a file system.
func nullDisk(delay string) string {
	return `mount -t configfs configfs /sys/kernel/config 2>/dev/null
d=/sys/kernel/config/nullb/slow; mkdir $d
echo 64 >$d/size; echo 1 >$d/memory_backed; echo 2 >$d/irqmode; echo 1 >$d/hw_queue_depth; echo ` + delay + ` >$d/completion_nsec; echo 1 >$d/discard; echo 1 >$d/power
disk=$(ls /dev/slow /dev/nullb1 2>/dev/null | head -n 1) # since Linux 6.0 it has its own name
mkdir -p /tmp/disk; mke2fs $disk >/dev/null; mount -t ext4 $disk /tmp/disk
`
}

const dropNullDisk = `umount /tmp/disk; echo 0 >/sys/kernel/config/nullb/slow/power; rmdir /sys/kernel/config/nullb/slow
`

// Guests is all of them.
func Guests() []Guest {
	const own = `cd /sys/fs/cgroup; echo +memory >cgroup.subtree_control; mkdir own
`
	const leave = `for p in $(cat /sys/fs/cgroup/own/cgroup.procs); do kill -9 $p; done; sleep 0.5; rmdir /sys/fs/cgroup/own
`
	return []Guest{{
		Name: "memory-high", Cause: "memory-high-throttled", Summary: "a service needs more memory than memory.high, and the kernel slows it down", Work: "memory",
		Before: own, Fault: "echo $SERVER >/sys/fs/cgroup/own/cgroup.procs; echo 24M >/sys/fs/cgroup/own/memory.high", After: leave, Words: []string{"memory.high"},
	}, {
		Name: "swap-thrash", Cause: "swap-thrash", Or: []string{"memory-pressure"}, Summary: "a service needs more memory than its limit, and the rest is swapped", Work: "sweep", Modules: "lzo-rle zram",
		Before: own + "echo 256M >/sys/block/zram0/disksize; mkswap /dev/zram0 >/dev/null; swapon /dev/zram0",
		Fault:  "echo 24M >/sys/fs/cgroup/own/memory.max; echo $SERVER >/sys/fs/cgroup/own/cgroup.procs", After: leave + "swapoff /dev/zram0; echo 1 >/sys/block/zram0/reset",
	}, {
		Name: "host-oom", Cause: "host-oom-killed", Summary: "another program takes all memory of the machine, and the kernel kills the service", Work: "nothing",
		Fault: "echo 1000 >/proc/$SERVER/oom_score_adj; echo 3 >/proc/sys/vm/drop_caches; m=$(grep MemFree /proc/meminfo | tr -dc 0-9); echo $(((m - 100000) / 2048)) >/proc/sys/vm/nr_hugepages; (sleep 5; tail /dev/zero >/dev/null 2>&1) &",
		After: "echo 0 >/proc/sys/vm/nr_hugepages",
	}, {
		Name: "disk-io-errors", Cause: "disk-io-errors", Summary: "a disk has bad blocks", Work: "store", Modules: "null_blk",
		Before: nullDisk("10000"), Fault: "echo '+64-131071' >/sys/kernel/config/nullb/slow/badblocks", After: dropNullDisk,
	}, {
		Name: "disk-saturated", Cause: "disk-saturated", Or: []string{"fsync-bound"}, Summary: "another program writes to the disk that a service waits for, one request of 10 ms at a time", Work: "store", Modules: "null_blk",
		Before: nullDisk("10000000"), Fault: "for n in 1 2 3 4; do dd if=/dev/zero of=/tmp/disk/copy$n bs=64k oflag=direct 2>/dev/null & done", After: "killall dd; " + dropNullDisk,
	}, {
		Name: "commit-limit", Cause: "commit-limit", Summary: "the kernel promises no more memory than it has, and all is promised", Work: "map",
		// What is left is for root.
		Fault: "echo 200000 >/proc/sys/vm/admin_reserve_kbytes; m=$(grep Committed_AS /proc/meminfo | tr -dc 0-9); echo $((m + 190000)) >/proc/sys/vm/overcommit_kbytes; echo 2 >/proc/sys/vm/overcommit_memory",
		After: "echo 0 >/proc/sys/vm/overcommit_memory; echo 8192 >/proc/sys/vm/admin_reserve_kbytes; echo 50 >/proc/sys/vm/overcommit_ratio",
	}, {
		Name: "slow-clocksource", Cause: "slow-clocksource", Summary: "the clock is read from a device", Work: "clock",
		Fault: "echo acpi_pm >/sys/devices/system/clocksource/clocksource0/current_clocksource",
		After: "echo tsc >/sys/devices/system/clocksource/clocksource0/current_clocksource || echo hpet >/sys/devices/system/clocksource/clocksource0/current_clocksource",
	}}
}
