package cause

import (
	"slices"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// refused is a web server of which so many of 1,000 requests fail, and calls
// that fail in a second of the ten that were watched.
func refused(failed uint64, errors ...observe.CallError) func(*observe.Observation) {
	return func(o *observe.Observation) {
		quiet(nginxServed().add(1000, ms, ms, 0, quick))(o)
		e := &o.Endpoints[0]
		e.OK, e.Errors = e.OK-failed, failed
		o.CallErrors, o.ErrorSeconds = errors, 1
		o.Filesystems = []observe.Filesystem{
			{Dir: "/", MountNS: 7, PID: nginxMaster, Type: "ext4", Source: "/dev/vda1", Device: "254:1", SizeBytes: 100 << 30, FreeBytes: 60 << 30, Inodes: 6_000_000, FreeInodes: 5_000_000},
			{Dir: "/srv/full", MountNS: 7, PID: nginxMaster, Type: "ext4", Source: "/dev/vdb", Device: "254:16", SizeBytes: 10 << 30, FreeBytes: 0, Inodes: 600_000, FreeInodes: 500_000},
			{Dir: "/srv/many", MountNS: 7, PID: nginxMaster, Type: "ext4", Source: "/dev/vdc", Device: "254:32", SizeBytes: 10 << 30, FreeBytes: 5 << 30, Inodes: 600_000},
			{Dir: "/dev/shm", MountNS: 7, PID: nginxMaster, Type: "tmpfs", Source: "shm", Device: "0:40", SizeBytes: 64 << 20},
			{Dir: "/srv/ro", MountNS: 7, PID: nginxMaster, Type: "ext4", Source: "/dev/vdd", Device: "254:48", SizeBytes: 10 << 30, FreeBytes: 5 << 30, ReadOnlyFS: true, ReadOnly: true},
		}
	}
}

// failed is calls of a worker of the web server that fail, on a mount.
func failed(call, name, mount string, n uint64) observe.CallError {
	e := observe.CallError{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Call: call, Error: name, Calls: n}
	if mount != "" {
		e.Mount, e.MountNS, e.Path = mount, 7, mount+"/upload.tmp"
	}
	return e
}

func also(inject func(*observe.Observation), more func(*observe.Observation)) func(*observe.Observation) {
	return func(o *observe.Observation) { inject(o); more(o) }
}

var lacks = []struct {
	name     string
	cause    *Cause
	inject   func(*observe.Observation)
	share    float64
	path     string
	fix      string
	evidence string
}{
	{"writes fail on a full disk", &diskFull, refused(500, failed("write", "ENOSPC", "/srv/full", 50)), 0.5, "/srv/full", "Make room on /srv/full", "free on /srv/full (ext4 on /dev/vdb)=0"},
	{"a full disk behind a php-fpm", &diskFull, also(refused(500), func(o *observe.Observation) {
		o.CallErrors = []observe.CallError{{PID: fpmChild1, Comm: "php-fpm8.2", Call: "write", Error: "ENOSPC", Calls: 50, Mount: "/srv/full", MountNS: 7}}
		o.Endpoints = append(o.Endpoints, servedAt(fpmPort, "127.0.0.1", fpmMaster, "php-fpm8.2").add(1000, ms, ms, 0, quick).endpoint(),
			callsTo(fpmPort, "127.0.0.1", nginxMaster, "nginx").add(1000, ms, ms, 0, quick).endpoint())
	}), 0.5, "/srv/full", "Make room", "write() of php-fpm8.2"},
	{"which file system is not known", &diskFull, refused(500, failed("write", "ENOSPC", "", 50)), 0.5, "", "Find out which file system", "ENOSPC=50"},
	{"no inode left", &inodesExhausted, refused(300, failed("openat", "ENOSPC", "/srv/many", 30)), 0.3, "/srv/many", "their number that counts", "free inodes there=0"},
	{"shared memory full", &shmFull, refused(300, failed("ftruncate", "ENOSPC", "/dev/shm", 10), failed("write", "ENOSPC", "/dev/shm", 20)), 0.3, "/dev/shm", "lives in memory", "/dev/shm/upload.tmp"},
	{"read-only", &filesystemReadOnly, also(refused(1000, failed("openat", "EROFS", "/srv/ro", 100)), func(o *observe.Observation) {
		o.KernelLog = []observe.KernelLine{{Kind: "read-only", Subject: "vdd", Count: 1, Example: "EXT4-fs (vdd): Remounting filesystem read-only"}}
	}), 1, "/srv/ro", "check the file system", "Remounting filesystem read-only"},
	{"quota", &diskQuotaExceeded, refused(100, failed("write", "EDQUOT", "/srv/many", 10)), 0.1, "/srv/many", "Raise the quota", "EDQUOT=10"},
	{"disk errors", &diskIOErrors, also(refused(100, failed("pread64", "EIO", "/srv/many", 10)), func(o *observe.Observation) {
		o.KernelLog = []observe.KernelLine{{Kind: "io-error", Subject: "vdc", Count: 9, Example: "I/O error, dev vdc, sector 8"}}
	}), 0.1, "/dev/vdc", "replace the disk", "I/O error, dev vdc"},
	{"all mappings used", &maxMapCount, also(refused(400, failed("mmap", "ENOMEM", "", 40)), func(o *observe.Observation) {
		o.Sysctl["vm.max_map_count"] = "65530"
		process(o, nginxWorker1).Maps = 65531
	}), 0.4, "", "Raise vm.max_map_count on the host", "memory mappings of nginx=65531"},
	{"no memory promised", &commitLimit, also(refused(400, failed("mmap", "ENOMEM", "", 40)), func(o *observe.Observation) {
		o.Sysctl["vm.overcommit_memory"] = "2"
		o.Use.Memory.CommitLimit, o.Use.Memory.Committed = 8<<30, 8<<30
	}), 0.4, "", "overcommit_ratio", "memory promised"},
	{"no file left on the host", &fileMax, also(refused(400, failed("openat", "ENFILE", "", 40)), func(o *observe.Observation) {
		o.Sysctl["fs.file-nr"], o.Sysctl["fs.file-max"] = "100000 0 100000", "100000"
	}), 0.4, "", "fs.file-max=1000000", "files open on the host=100000"},
	{"no descriptor left for files", &fdLimit, also(refused(400, failed("openat", "EMFILE", "", 40)), func(o *observe.Observation) {
		process(o, nginxWorker1).FDs, process(o, nginxWorker1).FDLimit = 1024, 1024
	}), 0.4, "", "prlimit --pid 101", "open files, peak=1024"},
	{"no watch left", &inotifyLimit, also(refused(400, failed("inotify_add_watch", "ENOSPC", "", 40)), func(o *observe.Observation) {
		o.Sysctl["fs.inotify.max_user_watches"] = "8192"
	}), 0.4, "", "max_user_watches=524288", "8192"},
	{"no instance left", &inotifyLimit, refused(400, failed("inotify_init1", "EMFILE", "", 40)), 0.4, "", "max_user_instances", "EMFILE"},
	{"no event left", &aioLimit, refused(400, failed("io_setup", "EAGAIN", "", 40)), 0.4, "", "fs.aio-max-nr=1048576", "EAGAIN"},
	{"no semaphore set left", &sysvLimit, refused(400, failed("semget", "ENOSPC", "", 40)), 0.4, "", "kernel.sem", "semget()"},
	{"a file too large", &fileSizeLimit, refused(400, failed("write", "EFBIG", "/srv/many", 40)), 0.4, "", "--fsize", "EFBIG"},
	{"gone at the server", &staleHandle, refused(400, failed("openat", "ESTALE", "/mnt/nfs", 40)), 0.4, "/mnt/nfs", "mount it anew", "ESTALE"},
	{"a policy denies", &securityDenials, also(refused(400, failed("openat", "EACCES", "/srv/many", 40)), func(o *observe.Observation) {
		o.KernelLog = []observe.KernelLine{{Kind: "denied", Count: 40, Example: `apparmor="DENIED" operation="open"`}}
	}), 0.4, "/srv/many/upload.tmp", "AppArmor", "DENIED"},
	{"no right on a file", &securityDenials, refused(400, failed("openat", "EACCES", "/srv/many", 40)), 0.4, "/srv/many/upload.tmp", "namei -l", "EACCES"},
}

// firingOnLacks is lacks as all fixtures are.
func firingOnLacks() []fires {
	out := make([]fires, 0, len(lacks))
	for _, c := range lacks {
		out = append(out, fires{name: c.name, cause: c.cause, inject: c.inject, subject: Subject{Kind: subjectKind(c.path), Path: c.path}, minShare: c.share, fix: c.fix, evidence: c.evidence})
	}
	return out
}

func subjectKind(path string) string {
	if strings.HasPrefix(path, "/dev/vd") {
		return "disk"
	}
	return "process"
}

// What lacks one thing does not lack another.
func TestLacksAreToldApart(t *testing.T) {
	for _, c := range lacks {
		o := healthy()
		c.inject(o)
		for _, other := range Catalogue() {
			if other.ID == c.cause.ID || !slices.Contains(other.Needs, observe.KindErrors) {
				continue
			}
			if r := other.Judge(NewView(o)); len(r.Findings) > 0 {
				t.Errorf("%s: %s is found too", c.name, other.ID)
			}
		}
	}
}

var nearMissesOnLacks = []miss{
	{"nobody watched", &diskFull, func(o *observe.Observation) { o.ErrorSeconds = 0 }, "not watched"},
	{"nearly full, nothing fails", &diskFull, refused(0), "fullest is /srv/full (ext4), 100 % used"},
	{"inodes nearly used up, nothing fails", &inodesExhausted, refused(0), "most inodes are used on /srv/many"},
	{"the access log cannot be written, every request is answered", &diskFull, refused(0, failed("write", "ENOSPC", "/srv/full", 100)), "none of 1,000 requests on :8088 failed"},
	{"the access log cannot be written, and some requests are not found", &diskFull, refused(60, failed("write", "ENOSPC", "/srv/full", 100)), "most are answered all the same"},
	{"one write failed, many requests did for something else", &diskFull, refused(500, failed("write", "ENOSPC", "/srv/full", 3)), "far more than these calls can explain"},
	{"a backup fills a disk that no request needs", &diskFull, refused(500, observe.CallError{PID: hog, Comm: "backup", Call: "write", Error: "ENOSPC", Calls: 1000, Mount: "/srv/full", MountNS: 7}), "it answers no requests"},
	{"two calls failed, and some requests", &securityDenials, refused(20, failed("openat", "EACCES", "/srv/many", 2)), "so few calls were seen to fail"},
	{"four requests failed", &filesystemReadOnly, refused(4, failed("openat", "EROFS", "/srv/ro", 4)), "only 4 of"},
	{"requests are encrypted", &filesystemReadOnly, also(refused(0, failed("openat", "EROFS", "/srv/ro", 4)), func(o *observe.Observation) { o.Endpoints[0].OK = 0 }), "is not known"},
	{"a device was remounted, nobody writes there", &filesystemReadOnly, also(refused(0), func(o *observe.Observation) {
		o.KernelLog = []observe.KernelLine{{Kind: "read-only", Count: 1, Example: "EXT4-fs (vdd): Remounting filesystem read-only"}}
	}), "Remounting filesystem read-only"},
	{"a terminal hangs up", &diskIOErrors, refused(500, observe.CallError{PID: nginxWorker1, Call: "write", Error: "EIO", Calls: 50, Path: "/dev/pts/3"}), "no read or write"},
	{"refused memory for another reason", &maxMapCount, also(refused(500, failed("mmap", "ENOMEM", "", 50)), func(o *observe.Observation) {
		o.Sysctl["vm.max_map_count"] = "65530"
		process(o, nginxWorker1).Maps = 400
	}), "no process that was refused"},
	{"much is promised, nothing refused", &commitLimit, also(refused(0), func(o *observe.Observation) {
		o.Sysctl["vm.overcommit_memory"] = "2"
		o.Use.Memory.CommitLimit, o.Use.Memory.Committed = 8<<30, 8<<30
	}), "8 GB of 8 GB are promised"},
	{"most files of the host are open", &fileMax, also(refused(0), func(o *observe.Observation) {
		o.Sysctl["fs.file-nr"], o.Sysctl["fs.file-max"] = "98000 0 100000", "100000"
	}), "98,000 of 100,000"},
	{"requests for what is not there", &securityDenials, refused(900), "no service was refused a file"},
	{"a key quota", &diskQuotaExceeded, refused(900, failed("add_key", "EDQUOT", "", 90)), "no write"},
	{"a watch is refused, nobody notices", &inotifyLimit, refused(0, failed("inotify_add_watch", "ENOSPC", "", 1)), "none of 1,000 requests"},
	{"io_uring is asked to wait", &aioLimit, refused(500, failed("io_uring_setup", "EAGAIN", "", 50)), "no call of io_setup"},
	{"segments are used up, nobody asks", &sysvLimit, refused(500, failed("shmget", "EACCES", "", 50)), "no service was refused"},
	{"a log of 4 GB", &fileSizeLimit, refused(2, failed("write", "EFBIG", "/srv/many", 2)), "only 2 of"},
	{"a stale file that nobody needs", &staleHandle, refused(0, failed("openat", "ESTALE", "/mnt/nfs", 3)), "none of 1,000"},
	{"shared memory is full, a report fails", &shmFull, refused(100, observe.CallError{PID: hog, Comm: "backup", Call: "write", Error: "ENOSPC", Calls: 10, Mount: "/dev/shm", MountNS: 7}), "answers no requests"},
}
