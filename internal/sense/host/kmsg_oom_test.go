package host

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/observe"
)

// The lines of Linux 6.18, 4.19 and 5.3, as they were logged.
func TestOOMLines(t *testing.T) {
	const id = "3c5a6e1f0c2b4d7e8f9a0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f6"
	for _, c := range []struct {
		name  string
		lines []string
		want  []observe.OOMKill
	}{
		{"a container", []string{
			"http-nio-8080-e invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
			"memory: usage 524288kB, limit 524288kB, failcnt 186",
			"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/docker/" + id + ",mems_allowed=0,oom_memcg=/docker/" + id + ",task_memcg=/docker/" + id + ",task=java,pid=12,uid=0",
			"Memory cgroup out of memory: Killed process 12 (java) total-vm:3918272kB, anon-rss:517120kB, file-rss:20480kB, shmem-rss:0kB, UID:0 pgtables:1500kB oom_score_adj:0",
		}, []observe.OOMKill{{PID: 12, Comm: "java", By: "http-nio-8080-e", Cgroup: "/docker/" + id, LimitCgroup: "/docker/" + id, Container: "3c5a6e1f0c2b",
			AnonBytes: 517120 << 10, LimitBytes: 512 << 20}}},
		{"the host, and a name that pretends", []string{
			"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/system.slice/shop.service,task=a) total-vm:9kB,pid=7,uid=0",
			"Out of memory: Killed process 7 (a) (b) total-vm:100kB, anon-rss:50kB, file-rss:0kB",
		}, []observe.OOMKill{{PID: 7, Comm: "a) (b", Host: true, Cgroup: "/system.slice/shop.service", Unit: "shop.service", AnonBytes: 50 << 10}}},
		{"4.19", []string{
			"Memory cgroup out of memory: Kill process 9 (node) score 900 or sacrifice child",
			"Memory cgroup out of memory: Killed process 9 (node) total-vm:100kB, anon-rss:64kB, file-rss:0kB",
		}, []observe.OOMKill{{PID: 9, Comm: "node", AnonBytes: 64 << 10}}},
		{"5.3", []string{"Memory cgroup out of memory: Killed process 9 (node), UID 0, total-vm:100kB, anon-rss:64kB, file-rss:0kB"},
			[]observe.OOMKill{{PID: 9, Comm: "node", AnonBytes: 64 << 10}}},
		{"nothing of it", []string{"Out of memory and no killable processes...", "Memory cgroup out of memory: Killed process", "memory: usage"}, nil},
	} {
		var r oomReader
		for _, l := range c.lines {
			r.line([]byte(l), 0)
		}
		if d := cmp.Diff(c.want, r.kills); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

func TestKmsgTime(t *testing.T) {
	if at, ok := kmsgTime([]byte("4,1234,5000000,-;text")); !ok || at.Seconds() != 5 {
		t.Errorf("%v %v", at, ok)
	}
	for _, bad := range []string{"", "4", "4,1", "4,1,x,-;", "4,1,5"} {
		if _, ok := kmsgTime([]byte(bad)); ok {
			t.Errorf("%q is taken for a time", bad)
		}
	}
}

func FuzzOOMLine(f *testing.F) {
	f.Add([]byte("Memory cgroup out of memory: Killed process 12 (java) total-vm:1kB, anon-rss:2kB"))
	f.Add([]byte("oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/a,task_memcg=/b,task=c,pid=12,uid=0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r oomReader
		r.line(b, 0)
		r.line(b, 0)
		for _, k := range r.kills {
			if k.PID < 0 || len(k.Comm) > 64 {
				t.Errorf("%+v", k)
			}
		}
	})
}
