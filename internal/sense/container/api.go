package container

import (
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/app/heap"
)

const (
	maxListed  = 4096 // containers of one engine
	maxEvents  = 1024
	maxInspect = 16
)

// listed is a container in the answer to GET /containers/json (Docker Engine
// API v1.24 to v1.52; Podman's is compatible).
type listed struct {
	ID    string `json:"Id"`
	Names []string
	Image string
	// ImageID is "sha256:" and the digest; Podman leaves the first away.
	ImageID string
	State   string
}

// list gives all containers that the engine knows, also those that ended.
func (e *engine) list(b *budget.Budget) ([]observe.Container, error) {
	var out []observe.Container
	err := e.get(b, "/containers/json", url.Values{"all": {"1"}}, func(d *json.Decoder) error {
		if _, err := d.Token(); err != nil { // [
			return err
		}
		for d.More() && len(out) < maxListed {
			var l listed
			err := d.Decode(&l)
			if err == nil {
				err = b.Node()
			}
			if err != nil {
				return err
			}
			c := observe.Container{ID: shortID(l.ID), Image: clip(l.Image), ImageID: digestOf(l.ImageID), Engine: e.name, State: clip(l.State)}
			if len(l.Names) > 0 {
				c.Name = clip(strings.TrimPrefix(l.Names[0], "/"))
			}
			if c.ID != "" {
				out = append(out, c)
			}
		}
		return nil
	})
	return out, err
}

// inspected is the part of the answer to GET /containers/ID/json that matters.
type inspected struct {
	ID    string `json:"Id"`
	Name  string
	Path  string
	Args  []string
	State struct {
		Status     string
		OOMKilled  bool
		ExitCode   int
		FinishedAt time.Time
	}
	RestartCount int
	Config       struct {
		Image string
		Env   []string
	}
	HostConfig struct {
		Memory    int64
		NanoCpus  int64
		CPUQuota  int64 `json:"CpuQuota"`
		CPUPeriod int64 `json:"CpuPeriod"`
	}
}

// inspect tells more of a container.
func (e *engine) inspect(b *budget.Budget, c *observe.Container, origin time.Time, hostBytes uint64) error {
	var in inspected
	if err := e.get(b, "/containers/"+url.PathEscape(c.ID)+"/json", nil, func(d *json.Decoder) error { return d.Decode(&in) }); err != nil {
		return err
	}
	c.Name, c.Image, c.State = clip(strings.TrimPrefix(in.Name, "/")), clip(in.Config.Image), clip(in.State.Status)
	c.OOMKilled, c.ExitCode, c.Restarts = in.State.OOMKilled, in.State.ExitCode, in.RestartCount
	if t := in.State.FinishedAt; t.Year() > 1970 && c.State != "running" {
		c.EndedAt = t.Sub(origin).Seconds()
	}
	h := &in.HostConfig
	c.MemoryLimitBytes = uint64(max(h.Memory, 0))
	switch {
	case h.NanoCpus > 0:
		c.QuotaCPUs = float64(h.NanoCpus) / 1e9
	case h.CPUQuota > 0:
		period := h.CPUPeriod
		if period <= 0 {
			period = 100_000
		}
		c.QuotaCPUs = float64(h.CPUQuota) / float64(period)
	}
	c.Options, c.Heap = sizeOf(in.Path, in.Args, in.Config.Env, hostBytes, c.MemoryLimitBytes)
	return nil
}

// sizeOf tells the heap of a container's program. Scripts that start a JVM take
// its options from variables of their own (JAVA_OPTS, CATALINA_OPTS).
func sizeOf(path string, args, env []string, hostBytes, limit uint64) ([]string, *observe.Heap) {
	words := append([]string{path}, args...)
	java := slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "java") || strings.Contains(w, "catalina") })
	node := slices.ContainsFunc(words, func(w string) bool { return w == "node" || strings.HasSuffix(w, "/node") })
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		if heap.FromEnvironment(v) || strings.HasSuffix(name, "_OPTS") {
			words = append(words, value)
		}
		java = java || strings.HasPrefix(name, "JAVA_") || name == "CATALINA_OPTS"
	}
	options := heap.Options(words)
	runtime := ""
	switch {
	case java:
		runtime = heap.JVM
	case node:
		runtime = heap.Node
	default:
		return options, nil
	}
	h := heap.Of(runtime, options, hostBytes, limit)
	if h.MaxBytes == 0 {
		return options, nil
	}
	return options, &h
}

// event is one of GET /events.
type event struct {
	Action string
	Actor  struct {
		ID         string
		Attributes map[string]string
	}
	Time int64 `json:"time"`
}

// removed gives the containers that were removed since a time and that the
// engine still remembers: Docker keeps its last 256 events in memory.
func (e *engine) removed(b *budget.Budget, since, now, origin time.Time) ([]observe.Container, error) {
	filters, _ := json.Marshal(map[string][]string{"type": {"container"}, "event": {"oom", "die", "died", "destroy", "remove"}})
	query := url.Values{"since": {strconv.FormatInt(since.Unix(), 10)}, "until": {strconv.FormatInt(now.Unix(), 10)}, "filters": {string(filters)}, "stream": {"false"}}
	known := map[string]*observe.Container{}
	var order []string
	err := e.get(b, "/events", query, func(d *json.Decoder) error {
		for range maxEvents {
			var v event
			if err := d.Decode(&v); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			id := shortID(v.Actor.ID)
			if id == "" {
				continue
			}
			c := known[id]
			if c == nil {
				c = &observe.Container{ID: id, Engine: e.name}
				known[id] = c
				order = append(order, id)
			}
			c.Name, c.Image = clip(v.Actor.Attributes["name"]), clip(v.Actor.Attributes["image"])
			switch v.Action {
			case "oom":
				c.OOMKilled = true
			case "die", "died":
				c.ExitCode, _ = strconv.Atoi(v.Actor.Attributes["exitCode"])
				c.EndedAt = time.Unix(v.Time, 0).Sub(origin).Seconds()
			case "destroy", "remove":
				c.State = "removed"
			}
		}
		return nil
	})
	var out []observe.Container
	for _, id := range order {
		if c := known[id]; c.State == "removed" {
			out = append(out, *c)
		}
	}
	return out, err
}

const shownID = 12 // bytes of an id

// shortID is a container's id as it is shown.
func shortID(id string) string {
	id = clip(id)
	return id[:min(len(id), shownID)]
}

// digestOf is the beginning of the digest of an image's ID, empty where that is none.
func digestOf(id string) string {
	if id = strings.TrimPrefix(id, "sha256:"); !hexID.MatchString(id) {
		return ""
	}
	return shortID(id)
}

// clip makes a name fit to show.
func clip(s string) string {
	return strings.Clone(printable.Name(s, 128)) // not the whole answer for a name
}
