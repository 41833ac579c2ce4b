package assistant

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestHandlerKeepsNoRefusedConnection: who has no token, or comes from the page of another
// site, gets an answer and no place among the connections, also while a body is owed.
func TestHandlerKeepsNoRefusedConnection(t *testing.T) {
	m := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s := httptest.NewServer(Handler(m, "right"))
	defer s.Close()
	for name, head := range map[string]string{
		"no token":     "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"wrong token":  "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n",
		"body is owed": "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
		"other site":   "POST / HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\nContent-Length: 100\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetReadDeadline(time.Now().Add(time.Minute)) // before, it stayed for good
			if _, err := io.WriteString(c, head); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(c)
			r, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(r.Body); err != nil || r.StatusCode < 400 || !r.Close {
				t.Errorf("status %d, Connection: close %v, %v", r.StatusCode, r.Close, err)
			}
			if _, err := in.ReadByte(); err != io.EOF {
				t.Errorf("the connection stays: %v", err)
			}
		})
	}
	r, err := http.NewRequest(http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer right")
	a, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode == http.StatusUnauthorized || a.Close {
		t.Errorf("with the token: status %d, Connection: close %v", a.StatusCode, a.Close)
	}
}
