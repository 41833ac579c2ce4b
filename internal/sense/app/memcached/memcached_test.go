package memcached

import (
	"strings"
	"testing"
)

func TestOption(t *testing.T) {
	for args, want := range map[string]string{
		"-u memcache -c 64": "64", "-c64 -p 1": "64", "--conn-limit=99": "99", "--conn-limit 7": "7", "-p 11211": "1024",
	} {
		if got := option(strings.Fields(args), "-c", "--conn-limit", "1024"); got.Value != want || got.Default != (want == "1024") {
			t.Errorf("%s: %+v", args, got)
		}
	}
}
