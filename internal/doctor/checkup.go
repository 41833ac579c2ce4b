package doctor

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/kube"
	"github.com/slowray/slowray/internal/watch"
)

// Schema identifies the JSON of a [Checkup].
const Schema = "slowray.doctor/1"

// Checkup is what was found. Its JSON is a contract (schema/doctor.schema.json).
type Checkup struct {
	Schema   string    `json:"schema"`
	Host     Host      `json:"host"`
	Rights   Rights    `json:"rights"`
	Parts    []Part    `json:"parts"`
	Readings []Reading `json:"readings"`
	// Kubernetes is who was asked about pods; empty where this host is no node.
	Kubernetes []observe.KubeSource `json:"kubernetes,omitempty"`
	Causes     Causes               `json:"causes"`
	Price      Price                `json:"price"`
	// Running is other slowray processes that have programs in the kernel now, and what
	// they take; empty where there are none.
	Running []Running `json:"running,omitempty"`
}

// Host is where slowray runs.
type Host struct {
	Name   string `json:"name"`
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	CPUs   int    `json:"cpus"`
}

// State says whether something works.
type State string

// The states of a part and of a reading.
const (
	Works   State = "works"
	Partly  State = "partly"
	Missing State = "missing"
)

// Part is one of slowray's programs in the kernel, or what depends on one.
type Part struct {
	Name    string   `json:"name"`
	What    string   `json:"what"`
	Object  string   `json:"object,omitempty"` // the BPF object, as internal/bpf names it
	State   State    `json:"state"`
	Because []string `json:"because"` // what is missing, and why
	Lost    []string `json:"lost"`    // commands that do not work without it, or know less
	StartMS float64  `json:"start_ms"`
}

// Reading is a kind of reading that causes go by.
type Reading struct {
	Kind    observe.Kind `json:"kind"`
	State   State        `json:"state"`
	Because []string     `json:"because"`
	Lost    []string     `json:"lost"` // causes that are "not checked" without it
}

// Causes is how much of the catalogue can be checked here.
type Causes struct {
	Known      int      `json:"known"`
	Checked    int      `json:"checked"`
	NotChecked []string `json:"not_checked"`
}

// Price is what slowray took while it watched the window.
type Price struct {
	Seconds  float64   `json:"seconds"` // of the window
	CPUShare float64   `json:"cpu_share"`
	Programs []Program `json:"programs"` // that ran, the most expensive first; empty where the kernel does not count
	Because  string    `json:"because,omitempty"`
	Readers  []Reader  `json:"readers"` // the most expensive first
}

// Reader is a row of the table of package watch while the window was watched.
type Reader struct {
	Name     string  `json:"name"`
	CPUShare float64 `json:"cpu_share"` // of one CPU, from its beginning to its end
	Samples  int     `json:"samples"`   // looks between the first and the last
	Gaps     int     `json:"gaps"`      // that it left
}

// Program is the BPF programs of a name while the window was watched.
type Program struct {
	Name     string  `json:"name"`
	Calls    uint64  `json:"calls"`
	EachNS   float64 `json:"each_ns"`
	CPUShare float64 `json:"cpu_share"` // of one CPU
}

// OK says that every part works and nothing goes unread. Single things that could
// not be read, such as one server's log, are reported and do not count.
func (c *Checkup) OK() bool {
	return !slices.ContainsFunc(c.Parts, func(p Part) bool { return p.State != Works }) &&
		!slices.ContainsFunc(c.Readings, func(r Reading) bool { return r.State == Missing })
}

// Check tries everything, and watches for a while. The error is for what kept it
// from watching at all.
func Check(ctx context.Context, window time.Duration, pods *kube.Kube, progress func(what string)) (*Checkup, error) {
	c := &Checkup{Schema: Schema, Rights: rights()}
	for _, p := range probes {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		progress(p.name)
		c.Parts = append(c.Parts, p.try(ctx))
	}
	progress("a window")
	o, err := c.watch(ctx, window, pods)
	if err != nil {
		return nil, err
	}
	c.Host = Host{Name: o.Host.Name, Kernel: o.Host.Kernel, Arch: runtime.GOARCH, CPUs: o.Host.CPUs}
	if c.read(o); o.Kubernetes != nil {
		c.Kubernetes = o.Kubernetes.Sources
	}
	return c, nil
}

// watch looks at the host as why does, and at what that costs.
func (c *Checkup) watch(ctx context.Context, window time.Duration, pods *kube.Kube) (*observe.Observation, error) {
	counted, err := countPrograms()
	if err != nil {
		c.Price.Because = err.Error()
	}
	defer counted.close()
	others := lookRunning()
	before := ownCPU()
	opt := watch.Options{For: window, Kube: pods, Progress: func(elapsed time.Duration) {
		// The programs are gone when the window is over: the last look counts.
		c.Price.Seconds, c.Price.Programs = elapsed.Seconds(), counted.look(elapsed)
	}}
	var costs []watch.Cost
	opt.Costs = func(list []watch.Cost) { costs = list }
	o, err := watch.Run(ctx, opt)
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	c.Running = others.since(func() time.Duration {
		took, _ := countSelf(ctx) // where that fails the part says why
		return took
	})
	seconds := max(o.Window.Seconds, 0.001)
	c.Price.CPUShare = (ownCPU() - before).Seconds() / seconds
	c.Price.Readers = make([]Reader, 0, len(costs))
	for _, r := range costs {
		c.Price.Readers = append(c.Price.Readers, Reader{Name: r.Reader, CPUShare: r.CPU.Seconds() / seconds, Samples: r.Samples, Gaps: r.Gaps})
	}
	return o, nil
}

// read tells the kinds of reading, and the causes that need them.
func (c *Checkup) read(o *observe.Observation) {
	byKind := map[observe.Kind]*Reading{}
	var kinds []observe.Kind
	of := func(k observe.Kind) *Reading {
		if byKind[k] == nil {
			byKind[k] = &Reading{Kind: k, State: Works, Because: []string{}, Lost: []string{}}
			kinds = append(kinds, k)
		}
		return byKind[k]
	}
	catalogue := cause.Catalogue()
	c.Causes = Causes{Known: len(catalogue), NotChecked: []string{}}
	for i := range catalogue {
		one := &catalogue[i]
		for _, k := range one.Needs {
			of(k)
		}
		if diagnose.Unreadable(o, one.Needs) != "" {
			c.Causes.NotChecked = append(c.Causes.NotChecked, string(one.ID))
		}
	}
	c.Causes.Checked = c.Causes.Known - len(c.Causes.NotChecked)
	for _, g := range o.Gaps {
		r := of(g.Kind)
		because := strings.TrimPrefix(g.Subject+": "+g.Because, ": ")
		if !slices.Contains(r.Because, because) {
			r.Because = append(r.Because, because)
		}
		switch {
		case !g.Partial:
			r.State = Missing
			for i := range catalogue {
				if one := &catalogue[i]; slices.Contains(one.Needs, g.Kind) && !slices.Contains(r.Lost, string(one.ID)) {
					r.Lost = append(r.Lost, string(one.ID))
				}
			}
		case r.State == Works:
			r.State = Partly
		}
	}
	slices.Sort(kinds)
	for _, k := range kinds {
		c.Readings = append(c.Readings, *byKind[k])
	}
}

// self is this program's file, which is there as long as it runs.
func self() (string, error) { return os.Executable() }
