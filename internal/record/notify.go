package record

import (
	"net"
	"os"
	"strings"
)

// Notify tells the service manager a state as sd_notify(3) does: "READY=1",
// "WATCHDOG=1", "STOPPING=1". Where there is none ($NOTIFY_SOCKET) it does
// nothing. One that does not listen any more is no reason to stop.
func Notify(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if rest, abstract := strings.CutPrefix(name, "@"); abstract {
		name = "\x00" + rest
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Write([]byte(state))
}
