package assistant

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxQuestion = 1 << 20 // bytes of one message
	idleSession = 30 * time.Minute
)

// Handler serves m over HTTP (Streamable HTTP), to those that have the token. Names that
// point to this host and pages of other sites are refused (DNS rebinding).
func Handler(m *mcp.Server, token string) http.Handler {
	streams := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return m }, &mcp.StreamableHTTPOptions{SessionTimeout: idleSession})
	want := sha256.Sum256([]byte(token))
	sameSite := http.NewCrossOriginProtection()
	sameSite.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, "a page of another site asks", http.StatusForbidden)
	}))
	return sameSite.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(given)))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="slowray"`)
			refuse(w, "a token is needed: Authorization: Bearer …", http.StatusUnauthorized)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxQuestion)
		streams.ServeHTTP(w, r)
	}))
}

// refuse answers with status and closes the connection: who is refused keeps neither an idle
// one, nor one whose body net/http would wait for.
func refuse(w http.ResponseWriter, text string, status int) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // fails for a connection that has ended
	http.Error(w, text, status)
}
