package watch

import (
	"cmp"
	"path"
	"slices"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

const (
	// maxMovers and moverRate are how many processes are asked for their open files, and the
	// bytes in a second from which on.
	maxMovers = 16
	moverRate = 64 << 10
)

// endStorage says what lies on which disk or server, where a service waits for one: the
// files that are waited for, the volumes of pods, and what those have open that moved most
// bytes.
func (s *session) endStorage() {
	mounts := s.waitMounts()
	if len(mounts) == 0 && !slices.ContainsFunc(s.out.Processes, func(p observe.Process) bool { return p.States != nil && p.States.Disk > 0 }) {
		return
	}
	b := budget.New(s.ctx, mountLimits)
	st := s.fs.Storage(b.Share(4), s.kubelets())
	tables := mountTables{fs: s.fs, of: map[int]*host.MountTable{}, left: map[int]bool{}}
	s.storeWaits(b.Share(3), st, mounts, &tables)
	s.storeVolumes(b.Share(2), st, &tables)
	left := int64(len(tables.left))
	if st.Cut() {
		left++
	}
	s.lose("mounts of containers that were not looked at, for there were too many", left)
	s.storeMovers(b, st)
}

// mountTables are those of processes, each of which is read once.
type mountTables struct {
	fs   host.FS
	of   map[int]*host.MountTable // by process
	left map[int]bool             // processes whose mounts are not known, or not all of them
}

// get is the table of a process, read with a budget where no more than so many were read
// before; nil beyond.
func (t *mountTables) get(b *budget.Budget, pid, most int) *host.MountTable {
	if known := t.of[pid]; known != nil {
		return known
	}
	if len(t.of) >= most {
		t.left[pid] = true
		return nil
	}
	read, err := t.fs.MountTableOf(b, pid) // of one that ended nothing is known
	t.of[pid] = &read
	if read.Cut || budget.IsExceeded(err) {
		t.left[pid] = true
	}
	return &read
}

// waitMount is the mount of a file that a thread waits for, and whose thread that is.
type waitMount struct {
	process *observe.WaitProcess
	mount   *observe.WaitMount
}

func (s *session) waitMounts() (out []waitMount) {
	if s.out.Waits == nil {
		return nil
	}
	for i := range s.out.Waits.Shares {
		hops := s.out.Waits.Shares[i].Chain.Hops
		for j := range hops {
			if h := &hops[j]; h.Mount != nil {
				out = append(out, waitMount{&h.Process, h.Mount})
			}
		}
	}
	return out
}

// kubeletNames are the programs that a kubelet is a part of.
var kubeletNames = []string{"kubelet", "k3s", "k3s-server", "k3s-agent", "rke2", "k0s", "kubelite"}

func (s *session) kubelets() (pids []int) {
	for i := range s.last.procs {
		if p := &s.last.procs[i]; slices.Contains(kubeletNames, p.Comm) {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// storeWaits says what the files lie on that are waited for.
func (s *session) storeWaits(b *budget.Budget, st *host.Storage, mounts []waitMount, tables *mountTables) {
	uids := map[string]string{} // of pods, by container
	if k := s.out.Kubernetes; k != nil {
		for i := range k.Pods {
			for j := range k.Pods[i].Containers {
				uids[k.Pods[i].Containers[j].ID] = k.Pods[i].UID
			}
		}
	}
	for i, w := range mounts {
		m, found := host.Mount{}, false
		if t := tables.get(b.Share(min(len(mounts)-i, maxMountTables)), w.process.PID, maxMountTables); t != nil {
			m, found = t.At(w.mount.Dir)
		}
		if !found || m.Number() != w.mount.Device { // it has ended, or what was mounted
			m = host.MountOn(w.mount.Device, w.mount.Root, w.mount.Type, w.mount.Source)
		}
		w.mount.Store = st.Of(&m)
		uid := ""
		if w.process.Container != "" {
			uid = uids[w.process.Container]
		}
		w.mount.Kubelet = st.Kubelet(&m, uid)
	}
}

// storeVolumes says what the volumes of pods lie on.
func (s *session) storeVolumes(b *budget.Budget, st *host.Storage, tables *mountTables) {
	if s.out.Kubernetes == nil {
		return
	}
	in := map[string]int{} // a process of each container
	for i := range s.last.procs {
		if p := &s.last.procs[i]; p.Container != "" {
			in[p.Container] = p.PID
		}
	}
	for i := range s.out.Kubernetes.Pods {
		p := &s.out.Kubernetes.Pods[i]
		ids := map[string]string{}
		for j := range p.Containers {
			ids[p.Containers[j].Name] = p.Containers[j].ID
		}
		for j := range p.Volumes {
			v := &p.Volumes[j]
			pid := in[ids[v.Container]]
			if pid == 0 {
				continue
			}
			t := tables.get(b.Share(8), pid, maxVolumeTables)
			if t == nil {
				continue
			}
			name := path.Clean(v.Path)
			if v.Block {
				v.Device, v.Store = st.BlockAt(t, name)
			} else if m, ok := t.At(name); ok {
				v.Device, v.Store = m.Number(), st.Of(&m)
			}
		}
	}
}

// maxVolumeTables bounds the processes whose mounts are read: a node runs 110 pods.
const maxVolumeTables = 256

// storeMovers says what the processes have open that moved most bytes.
func (s *session) storeMovers(b *budget.Budget, st *host.Storage) {
	var most []*observe.Process
	for i := range s.out.Processes {
		if p := &s.out.Processes[i]; !p.Kernel && !p.EndedIn && p.PID != s.out.Self && float64(p.MovedBytes()) >= moverRate*s.out.Window.Seconds {
			most = append(most, p)
		}
	}
	slices.SortFunc(most, func(a, b *observe.Process) int {
		return cmp.Or(cmp.Compare(b.MovedBytes(), a.MovedBytes()), cmp.Compare(a.PID, b.PID))
	})
	most = most[:min(len(most), maxMovers)]
	for i, p := range most {
		p.Stores = st.OpenOn(b.Share(len(most)-i), p.PID)
	}
}
