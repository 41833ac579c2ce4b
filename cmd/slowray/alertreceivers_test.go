package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/alert"
)

// alertReceiver is what an alertGate leads to.
type alertReceiver interface {
	// about says of which incident a message is, and whether it ends it.
	about(body []byte) (incident string, over bool, err error)
	take(r *http.Request, body []byte) (status int)
	outage() (status int)
	// counts is how often the receiver saw each incident begin and end.
	counts() (begun, ended map[string]int)
}

// pagerDuty does what Events API v2 says of a dedup_key: while an incident with it is open,
// a trigger adds to it; a resolve of none changes nothing.
type pagerDuty struct {
	tally
	open  map[string]bool
	again int // of both
}

// pagerEvent is an event of Events API v2.
type pagerEvent struct {
	Key     string `json:"routing_key"`
	Action  string `json:"event_action"`
	Dedup   string `json:"dedup_key"`
	Payload struct{ Summary, Source, Severity string }
}

func (*pagerDuty) about(body []byte) (incident string, over bool, err error) {
	var e pagerEvent
	err = json.Unmarshal(body, &e)
	return strings.TrimPrefix(e.Dedup, "slowray-"), e.Action == "resolve", err
}

func (p *pagerDuty) take(r *http.Request, body []byte) int {
	var e pagerEvent
	p.mu.Lock()
	defer p.mu.Unlock()
	incident, over, err := p.about(body)
	if err = errors.Join(err, json.Unmarshal(body, &e)); err != nil || r.URL.Path != "/v2/enqueue" || e.Key != routingKey || incident == "" ||
		!over && (e.Action != "trigger" || e.Payload.Summary == "" || e.Payload.Source == "" || !slices.Contains([]string{"critical", "error", "warning", "info"}, e.Payload.Severity)) {
		return http.StatusBadRequest
	}
	switch {
	case p.open[incident] == over && over:
		delete(p.open, incident)
		p.ended[incident]++
	case p.open[incident] == over:
		p.open[incident] = true
		p.begun[incident]++
	default:
		p.again++
	}
	return http.StatusAccepted
}

func (*pagerDuty) outage() int { return http.StatusTooManyRequests }

// routingKey and hookSecret are in the files that the rules name.
const routingKey, hookSecret = "R0UT1NGKEY", "s3cret"

// signedHook is a webhook that leaves out what it has seen, by its delivery.
type signedHook struct {
	tally
	order      []alert.Message // begins
	deliveries map[string]int
	unsigned   int
}

func (*signedHook) about(body []byte) (incident string, over bool, err error) {
	var m alert.Message
	err = json.Unmarshal(body, &m)
	return m.ID, m.Kind == alert.End, err
}

func (h *signedHook) take(r *http.Request, body []byte) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	var m alert.Message
	var at int64
	signature := r.Header.Get("Slowray-Signature")
	if _, err := fmt.Sscanf(signature, "t=%d,", &at); err != nil || signature != alert.Sign([]byte(hookSecret), time.Unix(at, 0), body) ||
		json.Unmarshal(body, &m) != nil || m.Delivery == "" || r.Header.Get("Slowray-Delivery") != m.Delivery {
		h.unsigned++
		return http.StatusUnauthorized
	}
	if h.deliveries[m.Delivery]++; h.deliveries[m.Delivery] > 1 {
		return http.StatusOK
	}
	switch m.Kind {
	case alert.Begin:
		h.begun[m.ID]++
		h.order = append(h.order, m)
	case alert.End:
		h.ended[m.ID]++
	case alert.Update, alert.Test:
	}
	return http.StatusOK
}

func (*signedHook) outage() int { return http.StatusServiceUnavailable }

// alertmanager is the real one, of Debian's package, and what it notifies. Its outages are
// those of its process, which keeps in a file what it has notified, and no alerts.
type alertmanager struct {
	tally
	program, dir string
	cmd          *exec.Cmd
	addr         atomic.Value // string
}

func startAlertmanager(t *testing.T, program string) *alertmanager {
	m := &alertmanager{tally: newTally(), program: program, dir: t.TempDir()}
	hears := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var n struct {
			Status string
			Alerts []struct{ Labels map[string]string }
		}
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil || len(n.Alerts) != 1 {
			t.Errorf("Alertmanager notifies of %d alerts, want one: %v", len(n.Alerts), err)
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		map[string]map[string]int{"firing": m.begun, "resolved": m.ended}[n.Status][n.Alerts[0].Labels["incident"]]++
	}))
	t.Cleanup(hears.Close)
	config := fmt.Sprintf("route: {receiver: on, group_by: [incident], group_wait: 0s, group_interval: 1s}\n"+
		"receivers: [{name: on, webhook_configs: [{url: %q, send_resolved: true}]}]\n", hears.URL)
	if err := os.WriteFile(filepath.Join(m.dir, "am.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	m.start(t)
	t.Cleanup(func() { _ = m.cmd.Process.Kill(); _ = m.cmd.Wait() })
	return m
}

func (m *alertmanager) start(t *testing.T) {
	t.Helper()
	addr := freeAddress(t)
	m.cmd = exec.Command(m.program, "--config.file", filepath.Join(m.dir, "am.yml"), "--web.listen-address", addr, "--cluster.listen-address", "", "--storage.path", m.dir)
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.addr.Store(addr)
	soon(t, hung, "Alertmanager listens", func() bool {
		r, err := http.Get("http://" + addr + "/-/ready")
		if err == nil {
			r.Body.Close()
		}
		return err == nil && r.StatusCode == http.StatusOK
	})
}

// stop ends it as a reboot does.
func (m *alertmanager) stop(t *testing.T) {
	t.Helper()
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	if err := m.cmd.Wait(); err != nil {
		t.Errorf("Alertmanager: %v", err)
	}
}

// holds are the incidents that it knows to go on.
func (m *alertmanager) holds() (incidents []string) {
	r, err := http.Get("http://" + m.addr.Load().(string) + "/api/v2/alerts")
	if err != nil {
		return []string{err.Error()}
	}
	defer r.Body.Close()
	var list []struct{ Labels map[string]string }
	if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
		return []string{err.Error()}
	}
	for _, a := range list {
		incidents = append(incidents, a.Labels["incident"])
	}
	slices.Sort(incidents)
	return incidents
}

func (*alertmanager) about(body []byte) (incident string, over bool, err error) {
	var list []struct {
		Labels map[string]string
		EndsAt time.Time
	}
	if err = json.Unmarshal(body, &list); err == nil && len(list) != 1 {
		err = fmt.Errorf("%d alerts", len(list))
	}
	if err != nil {
		return "", false, err
	}
	return list[0].Labels["incident"], !list[0].EndsAt.After(time.Now()), nil
}

func (m *alertmanager) take(r *http.Request, body []byte) int {
	w, err := http.Post("http://"+m.addr.Load().(string)+r.URL.Path, "application/json", bytes.NewReader(body))
	if err != nil {
		return m.outage()
	}
	w.Body.Close()
	return w.StatusCode
}

func (*alertmanager) outage() int { return http.StatusBadGateway }
