package request

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLabel(t *testing.T) {
	long := strings.Repeat("x", labelBytes)
	for _, c := range []struct {
		name  string
		proto uint8
		first string
		want  string
	}{
		{"method and path", protoHTTP1, "GET /cart/7 HTTP/1.1\r\nHost: a\r\n", "GET /cart/7"},
		{"no query string", protoHTTP1, "GET /login?password=secret HTTP/1.1\r\n", "GET /login"},
		{"a path longer than what is kept", protoHTTP1, ("GET /" + long)[:40], ("GET /" + long)[:40] + "…"},
		{"not HTTP after all", protoHTTP1, "GETAWAY", ""},
		{"command and key", protoRedis, "*3\r\n$3\r\nSET\r\n$4\r\nuser\r\n$6\r\nsecret\r\n", "SET user"},
		{"command alone", protoRedis, "*1\r\n$4\r\nPING\r\n", "PING"},
		{"key longer than what is kept", protoRedis, "*2\r\n$3\r\nGET\r\n$90\r\nuser:1", "GET user:1…"},
		{"hostile length", protoRedis, "*2\r\n$-3\r\nGET\r\n", ""},
		{"query", protoMySQL, "\x09\x00\x00\x00\x03SELECT 1", "SELECT 1"},
		{"query longer than what is kept", protoMySQL, ("\x60\x00\x00\x00\x03" + long)[:40], long[:35] + "…"},
		{"ping", protoMySQL, "\x01\x00\x00\x00\x0e", "COM_PING"},
		{"simple query", protoPostgres, "Q\x00\x00\x00\x0dSELECT 1\x00", "SELECT 1"},
		{"parse with a name", protoPostgres, "P\x00\x00\x00\x10s1\x00SELECT $1\x00\x00\x00", "SELECT $1"},
		{"unknown protocol", 1, "GET / HTTP/1.1", ""},
		{"nothing", protoHTTP1, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := label(c.proto, []byte(c.first)); got != c.want {
				t.Errorf("label = %q, want %q", got, c.want)
			}
		})
	}
}

func FuzzLabel(f *testing.F) {
	f.Add(uint8(protoRedis), []byte("*2\r\n$3\r\nGET\r\n$90\r\nuser:1"))
	f.Fuzz(func(t *testing.T, proto uint8, first []byte) {
		got := label(proto, first[:min(len(first), 48)])
		if len(got) > 48+utf8.RuneLen('…')+8 {
			t.Errorf("label of %d bytes", len(got))
		}
	})
}
