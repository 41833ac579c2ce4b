package alert

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// second is what a service did: some requests around a latency, some of them with errors.
func second(r *rand.Rand, requests, errors int, ms float64) []store.Second {
	var s store.Second
	e := &s.Endpoint
	e.Side, e.Comm, e.Port, e.Addr = observe.Served.String(), "nginx", 8080, "127.0.0.1"
	e.Requests, e.OK, e.Errors = uint64(requests), uint64(requests-errors), uint64(errors)
	for range requests {
		e.Total.Add(int64(ms * 1e6 * (0.5 + r.ExpFloat64())))
	}
	return []store.Second{s}
}

// TestNoHarm: a service whose load and latency vary as they do is never harmed, in ten
// minutes and twenty draws; nor is one whose clients leave, or that is slow by its nature.
func TestNoHarm(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := newDetector()
		for s := range 600 {
			n := 5 + r.IntN(60)
			if s > 500 {
				n = 0 // they leave
			}
			errors := 0
			if r.IntN(20) == 0 && n > 0 {
				errors = 1
			}
			if harms := d.second(second(r, n, errors, 12)); len(harms) > 0 {
				t.Fatalf("seed %d, second %d: %+v", seed, s, harms)
			}
		}
	}
}

// TestHarmOfFew: harm is over though only a few requests a second are left, or rows without
// any; while these fail, too, it is not.
func TestHarmOfFew(t *testing.T) {
	for _, c := range []struct {
		name             string
		requests, errors int
		over             bool
	}{{"health checks", 2, 0, true}, {"rows without requests", 0, 0, true}, {"a few, that fail", 2, 2, false}} {
		r := rand.New(rand.NewPCG(9, 9))
		d := newDetector()
		for range 60 {
			d.second(second(r, 50, 0, 12))
		}
		for range 20 {
			d.second(second(r, 50, 20, 12))
		}
		for range 30 {
			d.second(second(r, c.requests, c.errors, 12))
		}
		if harms := d.second(second(r, c.requests, c.errors, 12)); (len(harms) == 0) != c.over {
			t.Errorf("%s: %+v", c.name, harms)
		}
	}
}

// TestAddressesOfService: what fails at one address is not made good by another, nor is one
// that is slower by its nature taken for harm; processes of one address are one.
func TestAddressesOfService(t *testing.T) {
	for _, fails := range []bool{false, true} {
		r := rand.New(rand.NewPCG(3, 9))
		d := newDetector()
		var harms []Harm
		for s := range 120 {
			errors := 0
			if fails && s > 100 {
				errors = 15
			}
			outer, inner, other := second(r, 15, errors, 60), second(r, 1+r.IntN(20), 0, 1), second(r, 15, 0, 60)
			outer[0].Endpoint.Addr, other[0].Endpoint.Addr, other[0].Endpoint.PID = "10.0.0.5", "10.0.0.5", 7
			harms = d.second(append(append(outer, inner...), other...))
			if len(harms) > 0 && !fails {
				t.Fatalf("second %d: %+v", s, harms)
			}
		}
		if fails && (len(harms) != 1 || harms[0].Share != 0.5) {
			t.Errorf("%+v", harms)
		}
	}
}

func TestHarm(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  func(r *rand.Rand) []store.Second
		text string
	}{
		{"a third fails", func(r *rand.Rand) []store.Second { return second(r, 30, 10, 12) }, "33 % of its requests fail"},
		{"ten times as slow", func(r *rand.Rand) []store.Second { return second(r, 30, 0, 120) }, ""},
		{"hangs", func(r *rand.Rand) []store.Second {
			s := second(r, 0, 0, 0)
			s[0].Endpoint.Unfinished = 20
			return s
		}, "20 requests wait for more than a second"},
	} {
		r := rand.New(rand.NewPCG(7, 7))
		d := newDetector()
		for range 60 {
			d.second(second(r, 30, 0, 12))
		}
		after := 0
		for after < 10 {
			after++
			if harms := d.second(c.bad(r)); len(harms) == 1 {
				if harms[0].Service != "nginx:8080" || c.text != "" && harms[0].Text != c.text {
					t.Errorf("%s: %+v", c.name, harms)
				}
				break
			}
		}
		if after > 3 {
			t.Errorf("%s: seen after %d s", c.name, after)
		}
		for range 10 {
			d.second(second(r, 30, 0, 12))
		}
		if harms := d.second(second(r, 30, 0, 12)); len(harms) != 0 {
			t.Errorf("%s: is not over: %+v", c.name, harms)
		}
	}
}

// TestUnreadIsNotOver: a service that answers with errors goes on to have requests whose status
// nobody can read, to the same recorder or to one that was started anew: its incident lasts until
// success is seen, or the traffic is gone.
func TestUnreadIsNotOver(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for _, then := range []string{"unread", "fails", "succeeds", "no traffic"} {
			r := rand.New(rand.NewPCG(5, 5))
			x, all := follow(rules(t, "for: 0s\nresolve_after: 30s\n"+oneHook))
			d, at := newDetector(), begin
			pass := func(seconds, requests, errors int, unread bool) {
				for range seconds {
					at = at.Add(time.Second)
					s := second(r, requests, errors, 12)
					if unread {
						s[0].Endpoint.OK = 0
					}
					if requests == 0 {
						s = nil
					}
					x.harm(at, d.second(s))
					x.look(at, d.sights)
				}
			}
			pass(60, 50, 0, false)
			pass(20, 50, 50, false)
			if restart {
				d = newDetector()
				text, err := json.Marshal(x)
				if err != nil {
					t.Fatal(err)
				}
				emit := x.emit
				x = &incidents{c: x.c, emit: emit}
				if err := json.Unmarshal(text, x); err != nil {
					t.Fatal(err)
				}
			}
			pass(120, 50, 0, true)
			if got := kinds(*all); len(got) == 0 || got[len(got)-1] == End {
				t.Fatalf("restart %v: %v while no status could be read", restart, got)
			}
			switch then {
			case "unread":
				pass(120, 50, 0, true)
			case "fails":
				pass(120, 50, 50, false)
			case "succeeds":
				pass(60, 50, 0, false)
			case "no traffic":
				pass(60, 0, 0, false)
			}
			ended := (*all)[len(*all)-1].kind == End
			if want := then == "succeeds" || then == "no traffic"; ended != want || len(kinds(*all)) > 3 {
				t.Errorf("restart %v, then %s: %v", restart, then, kinds(*all))
			}
		}
	}
}
