package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// TestEndStorage: of a wait for a file of a pod it is read where the kubelet mounted it and on
// which disk it is, as of the pod's volumes and of who moves most bytes. Where nobody waits
// for storage nothing is read.
func TestEndStorage(t *testing.T) {
	fs := host.FS{Proc: filepath.Join(t.TempDir(), "proc"), Sys: t.TempDir()}
	const kubelet = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pvc-1/mount"
	in := "40 9 0:50 / / rw - overlay overlay rw\n41 40 254:16 / /data rw - ext4 /dev/vdb rw\n"
	for pid, mounts := range map[int]string{1: "2 1 254:16 / " + kubelet + " rw - ext4 /dev/vdb rw\n", 7: in, 8: in} {
		dir := fmt.Sprintf("%s/%d", fs.Proc, pid)
		if err := os.MkdirAll(dir+"/ns", 0o755); err != nil {
			t.Fatal(err)
		}
		for _, d := range []string{"fd", "fdinfo"} {
			if err := os.MkdirAll(dir+"/"+d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, err := range []error{os.WriteFile(dir+"/mountinfo", []byte(mounts), 0o644), os.Symlink(fmt.Sprintf("mnt:[%d]", pid), dir+"/ns/mnt"),
			os.Symlink("/data/x", dir+"/fd/3"), os.WriteFile(dir+"/fdinfo/3", []byte("pos:\t0\nflags:\t02\nmnt_id:\t41\n"), 0o644)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	window := func(waits ...*observe.WaitMount) *session {
		s := &session{ctx: t.Context(), fs: fs, out: &observe.Observation{Window: observe.Window{Seconds: 1}}}
		s.last.procs = []host.ProcSample{{PID: 7, Container: "c1"}, {PID: 8, Container: "c2"}}
		s.out.Processes = []observe.Process{{PID: 7, Container: "c1", ReadBytes: 1 << 10}, {PID: 8, Container: "c2", WriteBytes: 9 << 20}}
		s.out.Kubernetes = &observe.Kubernetes{Pods: []observe.Pod{{UID: "u1", Containers: []observe.PodContainer{{Name: "app", ID: "c1"}},
			Volumes: []observe.PodVolume{{Name: "data", Container: "app", Path: "/data/"}, {Name: "other", Container: "app", Path: "/elsewhere"}}}}}
		s.out.Waits = &observe.WaitGraph{}
		for _, wait := range waits {
			hop := observe.WaitHop{Process: observe.WaitProcess{PID: 7, Container: "c1"}, Mount: wait}
			s.out.Waits.Shares = append(s.out.Waits.Shares, observe.WaitShare{Chain: observe.WaitChain{Hops: []observe.WaitHop{hop}}})
		}
		s.endStorage()
		return s
	}
	m := &observe.WaitMount{Dir: "/data", Root: "/", Type: "ext4", Source: "/dev/vdb", Device: "254:16"}
	s := window(m)
	if m.Store != "254:16" || m.Kubelet != kubelet {
		t.Errorf("the file lies on %+v", m)
	}
	if v := s.out.Kubernetes.Pods[0].Volumes; v[0].Store != "254:16" || v[0].Device != "254:16" || v[1].Device != "" {
		t.Errorf("volumes %+v", v)
	}
	if p := s.out.Processes; p[0].Stores != nil || !slices.Equal(p[1].Stores, []string{"254:16"}) {
		t.Errorf("open files lie on %q and %q", p[0].Stores, p[1].Stores)
	}
	gone := &observe.WaitMount{Dir: "/was", Root: "/", Type: "ext4", Source: "/dev/vdb", Device: "254:16"}
	if window(gone); gone.Kubelet != kubelet {
		t.Errorf("a mount that is gone: %+v", gone)
	}
	// Two threads wait in a process whose mounts are too many, and a volume is of its container:
	// that is one, and the host's are another.
	many := strings.Repeat("40 9 0:50 / / rw - overlay overlay rw\n", 20_000)
	for _, pid := range []string{"1", "7"} {
		if err := os.WriteFile(fs.Proc+"/"+pid+"/mountinfo", []byte(many), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if l := window(gone, gone).out.Losses; len(l) != 1 || l[0].Count != 2 {
		t.Errorf("too many mounts: %+v", l)
	}
	if s := window(); s.out.Processes[1].Stores != nil || s.out.Kubernetes.Pods[0].Volumes[0].Device != "" {
		t.Errorf("nobody waits for storage, and it is read: %+v", s.out.Processes)
	}
}
