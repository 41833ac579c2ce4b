package request

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/sense/tlslib"
)

const (
	// clearLook is how often it is looked at which processes to hook, and which no more.
	clearLook = 250 * time.Millisecond
	// clearIdle is after how long without clear bytes of a connection that is told apart
	// all is taken off.
	clearIdle = time.Minute
	// clearAgain is after how long a process is looked at anew in which nothing was found.
	clearAgain = 5 * time.Minute
	// maxClear bounds the files that are hooked at once.
	maxClear = 64
	// maxWanted bounds the processes that wait to be looked at, or were.
	maxWanted = 1024
)

// clearSide tells the requests of HTTP/2 connections under TLS apart, by probes at the
// functions of the process that encrypts them (clear.bpf.c). They are attached to files
// of processes whose connections were seen to have requests overlap, and to no others.
type clearSide struct {
	objects bpf.ClearObjects
	loaded  bool
	multi   bool // many places with one link (Linux 6.6)
	socket  []io.Closer
	failed  error

	wanted  map[int]bool // processes with requests that overlap under TLS
	looked  map[int]time.Time
	others  map[int]string // what encrypts in processes that cannot be hooked
	hooks   map[tlslib.ID]*hooked
	finder  tlslib.Finder
	working chan found // nil while nobody works
	next    time.Time
	bytes   uint64 // clear ones, at the last look
	used    time.Time
}

// hooked is a file with probes.
type hooked struct {
	file  *tlslib.File
	links []io.Closer
}

// found is what came of a look at processes.
type found struct {
	hooks  []*hooked
	others map[int]string
	failed error
}

// want notes a process whose connections carry several requests at a time under TLS.
func (c *clearSide) want(pid int) {
	if c.failed != nil || pid == 0 || c.wanted[pid] || len(c.wanted) >= maxWanted {
		return
	}
	if c.wanted == nil {
		c.wanted = map[int]bool{}
	}
	c.wanted[pid] = true
}

// tellClear hooks what has to be, and takes probes off that nobody needs. What takes long
// is done aside.
func (r *Recorder) tellClear(now time.Time) {
	c := &r.clear
	if c.working != nil {
		select {
		case f := <-c.working:
			c.working = nil
			r.addHooks(f, now)
		default:
		}
		return
	}
	if c.failed != nil || now.Before(c.next) {
		return
	}
	c.next = now.Add(clearLook)
	if len(c.hooks) > 0 && c.idle(now) {
		r.unhook()
		return
	}
	var pids []int
	for pid := range c.wanted {
		if when, ok := c.looked[pid]; !ok || now.Sub(when) > clearAgain {
			pids = append(pids, pid)
			if c.looked == nil || len(c.looked) >= maxWanted {
				c.looked, c.others = map[int]time.Time{}, map[int]string{}
			}
			c.looked[pid] = now
		}
	}
	clear(c.wanted)
	if len(pids) == 0 || len(c.hooks) >= maxClear {
		return
	}
	if !c.loaded {
		if c.failed = r.loadClear(); c.failed != nil {
			c.close()
			r.missing = append(r.missing, fmt.Sprintf("single requests of HTTP/2 under TLS: %v", c.failed))
			return
		}
		c.used = now
	}
	working := make(chan found, 1)
	c.working = working
	go func() { working <- c.find(pids) }()
}

// addHooks takes over what was found.
func (r *Recorder) addHooks(f found, now time.Time) {
	c := &r.clear
	if f.failed != nil {
		r.missing = append(r.missing, fmt.Sprintf("single requests of HTTP/2 under TLS: %v", f.failed))
		c.failed = f.failed
	}
	for pid, what := range f.others {
		c.others[pid] = what
	}
	if c.hooks == nil {
		c.hooks = map[tlslib.ID]*hooked{}
	}
	for _, h := range f.hooks {
		c.hooks[h.file.ID] = h
		c.used = now
	}
}

// idle says that nothing passed the functions for long.
func (c *clearSide) idle(now time.Time) bool {
	var n uint64
	// A variable that cannot be read says nothing.
	if c.objects.ClearBytes.Get(&n) == nil && n != c.bytes {
		c.bytes, c.used = n, now
	}
	return now.Sub(c.used) > clearIdle
}

