package clickhouse

import (
	"strings"
	"testing"
)

// TestFailureOfAnotherServer: what a server says of one that it does not reach, old and
// new, is one line that names it.
func TestFailureOfAnotherServer(t *testing.T) {
	for _, text := range []string{
		"Code: 279, e.displayText() = DB::NetException: All connection tries failed. Log: \n\nCode: 210, e.displayText() = DB::NetException: Connection refused (ch-2:9000), e.what() = DB::NetException\nCode: 210, e.displayText() = DB::NetException: Connection refused (ch-2:9000), e.what() = DB::NetException\n\n, e.what() = DB::NetException\n",
		"Code: 279. DB::Exception: All connection tries failed. Log: \n\nCode: 210. DB::NetException: Connection refused (ch-2:9000). (NETWORK_ERROR) (version 24.8.4.13)\n\n: While executing Remote. (ALL_CONNECTION_TRIES_FAILED) (version 24.8.4.13)\n",
	} {
		err := failure("ch-1:8123", 500, text, false)
		if codeOf(err) != codeNoShard || strings.ContainsAny(err.Error(), "\n") || !strings.Contains(err.Error(), "ch-1:8123: ") || !strings.Contains(err.Error(), "Connection refused (ch-2:9000)") || strings.Contains(err.Error(), "Log:") {
			t.Errorf("%q of %q", err, text)
		}
	}
}
