package redis

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
)

// Written by Redis 7.0.15 (Debian 12), November 2026, shortened.
const (
	infoText = "# Clients\r\nconnected_clients:3\r\nmaxclients:30\r\n# Stats\r\nrejected_connections:2\r\nredis_version:7.0.15\r\n"
	slowText = "*1\r\n*6\r\n:7\r\n:1700000005\r\n:65556\r\n*3\r\n$4\r\nkeys\r\n$9\r\nbooking:*\r\n$1\r\n0\r\n$14\r\n10.1.2.3:41234\r\n$0\r\n\r\n"
)

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: time.Minute})
}

func bulk(s string) string { return "$" + strconv.Itoa(len(s)) + "\r\n" + s + "\r\n" }

// pair is what CONFIG GET answers.
func pair(name, value string) string { return "*2\r\n" + bulk(name) + bulk(value) }

// says is a server that answers so, whatever it is asked.
func says(answer string) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		a, b := net.Pipe()
		go func() {
			defer b.Close()
			buf := make([]byte, 1024)
			b.Read(buf)
			b.Write([]byte(answer))
			time.Sleep(time.Second)
		}()
		return a, nil
	}
}

func TestAsk(t *testing.T) {
	s, err := ask(enough(), says(bulk(infoText)+slowText+
		pair("slowlog-log-slower-than", "10000")+pair("appendfsync", "always")+pair("save", "")+"*0\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if told, ok := s.settings["save"]; s.settings["appendfsync"] != "always" || !ok || told != "" || s.settings["io-threads"] != "" {
		t.Errorf("%v", s.settings)
	}
	if s.figures["maxclients"] != 30 || s.slowerThan != 10000 || s.lastID != 7 || len(s.slow) != 1 {
		t.Errorf("%+v", s)
	}
	e := s.slow[0].entry(9)
	if e.Statement != "KEYS booking:* …" || e.TookNS != 65_556_000 || e.PID != 9 || e.PeerPort != 41234 {
		t.Errorf("%+v", e)
	}
	for answer, refused := range map[string]string{
		"-NOAUTH Authentication required.\r\n" + strings.Repeat("-NOAUTH x\r\n", answers-1): "NOAUTH Authentication required.",
		"-ERR max number of clients reached\r\n":                                            "ERR max number of clients reached",
		"-DENIED Redis is running in protected mode\r\n":                                    "DENIED Redis is running in protected mode",
	} {
		began := time.Now()
		s, err := ask(enough(), says(answer))
		if err != nil || s.refused != refused {
			t.Errorf("%q: %+v %v", answer, s, err)
		}
		if time.Since(began) > patience/2 {
			t.Errorf("%q: the whole time was waited for", answer)
		}
	}
	if _, err := ask(enough(), says("HTTP/1.1 400 Bad Request\r\n\r\n")); !errors.Is(err, errProtocol) {
		t.Errorf("a web server is taken for a Redis: %v", err)
	}
	if _, err := ask(enough(), says("")); err == nil {
		t.Error("a server that says nothing is no error")
	}
}

func TestCommand(t *testing.T) {
	args := func(text string) (out []reply) {
		for _, f := range strings.Split(text, "|") {
			out = append(out, reply{kind: '$', text: f})
		}
		return out
	}
	for text, want := range map[string]string{
		"keys|booking:2026:*":         "KEYS booking:?:*",
		"HGETALL|user:12345":          "HGETALL user:?",
		"SET|a|secret":                "SET a …",
		"EVAL|return\n redis.call(1)": "EVAL return redis.call(1)",
		"AUTH|password":               "AUTH",
		"CONFIG|GET|*":                "CONFIG GET *",
		"FLUSHALL":                    "FLUSHALL",
	} {
		if got := command(args(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestEntryPeer(t *testing.T) {
	c := slowCommand{second: 5, tookNS: 1, client: "[::ffff:10.1.2.3]:99"}
	if e := c.entry(1); e.Peer != netip.MustParseAddr("10.1.2.3") || e.PeerPort != 99 {
		t.Errorf("%+v", e)
	}
}

func TestPlaced(t *testing.T) {
	file := map[string]observe.Setting{"maxclients": {Value: "30", File: "/etc/redis.conf", Line: 4}}
	if got := placed(file, "maxclients", "30", "10000"); got.Line != 4 {
		t.Errorf("%+v", got)
	}
	if got := placed(file, "maxclients", "60", "10000"); got.File != "" || got.Default {
		t.Errorf("changed since: %+v", got)
	}
}

func FuzzReplies(f *testing.F) {
	f.Add([]byte(bulk(infoText) + slowText))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, _ := parseReplies(enough(), b, answers)
		s := &status{}
		for _, r := range list {
			s.info(r.text)
			s.slowlog(r.list)
		}
	})
}
