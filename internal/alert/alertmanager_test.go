package alert

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestAlertmanager sends to the real one, of Debian's package: an incident is one alert
// from its beginning over its update to its end.
func TestAlertmanager(t *testing.T) {
	program, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		t.Skip("there is no prometheus-alertmanager (Debian package)")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	dir := ownDir(t)
	server := exec.Command(program, "--config.file", write(t, filepath.Join(dir, "am.yml"), "route: {receiver: none}\nreceivers: [{name: none}]\n"),
		"--web.listen-address", addr, "--cluster.listen-address", "", "--storage.path", dir)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	c, err := Load(write(t, filepath.Join(dir, "rules.yaml"), "receivers: [{name: am, alertmanager: {url: 'http://"+addr+"'}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	alerts := func() (list []struct {
		Labels, Annotations map[string]string
		EndsAt              time.Time
		Status              struct{ State string }
	}) {
		w, err := http.Get("http://" + addr + "/api/v2/alerts")
		if err != nil {
			return nil
		}
		defer w.Body.Close()
		if err := json.NewDecoder(w.Body).Decode(&list); err != nil {
			return nil
		}
		return list
	}
	now := time.Now().UTC()
	m := &Message{Schema: Schema, Kind: Begin, Host: "web-1", At: now.Add(-10 * time.Minute), Link: "http://web-1:7788/", // it waited
		Incident: Incident{ID: "abc", Severity: Warning, Began: now.Add(-11 * time.Minute), Title: "nginx:80: 31 % of its requests fail", Services: []Service{{Name: "nginx:80"}}}}
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) { // it takes a moment to listen
		if err = c.Receivers[0].send(t.Context(), m); err == nil {
			break
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatal(err)
		}
	}
	if list := alerts(); len(list) != 1 || list[0].Status.State != "active" {
		t.Errorf("after a begin that waited for longer than an alert lasts: %+v", list)
	}
	m.Kind, m.At, m.Title, m.Cause, m.Severity = Update, now, "The conntrack table is full", "conntrack-full", Critical
	if err := c.Receivers[0].send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	list := alerts()
	if len(list) != 1 || list[0].Status.State != "active" || list[0].Annotations["cause"] != "conntrack-full" || list[0].Labels["incident"] != "abc" {
		t.Errorf("after begin and update: %+v", list)
	}
	m.Kind, m.At = End, time.Now().UTC()
	if err := c.Receivers[0].send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	// What is resolved is no more among its alerts.
	if list := alerts(); len(list) != 0 {
		t.Errorf("after its end: %s", fmt.Sprint(list))
	}
}
