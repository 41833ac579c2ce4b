package web

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

func TestStacks(t *testing.T) {
	m := incident()
	busy := func(hot uint64) func(*observe.Observation) {
		return func(o *observe.Observation) {
			f := func(name string, own uint64) observe.ProfileFunction {
				return observe.ProfileFunction{Frame: observe.Frame{Name: name, Kind: observe.FramePHP}, Self: own, Total: own, Own: own}
			}
			o.Profile = &observe.Profile{Hz: 100, Samples: 1000 + hot, Processes: []observe.ProfileProcess{{PID: 4711, Comm: "nginx", Samples: 1000 + hot,
				Functions: []observe.ProfileFunction{f("render", hot), f("parse", 500)}}}}
		}
	}
	m.window(t, noon.Add(time.Minute), 60, busy(100))
	m.window(t, noon.Add(5*time.Minute), 60, busy(5000))
	h := serve(t, m, Options{})
	a := ask[stacksJSON](t, h, "/api/stacks?"+incidentRange()+"&against_from="+unixText(noon)+"&against_to="+unixText(noon.Add(5*time.Minute)))
	if a.Frames == nil || a.Frames.Value != 60e9 || *a.Frames.Before != 11e9 || !a.Compares {
		t.Fatalf("%+v", a.Frames)
	}
	nginx := a.Frames.Children[0]
	if nginx.Name != "nginx" || nginx.Kind != "process" || nginx.Children[0].Name != "render" || nginx.Children[0].Value != 50e9 || *nginx.Children[0].Before != 1e9 {
		t.Errorf("%+v", nginx)
	}
	if off := ask[stacksJSON](t, h, "/api/stacks?kind=off&"+incidentRange()); off.Frames != nil || off.Because == nil {
		t.Errorf("%+v", off)
	}
	page := get(t, h, "/flame?"+incidentRange())
	if page.Code != 200 || !strings.Contains(page.Body.String(), "render") || !strings.Contains(page.Header().Get("Content-Security-Policy"), "script-src 'sha256-") {
		t.Errorf("%d %v", page.Code, page.Header())
	}
	picture := get(t, h, "/flame.svg?"+incidentRange())
	if picture.Code != 200 || !bytes.HasPrefix(picture.Body.Bytes(), []byte("<svg")) || picture.Header().Get("Content-Type") != "image/svg+xml" {
		t.Errorf("%d %v %.100s", picture.Code, picture.Header(), picture.Body)
	}
	d := ask[struct{ Rows []differenceRow }](t, h, "/api/difference?"+incidentRange())
	if !anyRow(d.Rows, func(r *differenceRow) bool {
		return r.Dimension == byStack && strings.HasPrefix(r.Name, "render in nginx") && r.Inside > 5*r.Outside
	}) {
		t.Errorf("no row of the function: %+v", d.Rows)
	}
}

// Whole stacks of a part of a window stand for all that their process computed in
// it; other processes are shown by their functions.
func TestWholeStacks(t *testing.T) {
	m := incident()
	for i := range 2 {
		m.window(t, noon.Add(time.Duration(5+i)*time.Minute), 60, func(o *observe.Observation) {
			o.Profile = &observe.Profile{Hz: 100, Samples: 3000, Processes: []observe.ProfileProcess{{PID: 4711, Comm: "nginx", Samples: 2000}, {PID: 1, Comm: "other", Samples: 1000,
				Functions: []observe.ProfileFunction{{Frame: observe.Frame{Name: "spin", Kind: observe.FrameNative}, Self: 900, Total: 900, Own: 900}}}}}
			if i == 1 {
				return
			}
			o.Stacks = &observe.Stacks{Hz: 97, WindowNS: 4e9, Types: []observe.StackValue{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
				Frames: []observe.Frame{{Name: "handle", Kind: observe.FramePython}, {Name: "render", Kind: observe.FramePython}, {Name: "query", Kind: observe.FramePython}},
				Samples: []observe.StackSample{{PID: 4711, Comm: "nginx", Frames: []int32{1, 0}, Values: []int64{75, 75e7}}, {PID: 4711, Comm: "nginx", Frames: []int32{2, 0}, Values: []int64{25, 25e7}},
					{PID: 4711, Comm: "nginx", Frames: []int32{99, -1}, Values: []int64{0, 0}}}}
		})
	}
	h := serve(t, m, Options{})
	a := ask[stacksJSON](t, h, "/api/stacks?"+incidentRange())
	if a.Frames == nil || a.Frames.Value != 30e9 || len(a.Frames.Children) != 2 || a.Window != 60 || len(a.Notes) < 2 {
		t.Fatalf("%+v %v", a.Frames, a)
	}
	handle := a.Frames.Children[0].Children[0]
	if handle.Name != "handle" || handle.Value != 20e9 || len(handle.Children) != 2 || handle.Children[0].Name != "render" || handle.Children[0].Value != 15e9 || handle.Children[0].Self != 15e9 {
		t.Errorf("%+v", handle)
	}
	if other := a.Frames.Children[1]; other.Name != "other" || other.Value != 10e9 || other.Children[0].Name != "spin" || other.Children[0].Value != 9e9 {
		t.Errorf("%+v", other)
	}
	r := ask[struct{ Stacks *frameJSON }](t, h, "/api/request?id="+url.QueryEscape(requestID(&m.reqs[4*310])))
	if r.Stacks == nil || len(r.Stacks.Children) != 1 || r.Stacks.Children[0].Children[0].Name != "handle" {
		t.Errorf("%+v", r.Stacks)
	}
	without := ask[map[string]json.RawMessage](t, h, "/api/request?stacks=0&id="+url.QueryEscape(requestID(&m.reqs[4*310])))
	if _, ok := without["stacks"]; ok || strings.Contains(string(without["because"]), "stacks") || without["window"] == nil {
		t.Errorf("with stacks that were not asked for: %s", without)
	}
}

func anyRow(rows []differenceRow, f func(*differenceRow) bool) bool {
	for i := range rows {
		if f(&rows[i]) {
			return true
		}
	}
	return false
}
