package gateway

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

// Who says that much will come, and sends it by drops, takes no more room than there is,
// and not for long.
func TestBodiesThatDoNotComeTakeBoundedRoom(t *testing.T) {
	u := newUpstream(t)
	h := newHosts(t, u.name(), time.Millisecond)
	h.g.room.most, h.g.bodyTime = hostShare*(2*joinedBytes+64<<10), 200*time.Millisecond // it is one host
	v := url.Values{"database": {"slowray"}, "query": {insertQuery}, "query_id": {"slowray/slow/requests/1"}}
	for range 4 {
		conn, err := net.Dial("tcp", h.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST http://%s/?%s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\nfew", u.name(), v.Encode(), u.name(), joinedBytes)
	}
	for h.held() < 2*joinedBytes {
		time.Sleep(time.Millisecond)
	}
	if status, text, header, err := h.insert(t.Context(), insertQuery, "a", 1, strings.Repeat("a", joinedBytes)); err != nil || status != 503 || header.Get(NotBegunHeader) == "" {
		t.Errorf("while there is no room: %d %s %v", status, text, err)
	}
	for h.held() > 0 {
		time.Sleep(time.Millisecond)
	}
	if status, text, _, err := h.insert(t.Context(), insertQuery, "a", 1, "<a>"); err != nil || status != 200 {
		t.Errorf("when they were given up: %d %s %v", status, text, err)
	}
	if got := u.asked(); len(got) != 1 || got[0] != "<a>" {
		t.Errorf("the server got %d bodies", len(got))
	}
	if n := h.held(); n != 0 {
		t.Errorf("%d bytes are held in the end", n)
	}
}

// held is how many bytes the gateway holds.
func (h *hosts) held() int64 {
	h.g.room.mu.Lock()
	defer h.g.room.mu.Unlock()
	return h.g.room.held
}