// find looks for functions in the files of processes, and attaches to them.
func (c *clearSide) find(pids []int) (f found) {
	f.others = map[int]string{}
	for _, pid := range pids {
		p, err := c.finder.Find(context.Background(), pid)
		if err != nil {
			continue // it is gone, or its files are more than can be read
		}
		if p.Other != "" {
			f.others[pid] = p.Other
		}
		for _, file := range p.Files {
			h := &hooked{file: file}
			if err := c.hook(h); err != nil {
				h.close()
				c.finder.Forget(file.ID)
				f.failed = fmt.Errorf("attach to %s: %w", file.Name, err)
				continue
			}
			f.hooks = append(f.hooks, h)
		}
	}
	return f
}

// registers are where arguments and results lie in struct pt_regs.
var registers = map[string]struct {
	args   [4]uint32
	result uint32
}{
	"amd64": {[4]uint32{112, 104, 96, 88}, 80}, // DI, SI, DX, CX; AX
	"arm64": {[4]uint32{0, 8, 16, 24}, 0},
}

func (r *Recorder) loadClear() error {
	if err := bpf.HaveLoops(); err != nil {
		return err
	}
	here, ok := registers[runtime.GOARCH]
	if !ok {
		return errors.New("not on this architecture")
	}
	spec, err := bpf.LoadClear()
	if err != nil {
		return err
	}
	c := &r.clear
	if c.multi = features.HaveBPFLinkUprobeMulti() == nil; c.multi {
		spec.Programs[bpf.ClearProgClearEnter].AttachType = ebpf.AttachTraceUprobeMulti
		spec.Programs[bpf.ClearProgClearLeave].AttachType = ebpf.AttachTraceUprobeMulti
	}
	for name, value := range map[string]any{bpf.ClearVarRegArgs: here.args, bpf.ClearVarRegResult: here.result} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if err := r.loadStreams(spec, &c.objects); err != nil {
		return err
	}
	c.loaded = true
	for _, p := range []*ebpf.Program{c.objects.Http2Closed, c.objects.ClearReceived} {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return fmt.Errorf("attach to sockets: %w", err)
		}
		c.socket = append(c.socket, l)
	}
	r.doLess()
	return nil
}

// hook attaches to the functions of a file: first to where they return, so that no call
// that is seen to begin is not seen to end.
func (c *clearSide) hook(h *hooked) error {
	ex, err := link.OpenExecutable(h.file.Path())
	if err != nil {
		return err
	}
	for _, leave := range []bool{true, false} {
		program, many, one := c.objects.ClearEnter, ex.UprobeMulti, ex.Uprobe
		if leave {
			program, many, one = c.objects.ClearLeave, ex.UretprobeMulti, ex.Uretprobe
		}
		var at link.UprobeMultiOptions
		for _, s := range h.file.Sites {
			if leave && !s.Kind.Returns() {
				continue
			}
			at.Addresses = append(at.Addresses, s.Offset)
			at.Cookies = append(at.Cookies, uint64(s.Kind))
		}
		if c.multi {
			l, err := many(nil, program, &at)
			if err != nil {
				return err
			}
			h.links = append(h.links, l)
			continue
		}
		for i, address := range at.Addresses {
			l, err := one("", program, &link.UprobeOptions{Address: address, Cookie: at.Cookies[i]})
			if err != nil {
				return err
			}
			h.links = append(h.links, l)
		}
	}
	return nil
}

func (h *hooked) close() {
	for _, l := range h.links {
		l.Close()
	}
	h.file.Close()
}

// unhook takes all off: connections that were told apart are the recorder's again.
func (r *Recorder) unhook() {
	c := &r.clear
	if c.objects.GiveBack.Set(uint8(1)) == nil {
		// What is not given back has no requests until it is closed.
		_ = r.look(c.objects.Http2Flush, c.objects.PlaceOf)
	}
	c.close()
}

func (c *clearSide) close() {
	if c.working != nil {
		for _, h := range (<-c.working).hooks {
			h.close()
		}
		c.working = nil
	}
	for id, h := range c.hooks {
		h.close()
		c.finder.Forget(id)
	}
	clear(c.hooks)
	for _, l := range c.socket {
		l.Close()
	}
	c.socket = nil
	if c.loaded {
		c.objects.Close()
	}
	c.loaded = false
}
