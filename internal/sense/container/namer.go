package container

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
)

// A Namer names containers by their id, as they come and go. When it meets one
// that it does not know it asks the engines again, next to whoever waits for the
// name, and not more often than once in five seconds.
type Namer struct {
	reader Reader

	mu     sync.Mutex
	names  map[string]string
	unsure []string // ids that nobody knew
	next   time.Time
	busy   bool
}

const askAgain = 5 * time.Second

const maxComm = 64 // bytes of the name of a process

// NewNamer asks the engines once.
func (r Reader) NewNamer() *Namer {
	n := &Namer{reader: r, names: map[string]string{}}
	n.ask(nil)
	return n
}

// Name is what the engine calls the container with this id, shortened to 12;
// empty when that is not known, or not yet.
func (n *Namer) Name(id string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	name, known := n.names[id]
	if known && name != "" {
		return name
	}
	if !known && len(n.unsure) < maxListed {
		n.unsure = append(n.unsure, id)
		n.names[id] = ""
		if !n.busy && time.Now().After(n.next) {
			n.busy = true
			go n.ask(slices.Clone(n.unsure))
		}
	}
	return ""
}

func (n *Namer) ask(ids []string) {
	list, _ := n.reader.Names(budget.New(context.Background(), Limits), n.reader.Processes(), ids)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range n.unsure { // to be asked for again
		if n.names[id] == "" {
			delete(n.names, id)
		}
	}
	n.unsure = nil
	for i := range list {
		if list[i].Name != "" {
			n.names[list[i].ID] = list[i].Name
		}
	}
	n.busy, n.next = false, time.Now().Add(askAgain)
}

// Processes lists the processes that may be engines, from /proc.
func (r Reader) Processes() []Process {
	comms, err := filepath.Glob(filepath.Join(r.Proc, "[0-9]*", "comm"))
	if err != nil {
		return nil
	}
	var out []Process
	for _, path := range comms {
		b, err := budget.Head(path, maxComm)
		if comm := strings.TrimSpace(string(b)); err == nil && (comm == "dockerd" || comm == "podman") {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				out = append(out, Process{PID: pid, Comm: comm})
			}
		}
	}
	return out
}

// NameHops puts the names of containers into a chain of waits.
func NameHops(hops []observe.WaitHop, name func(id string) string) {
	for i := range hops {
		if p := &hops[i].Process; p.Container != "" {
			p.ContainerName = name(p.Container)
		}
	}
}
