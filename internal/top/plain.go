package top

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/request"
)

// SchemaTop identifies the JSON form of the table.
const SchemaTop = "slowray.top/1"

// Once watches for one interval, or until ctx is done, and takes the picture.
func Once(ctx context.Context, stream *request.Stream, opt Options) (Snapshot, error) {
	opt.Every = max(opt.Every, minEvery)
	s := newSampler(stream, opt, time.Now())
	ctx, cancel := context.WithTimeout(ctx, opt.Every)
	defer cancel()
	<-ctx.Done()
	return s.take(time.Now(), true)
}

// Text writes the picture as a table for people: all columns, however wide, the
// busiest endpoint first.
func Text(w io.Writer, s *Snapshot) error {
	var rows []row
	for i := range s.Endpoints {
		rows = append(rows, rowOf(&s.Endpoints[i], s.Seconds))
	}
	sortRows(rows, defaultSort, false)
	places := place(0, rows)
	if _, err := fmt.Fprintf(w, "%s, average of %s\n", figure.Counted(len(rows), "endpoint"), span(s.Seconds)); err != nil {
		return err
	}
	if len(rows) > 0 {
		if _, err := fmt.Fprintln(w, trimmed(header(places, -1, false)[1:])); err != nil {
			return err
		}
	}
	for i := range rows {
		line := ""
		for _, p := range places {
			line += " " + p.cell(&rows[i])
		}
		if _, err := fmt.Fprintln(w, trimmed(line[1:])); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, priceText(s))
	return err
}

func trimmed(line string) string {
	for line != "" && line[len(line)-1] == ' ' {
		line = line[:len(line)-1]
	}
	return line
}

// document is the JSON form. An endpoint is as in schema/report.schema.json.
type document struct {
	Schema    string                `json:"schema"`
	Window    diagnose.ReportWindow `json:"window"`
	CPU       float64               `json:"cpu_share"` // slowray's own, of all CPUs, 0 to 1
	Endpoints []endpoint            `json:"endpoints"`
	Losses    []observe.Loss        `json:"losses"`
}

type endpoint struct {
	Side    string            `json:"side"`
	NetNS   uint64            `json:"netns"`
	Addr    string            `json:"addr"`
	Port    int               `json:"port"`
	Process *diagnose.Process `json:"process,omitempty"`
	// Workload is who has Addr in Kubernetes, of a called one.
	Workload *observe.Workload `json:"workload,omitempty"`
	diagnose.Measured
}

// JSON writes the picture for programs. What found no place in the table has no
// address, and is among the losses.
func JSON(w io.Writer, s *Snapshot, processOf func(pid int, at int64) (observe.Identity, bool)) error {
	d := document{
		Schema: SchemaTop, Window: diagnose.ReportWindow{Start: s.Start, Seconds: s.Seconds}, CPU: s.CPU,
		Endpoints: []endpoint{}, Losses: []observe.Loss{},
	}
	lose := func(what string, n uint64) {
		if n > 0 {
			d.Losses = append(d.Losses, observe.Loss{What: what, Count: int64(n)})
		}
	}
	lose("request records lost: buffer full", s.Lost)
	lose("requests counted without a record, to stay within the budget", s.Sampled)
	end := s.Start.Add(time.Duration(s.Seconds * 1e9)).UnixNano()
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if e.Port == 0 {
			lose("requests of "+e.Side+" addresses beyond the bound of the table", e.Requests)
			continue
		}
		x := endpoint{Side: e.Side, NetNS: e.NetNS, Addr: e.Addr, Port: e.Port, Measured: diagnose.Measure(e, s.Seconds)}
		x.Workload = e.Workload
		if e.PID != 0 {
			x.Process = process(e, end, processOf)
		}
		d.Endpoints = append(d.Endpoints, x)
	}
	return printable.WriteJSON(w, d)
}

func process(e *observe.Endpoint, at int64, processOf func(int, int64) (observe.Identity, bool)) *diagnose.Process {
	p := &diagnose.Process{PID: e.PID, Comm: e.Comm}
	if processOf == nil {
		return p
	}
	if known, ok := processOf(e.PID, at); ok {
		p.Comm, p.Cgroup = known.Comm, known.Cgroup
		if known.Container != "" {
			p.Container = &known.Container
			if known.ContainerName != "" {
				p.Name = &known.ContainerName
			}
		}
		if known.Unit != "" {
			p.Unit = &known.Unit
		}
		if known.Workload != (observe.Workload{}) {
			p.Workload = &known.Workload
		}
	}
	return p
}
