package answer

import (
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet/anomaly"
)

// TestAPodIsSlow: what is slow on one host is in one pod, and what is not is next to it.
func TestAPodIsSlow(t *testing.T) {
	w := newWorld(12)
	w.group = func(host, comm string) string {
		if host == "web-2" && comm != "exporter" {
			return "/kubepods.slice/pod1/" + comm
		}
		return "/system.slice/" + comm + ".service"
	}
	throttled := func(host string, s int64) time.Duration {
		if host != "web-2" || s < 450 {
			return 0
		}
		return 40 * time.Millisecond
	}
	w.web, w.cache = throttled, throttled
	w.run(540)
	r := w.why(t, 240, 540)
	valid(t, r)
	c := one(t, r)
	if c.Component != (anomaly.Component{Kind: anomaly.Cgroup, Value: "web-2:/kubepods.slice/pod1"}) || c.Origin == nil || c.Origin.Host != "web-2" ||
		!strings.HasPrefix(c.Text, "2 of 2 slow endpoints are in the control group /kubepods.slice/pod1 on web-2; of the others 0 of ") {
		t.Errorf("%+v, origin %+v:\n%s", c.Component, c.Origin, textOf(t, r))
	}
	// Second by second too, when it is known where they run.
	watcher := NewWatcher(w, nil)
	if err := watcher.Learn(t.Context(), moment(440).Add(Settle)); err != nil {
		t.Fatal(err)
	}
	for s := int64(441); s < 500; s++ {
		if _, err := watcher.Step(t.Context(), moment(s).Add(Settle)); err != nil {
			t.Fatal(err)
		}
	}
	if open := watcher.Open(); len(open) != 1 || open[0].Component != c.Component {
		t.Errorf("the watcher says %+v", open)
	}
}
