package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/answer"
	"github.com/slowray/slowray/internal/fleet/memory"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// fleetInMemory is an archive of the test's own, at memory://.
func fleetInMemory(t *testing.T) *memory.Archive {
	t.Helper()
	a := new(memory.Archive)
	archives["memory"] = func(string) (fleet.Archive, error) { return a, nil }
	t.Cleanup(func() { delete(archives, "memory") })
	t.Setenv("SLOWRAY_FLEET", "memory://test")
	return a
}

// slowrayOut is what a command prints, and its status.
func slowrayOut(args ...string) (out, messages string, status int) {
	var stdout, stderr bytes.Buffer
	status = run(args, &stdout, &stderr)
	return stdout.String(), stderr.String(), status
}

// serve adds seconds of a service: each request of so many takes as long as took says.
func serve(a *memory.Archive, host, comm string, port int, from time.Time, seconds, requests int, took func(second, request int) time.Duration) {
	for s := range seconds {
		x := &store.Second{At: from.Unix() + int64(s), Process: observe.Identity{Comm: comm}}
		e := &x.Endpoint
		e.Side, e.Addr, e.Port, e.Requests = "served", "10.0.0.1", port, uint64(requests)
		sum := int64(0)
		for i := range requests {
			e.Total.Add(int64(took(s, i)))
			sum += int64(took(s, i))
		}
		e.Parts = map[string]observe.PartStats{observe.Server.String(): {SumNS: sum}}
		a.AddSecond(host, x)
	}
}

func TestFleetWhy(t *testing.T) {
	a := fleetInMemory(t)
	out, messages, status := slowrayOut("fleet", "why")
	if status != exitFailed || !strings.Contains(out, "Nothing could be judged.") || strings.Count(messages, "\n") != 1 || !strings.Contains(messages, "slowray record --to") {
		t.Errorf("status %d of an empty fleet, %q:\n%s", status, messages, out)
	}
	if out, _, _ := slowrayOut("fleet", "top", "--once"); !strings.Contains(out, "slowray record --to") {
		t.Errorf("top of an empty fleet:\n%s", out)
	}
	if _, messages, _ := slowrayOut("fleet", "watch", "--for", "1s"); !strings.Contains(messages, "slowray record --to") || strings.Count(messages, "\n") != 1 {
		t.Errorf("watch of an empty fleet: %q", messages)
	}
	now := time.Now()
	for _, host := range []string{"a", "b"} {
		if err := a.Hello(context.Background(), &fleet.Host{Name: host, Addresses: []string{"10.0.0.1"}}, now); err != nil {
			t.Fatal(err)
		}
		serve(a, host, "nginx", 80, now.Add(-20*time.Minute), 1195, 20, func(s, i int) time.Duration {
			d := time.Millisecond + time.Duration((s*7+i*13)%20)*20*time.Microsecond
			if host == "b" && s > 900 {
				d += 50 * time.Millisecond
			}
			return d
		})
	}
	out, messages, status = slowrayOut("fleet", "why")
	if status != exitFindings || !strings.Contains(out, "nginx:80 on b") || messages != "" {
		t.Errorf("status %d, %q:\n%s", status, messages, out)
	}
	out, _, status = slowrayOut("fleet", "why", "--json", "--host", "a")
	if status != exitNothing || !strings.Contains(out, `"schema": "slowray.fleet/1"`) {
		t.Errorf("status %d of the host that is well:\n%s", status, out)
	}
	if _, _, status := slowrayOut("fleet", "why", "--at", "-18m", "--for", "5m"); status != exitNothing {
		t.Errorf("status %d of the time before", status)
	}
	// Neither a name that nobody has nor a time without figures is a fleet that is well.
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--service", "ngnix"}, "seen were nginx:80"},
		{[]string{"--at", "-18h"}, "no host has figures of this range; the last that was heard of any is of 20"},
	} {
		out, messages, status := slowrayOut(append([]string{"fleet", "why"}, c.args...)...)
		if status != exitFailed || strings.Count(messages, "\n") != 1 || !strings.Contains(messages, "nothing could be judged") || !strings.Contains(strings.Join(strings.Fields(out), " "), c.want) || strings.Contains(out, "Nothing is abnormal") {
			t.Errorf("%q: status %d, %q:\n%s", c.args, status, messages, out)
		}
		out, _, status = slowrayOut(append([]string{"fleet", "why", "--json"}, c.args...)...)
		if status != exitFailed || !strings.Contains(out, `"schema": "slowray.fleet/1"`) {
			t.Errorf("%q: status %d:\n%s", c.args, status, out)
		}
	}
}

