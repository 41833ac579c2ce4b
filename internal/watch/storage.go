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
	left := s.storeWaits(b.Share(3), st, mounts) + s.storeVolumes(b.Share(2), st)
	s.lose("mounts of containers that were not looked at, for there were too many", left)
	s.storeMovers(b, st)
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

// storeWaits says what the files lie on that are waited for, and how many processes there was
// no room for.
func (s *session) storeWaits(b *budget.Budget, st *host.Storage, mounts []waitMount) (left int64) {
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
		if i < maxMountTables {
			t, err := s.fs.MountTableOf(b.Share(len(mounts)-i), w.process.PID)
			if err == nil {
				m, found = t.At(w.mount.Dir)
			}
			if t.Cut || budget.IsExceeded(err) {
				left++
			}
		} else {
			left++
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
	return left
}

// storeVolumes says what the volumes of pods lie on, and of how many there was no room for
// the container.
func (s *session) storeVolumes(b *budget.Budget, st *host.Storage) (left int64) {
	if s.out.Kubernetes == nil {
		return 0
	}
	in := map[string]int{} // a process of each container
	for i := range s.last.procs {
		if p := &s.last.procs[i]; p.Container != "" {
			in[p.Container] = p.PID
		}
	}
	tables := map[int]*host.MountTable{}
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
			t := tables[pid]
			if t == nil {
				if len(tables) == maxVolumeTables {
					left++
					continue
				}
				read, err := s.fs.MountTableOf(b.Share(8), pid) // of one that ended nothing is known
				t, tables[pid] = &read, &read
				if read.Cut || budget.IsExceeded(err) {
					left++
				}
			}
			name := path.Clean(v.Path)
			if v.Block {
				v.Device, v.Store = st.BlockAt(t, name)
			} else if m, ok := t.At(name); ok {
				v.Device, v.Store = m.Number(), st.Of(&m)
			}
		}
	}
	return left
}

// maxVolumeTables bounds the containers whose mounts are read: a node runs 110 pods.
const maxVolumeTables = 256

// storeMovers says what the processes have open that moved most bytes.
func (s *session) storeMovers(b *budget.Budget, st *host.Storage) {
	var most []*observe.Process
	moved := func(p *observe.Process) uint64 { return p.ReadBytes + p.WriteBytes }
	for i := range s.out.Processes {
		if p := &s.out.Processes[i]; !p.Kernel && !p.EndedIn && p.PID != s.out.Self && float64(moved(p)) >= moverRate*s.out.Window.Seconds {
			most = append(most, p)
		}
	}
	slices.SortFunc(most, func(a, b *observe.Process) int {
		return cmp.Or(cmp.Compare(moved(b), moved(a)), cmp.Compare(a.PID, b.PID))
	})
	most = most[:min(len(most), maxMovers)]
	for i, p := range most {
		p.Stores = st.OpenOn(b.Share(len(most)-i), p.PID)
	}
}
