package clickhouse

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
	"github.com/slowray/slowray/internal/fleet/gateway"
)

// TestAdvice: what goes wrong most often is reported with what to do, by what servers really
// answer.
func TestAdvice(t *testing.T) {
	ctx := t.Context()
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	host := func(s *httptest.Server) string {
		return strings.TrimPrefix(strings.TrimPrefix(s.URL, "http://"), "https://")
	}
	stranger := httptest.NewServer(gateway.New(gateway.Options{Servers: []string{"127.0.0.1:2"}}))
	defer stranger.Close()
	for url, want := range map[string]string{
		"clickhouse://127.0.0.1:1/slowray?gateway=127.0.0.1:1":       "whether slowray fleet gateway runs there",
		"clickhouse://127.0.0.1:1/slowray?gateway=" + host(stranger): "the servers of this URL",
		"clickhouse://127.0.0.1:1/slowray":                           "no server is reached",
		"clickhouse://" + host(page) + "/slowray":                    "not ClickHouse's HTTP interface",
		"clickhouse://" + host(page) + "/slowray?secure=1":           "leave out secure=1",
		"clickhouse://" + host(secure) + "/slowray?secure=1":         "the certificate",
	} {
		db, err := Open(url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Hosts(ctx); err == nil || !strings.Contains(Advice(err), want) {
			t.Errorf("%s: %v: advice %q, want %q", url, err, Advice(err), want)
		}
		db.Close()
	}
	for name, start := range map[string]func(t *testing.T) string{
		"plain": func(t *testing.T) string {
			return clickhousetest.ForTest(t, clickhousetest.Layout{}).Servers[0][0].HTTP
		},
		"modern": func(t *testing.T) string {
			rest, _, _ := strings.Cut(strings.TrimPrefix(clickhousetest.ModernForTest(t).URL("slowray"), Scheme), "/")
			return rest
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := start(t)
			db, err := Open(Scheme + at + "/nowhere")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Hosts(ctx); err == nil || !strings.Contains(Advice(err), "slowray fleet init") {
				t.Errorf("no database: %v: advice %q", err, Advice(err))
			}
			initAll(t, Scheme+at+"/slowray", nil)
			some, err := Open(Scheme + at + "/slowray")
			if err != nil {
				t.Fatal(err)
			}
			defer some.Close()
			exec := func(statement string) {
				t.Helper()
				if err := some.c.exec(ctx, at, "slowray", statement); err != nil {
					t.Fatal(err)
				}
			}
			exec("ALTER TABLE hosts DROP COLUMN cpus")
			if _, err := some.Hosts(ctx); err == nil || !strings.Contains(Advice(err), "adds what is new") {
				t.Errorf("old tables: %v: advice %q", err, Advice(err))
			}
			exec("DROP TABLE hosts")
			if _, err := some.Hosts(ctx); err == nil || !strings.Contains(Advice(err), "slowray fleet init") {
				t.Errorf("no table: %v: advice %q", err, Advice(err))
			}
			if name == "plain" { // the modern one is an engine without users
				stranger, err := Open(Scheme + "nobody@" + at + "/slowray")
				if err != nil {
					t.Fatal(err)
				}
				defer stranger.Close()
				if _, err := stranger.Hosts(ctx); err == nil || !strings.Contains(Advice(err), "password-file=") {
					t.Errorf("an unknown user: %v: advice %q", err, Advice(err))
				}
			}
		})
	}
	if a := Advice(fmt.Errorf("clickhouse: %w", &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "ch-1"}})); !strings.Contains(a, "check the host in the URL") {
		t.Errorf("a name that is none: %q", a)
	}
	if Advice(nil) != "" {
		t.Error("advice about nothing")
	}
}
