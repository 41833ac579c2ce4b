package cause

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// A command that is pasted as root runs the host's programs only: in a mount namespace of
// another, du is whatever its owner has put there.
func TestElsewhere(t *testing.T) {
	v := &View{Observation: &observe.Observation{}}
	v.Host.MountNS = 1
	for _, what := range []string{"inodes", "memory", "bytes"} {
		here, there := &observe.Filesystem{Dir: "/mnt/x y", PID: 7, MountNS: 1}, &observe.Filesystem{Dir: "/mnt/x y", PID: 7, MountNS: 2}
		for fs, want := range map[*observe.Filesystem]string{here: " '/mnt/x y'", there: " '/proc/7/root/mnt/x y'"} {
			_, commands := v.makeRoom(fs, what)
			if len(commands) == 0 {
				t.Errorf("%s: no command", what)
			}
			for _, c := range commands {
				line := c.String()
				if strings.HasPrefix(line, "lsof ") {
					continue
				}
				if strings.Contains(line, "nsenter") || !strings.Contains(line, want) || fs == there && strings.HasPrefix(line, "mount ") {
					t.Errorf("%s: %s", what, line)
				}
			}
		}
	}
}
