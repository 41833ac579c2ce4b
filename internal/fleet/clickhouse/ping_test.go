package clickhouse

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/fleet/gateway"
)

// TestPingGoesByTheGateway: whether a server is there is asked the way that everything is,
// and what answers something else is none.
func TestPingGoesByTheGateway(t *testing.T) {
	answer := "Ok.\n"
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked = q.Method + " " + q.URL.Path
		io.WriteString(w, answer)
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	between := httptest.NewServer(gateway.New(gateway.Options{Servers: []string{address}}))
	defer between.Close()
	cfg, err := Parse("clickhouse://" + address + "/slowray?gateway=" + strings.TrimPrefix(between.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if away := Ping(t.Context(), cfg); len(away) != 0 || asked != "GET /ping" {
		t.Errorf("away: %v; asked was %q", away, asked)
	}
	answer = "<html>"
	if away := Ping(t.Context(), cfg); len(away) != 1 {
		t.Errorf("what is no ClickHouse is taken for one: %v", away)
	}
}
