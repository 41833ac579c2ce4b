package page_test

import (
	"net/url"
	"testing"
)

// The foot tells how far each target is that what is recorded is sent to.
func TestFootTellsHowFarTargetsAre(t *testing.T) {
	u, _ := url.Parse("/api/status")
	tellsOf := func(targets ...object) map[string]any {
		status := tell(httpGet(u)).(object)
		status["shipping"] = targets
		return map[string]any{"/api/status": status}
	}
	well := object{"url": "clickhouse://ch-1:8123/slowray", "sent": 4000, "waiting": 12, "waiting_bytes": 900, "behind_seconds": 1.2, "gave_up": 0}
	m := &mock{instead: tellsOf(well,
		object{"url": "victorialogs://<b>logs</b>:9428", "sent": 5, "waiting": 48000, "waiting_bytes": 3 << 20, "behind_seconds": 750, "gave_up": 1234, "refused": 6, "error": "connect: connection refused\x1b[31m", "last_error": "connect: connection refused"})}
	b := open(t, 1200, 800, m)
	b.goTo("#/?view=timeline", "timeline")
	b.until(`document.querySelectorAll("#foot [data-sent]").length === 2`)
	b.says("#foot", "to clickhouse://ch-1:8123/slowray: up to date", "to victorialogs://<b>logs</b>:9428: 13 min behind, 3 MiB wait, 1,234 given up, 6 refused; fails: connect: connection refused")
	if n := b.number(`document.querySelectorAll("#foot [data-sent].bad").length`); n != 1 {
		t.Errorf("%d targets are marked as bad, want 1", n)
	}
	if n := b.number(`document.querySelectorAll("#foot b").length`); n != 0 {
		t.Error("what a target is called became an element")
	}
	b.fits("timeline")
	m.tells(tellsOf(well))
	b.until(`document.querySelectorAll("#foot [data-sent]").length === 1`)
	if n := b.number(`document.querySelectorAll("#foot [data-sent].bad").length`); n != 0 {
		t.Error("a target that is well is marked as bad")
	}
}
