package observe

import "testing"

// A part has one name for people, which its key in JSON gives.
func TestPartName(t *testing.T) {
	for key, want := range map[string]string{
		"server": "server", "accept_wait": "accept_wait", "server.call": "server call", "server.blocked.lock": "server lock", "servers": "servers",
	} {
		if got := PartName(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	for p := range NumServerParts {
		if got, want := PartName(p.String()), "server "+p.Short(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
