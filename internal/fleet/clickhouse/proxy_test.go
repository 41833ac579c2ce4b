package clickhouse

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/fleet"
)

// What is between says that a body is too large: nothing of it is stored. That
// ClickHouse itself says so is another thing.
func TestABodyThatIsTooLargeForAProxyIsToldFromOtherErrors(t *testing.T) {
	for text, want := range map[string]bool{"<html>\r\n<head><title>413 Request Entity Too Large</title>": true, "Code: 27, e.displayText() = DB::Exception: no": false} {
		address, _ := askedServer(t, func(string) (int, string) { return 413, text })
		db, err := Open("clickhouse://" + address + "/slowray?dialect=plain")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.Send(t.Context(), requestBatch(hostNumber(1), 1, newTraffic(1).requests(3, noon))); errors.Is(err, fleet.ErrTooLarge) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A certificate that nobody here trusts is for somebody to fix.
func TestAWrongCertificateDoesNotPassByItself(t *testing.T) {
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	db, err := Open("clickhouse://" + strings.TrimPrefix(srv.URL, "https://") + "/slowray?secure=1")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Mark(t.Context(), hostNumber(1), fleet.Requests); err == nil || fleet.Temporary(err) || !strings.Contains(Advice(err), "certificate") {
		t.Errorf("%v: %s", err, Advice(err))
	}
}
