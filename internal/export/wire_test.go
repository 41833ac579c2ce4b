package export

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		text, date string
		want       time.Duration
	}{
		{"", "", 0}, {"7", "", 7 * time.Second}, {" 7 ", "", 7 * time.Second}, {"0", "", 0}, {"-5", "", 0}, {"1.5", "", 0}, {"soon", "", 0},
		{"99999", "", time.Hour}, {strings.Repeat("9", 40), "", time.Hour},
		{"Sun, 22 Nov 2026 12:01:30 GMT", "", 90 * time.Second},
		{"Sunday, 22-Nov-26 12:01:30 GMT", "", 90 * time.Second}, // RFC 850
		{"Sun Nov 22 12:01:30 2026", "", 90 * time.Second},       // asctime
		{"Sun, 22 Nov 2026 11:59:00 GMT", "", 0},                 // over
		{"Sun, 22 Nov 2027 12:00:00 GMT", "", time.Hour},
		// The server's clock is an hour ahead.
		{"Sun, 22 Nov 2026 13:00:10 GMT", "Sun, 22 Nov 2026 13:00:00 GMT", 10 * time.Second},
		{"Sun, 22 Nov 2026 12:00:10 GMT", "yesterday", 10 * time.Second},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.text)
		h.Set("Date", c.date)
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("%q, date %q: %s, want %s", c.text, c.date, got, c.want)
		}
	}
}
