package cli

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/slowray/slowray/internal/commandline"
)

// A simulated fleet ships to each kind of target; all that it says to have shipped is there,
// of all hosts.
func TestLabFleetShipsToOtherTargets(t *testing.T) {
	var mu sync.Mutex
	var lines, spans int
	hosts := map[string]bool{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		zip, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(zip)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		switch r.URL.Path {
		case "/v1/traces":
			var m tracepb.TracesData
			if err := proto.Unmarshal(body, &m); err != nil {
				t.Error(err)
			}
			for _, of := range m.ResourceSpans {
				for _, a := range of.Resource.Attributes {
					if a.Key == "host.name" {
						hosts[a.Value.GetStringValue()] = true
					}
				}
				for _, s := range of.ScopeSpans {
					spans += len(s.Spans)
				}
			}
		case "/insert/jsonline":
			for line := range strings.Lines(string(body)) {
				if strings.Contains(line, `"stream":"requests"`) {
					lines++
				}
			}
		}
	}))
	defer srv.Close()
	for _, url := range []string{"otlp+" + srv.URL, "victorialogs://" + strings.TrimPrefix(srv.URL, "http://")} {
		var out, errs strings.Builder
		status := Run([]string{"fleet", "--hosts", "8", "--for", "30s", "--fast", "--json", "--to", url}, &out, &errs)
		var told injected
		if err := json.Unmarshal([]byte(out.String()), &told); status != commandline.ExitNothing || err != nil || told.Requests == 0 {
			t.Fatalf("%s: status %d, %q, %q", url, status, out.String(), errs.String())
		}
		if got := max(lines, spans); got != int(told.Requests) {
			t.Errorf("%s: %d requests came, %d were shipped", url, got, told.Requests)
		}
		if spans > 0 && len(hosts) != 8 {
			t.Errorf("of %d hosts", len(hosts))
		}
		lines, spans = 0, 0
	}
	for _, wrong := range [][]string{{"--to", "kafka://x"}, {"--scenario", "no-such"}} {
		var out, errs strings.Builder
		if status := Run(append([]string{"fleet"}, wrong...), &out, &errs); status != commandline.ExitFailed || strings.Count(errs.String(), "\n") != 1 || out.Len() > 0 {
			t.Errorf("%q: status %d, %q, %q", wrong, status, out.String(), errs.String())
		}
	}
}