// What hosts still keep is not judged; a range of the past is not cut.
func TestFleetWhyWaitsForSeconds(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	ago := func(from, to time.Duration) answer.Question {
		return answer.Question{From: now.Add(-from), To: now.Add(-to)}
	}
	for _, c := range []struct{ from, to, want time.Duration }{
		{10 * time.Minute, 0, 6 * time.Second}, {10 * time.Minute, 2 * time.Second, 6 * time.Second},
		{10 * time.Minute, time.Minute, time.Minute}, {4 * time.Second, 0, 0},
	} {
		if got := settled(ago(c.from, c.to), now, 6*time.Second); !got.To.Equal(now.Add(-c.want)) || !got.From.Equal(now.Add(-c.from)) {
			t.Errorf("%+v: to %s before now", c, now.Sub(got.To))
		}
	}
}

func TestFleetWhyErrors(t *testing.T) {
	t.Setenv("SLOWRAY_FLEET", "")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "set SLOWRAY_FLEET"},
		{[]string{"--from", "db-7"}, `"db-7" is no URL`},
		{[]string{"--from", "me:secret@db-7"}, `"db-7" is no URL`},
		{[]string{"--from", "clickhous://db-7/slowray"}, "clickhous://db-7/slowray: only ClickHouse can be asked"},
		{[]string{"--from", "victorialogs://me:secret@host"}, "only ClickHouse can be asked"},
		{[]string{"--for", "1s"}, "must be 1m to 24h"},
		{[]string{"--at", "tomorrow"}, "is no time"},
		{[]string{"--from", "a://\x1b[2J%zz"}, "cannot be read"},
	} {
		_, messages, status := slowrayOut(append([]string{"fleet", "why"}, c.args...)...)
		if status != exitFailed || !strings.Contains(messages, c.want) || strings.Count(messages, "\n") != 1 || strings.ContainsAny(messages, "\x1b") || strings.Contains(messages, "secret") {
			t.Errorf("%q: status %d, %q, want %q", c.args, status, messages, c.want)
		}
	}
}

func TestFleetTopAndWatch(t *testing.T) {
	a := fleetInMemory(t)
	now := time.Now()
	for _, host := range []string{"a", "b\x1b[2J"} {
		if err := a.Hello(context.Background(), &fleet.Host{Name: host}, now); err != nil {
			t.Fatal(err)
		}
		serve(a, host, "nginx", 80, now.Add(-10*time.Minute), 640, 20, func(s, i int) time.Duration {
			return time.Millisecond + time.Duration((s*7+i*13)%20)*20*time.Microsecond
		})
	}
	out, messages, status := slowrayOut("fleet", "top", "--once")
	if status != exitNothing || !strings.Contains(out, "nginx:80") || !strings.Contains(out, "heard of") || strings.Contains(out, "\x1b") {
		t.Errorf("status %d, %q:\n%s", status, messages, out)
	}
	out, _, status = slowrayOut("fleet", "top", "--once", "--json")
	if status != exitNothing || !strings.Contains(out, `"schema": "slowray.fleet-top/1"`) {
		t.Errorf("status %d:\n%s", status, out)
	}
	if out, messages, status := slowrayOut("fleet", "watch", "--for", "1s"); status != exitNothing || out != "" || messages != "slowray: fleet watch: 2 hosts ship here; what begins is printed from now on\n" {
		t.Errorf("status %d, %q, %q", status, out, messages)
	}
	// What is abnormal already when the watch begins is reported, and kept by the archive.
	serve(a, "c", "nginx", 80, now.Add(-10*time.Minute), 640, 20, func(s, i int) time.Duration {
		d := time.Millisecond + time.Duration((s*7+i*13)%20)*20*time.Microsecond
		if s > 500 {
			d += 50 * time.Millisecond
		}
		return d
	})
	if out, messages, status := slowrayOut("fleet", "watch", "--for", "1s", "--json"); status != exitFindings || strings.Count(messages, "\n") != 1 || !strings.Contains(out, `"kind":"onset"`) || !strings.Contains(out, `"host":"c"`) {
		t.Errorf("status %d, %q, %q", status, out, messages)
	}
	if events := a.Events(); len(events) == 0 || events[0].Kind != "onset" || !strings.Contains(string(events[0].Document), "slowray.fleet-event/1") {
		t.Errorf("events %+v", events)
	}
	for _, args := range [][]string{{"top", "--json"}, {"top", "--every", "1ms"}, {"watch", "--for", "1ms"}, {"watch", "--from", "nowhere"}} {
		if _, messages, status := slowrayOut(append([]string{"fleet"}, args...)...); status != exitFailed || strings.Count(messages, "\n") != 1 {
			t.Errorf("%q: status %d, %q", args, status, messages)
		}
	}
}
