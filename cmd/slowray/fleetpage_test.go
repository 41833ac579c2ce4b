package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
)

func TestFleetPage(t *testing.T) {
	a := fleetInMemory(t)
	if err := a.Hello(context.Background(), &fleet.Host{Name: "web-1"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out lines
	ended := make(chan error, 1)
	go func() {
		c := &fleetPageCmd{Listen: "127.0.0.1:0"}
		c.From = "memory://test"
		ended <- c.Run(ctx, &streams{&out, &out})
	}()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(out.String(), "\n"); time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("ended: %v", err)
		default:
		}
		if time.Now().After(end) {
			t.Fatal("it does not say where the page is")
		}
	}
	_, rest, _ := strings.Cut(out.String(), " is at ")
	url, _, _ := strings.Cut(rest, " ")
	for path, want := range map[string]string{"": "assets/fleet.js", "api/fleet": `"host":"web-1"`} {
		answer, err := http.Get(url + path)
		if err != nil {
			t.Fatalf("%s: %v", out.String(), err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d, %v, %s", path, answer.StatusCode, err, text)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestFleetPageErrors(t *testing.T) {
	fleetInMemory(t)
	for _, c := range []struct{ flag, value, want string }{
		{"--listen", "off", "must be host:port"},
		{"--listen", "nowhere", "must be host:port"},
		{"--from", "victorialogs://host", "only ClickHouse can be asked"},
	} {
		_, messages, status := slowrayOut("fleet", "page", c.flag, c.value)
		if status != exitFailed || !strings.Contains(messages, c.want) || strings.Count(messages, "\n") != 1 {
			t.Errorf("%s %s: status %d, %q, want %q", c.flag, c.value, status, messages, c.want)
		}
	}
}
