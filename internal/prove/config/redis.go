package config

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/shell"
)

var redisProduct = product{name: "Redis", comms: []string{"redis-server", "valkey-server"}, ask: askRedis,
	settings: regexp.MustCompile(`^[a-z][a-z0-9-]*$`), same: sameMemory,
	never: []string{"port", "tls-port", "bind", "unixsocket", "requirepass", "masterauth", "masteruser", "dir", "dbfilename", "rename-command", "replicaof", "slaveof", "protected-mode"},
	command: func(a *access, name, value string) shell.Command {
		words := []string{"redis-cli"}
		switch {
		case len(a.tcp) > 0:
			words = append(words, "-h", a.tcp[0].Addr().String(), "-p", strconv.Itoa(int(a.tcp[0].Port())))
		case len(a.unix) > 0:
			words = append(words, "-s", fmt.Sprintf("/proc/%d/root%s", a.pid, a.unix[0]))
		}
		return a.prefix().Then(shell.Args(append(words, "CONFIG", "SET", name, value)...))
	}}

// redisTalk is a connection to a Redis, in RESP2.
type redisTalk struct {
	conn net.Conn
	in   *bufio.Reader
}

var errBusyRedis = errors.New("all its connections are taken")

// askRedis connects without a password. A server that has no connection left
// says so and closes: it is asked again for a while.
func askRedis(ctx context.Context, a *access) (asker, error) {
	for {
		t, err := dialRedis(ctx, a)
		if err == nil {
			if _, err = t.do(ctx, "PING"); err == nil {
				return t, nil
			}
			t.close()
		}
		if !errors.Is(err, errBusyRedis) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(fullAgain): // others wait for the same place
		}
	}
}

func dialRedis(ctx context.Context, a *access) (*redisTalk, error) {
	var conn net.Conn
	err := errors.New("it listens nowhere")
	switch {
	case len(a.tcp) > 0:
		conn, err = a.dialTCP(ctx, a.tcp[0])
	case len(a.unix) > 0:
		conn, err = a.dialUnix(ctx, a.unix[0])
	}
	if err != nil {
		return nil, err
	}
	return &redisTalk{conn, bufio.NewReader(conn)}, nil
}

func (t *redisTalk) close() { _ = t.conn.Close() }

// do sends a command and gives the strings of the answer.
func (t *redisTalk) do(ctx context.Context, words ...string) ([]string, error) {
	deadline, _ := ctx.Deadline()
	if err := t.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	_, werr := io.WriteString(t.conn, b.String()) // one that refuses may have closed already
	list, err := t.reply(0)
	switch {
	case err == nil:
		return list, nil
	case strings.Contains(err.Error(), "max number of clients"):
		return nil, errBusyRedis
	case strings.HasPrefix(err.Error(), "NOAUTH") || strings.HasPrefix(err.Error(), "NOPERM"):
		return nil, errors.New("it asks for a password")
	}
	return nil, errors.Join(err, werr)
}

const maxReply = 1 << 20

func (t *redisTalk) reply(depth int) ([]string, error) {
	line, err := t.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" || depth > 4 {
		return nil, errors.New("this is no Redis")
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+', ':':
		return []string{rest}, nil
	case '-':
		return nil, errors.New(strings.TrimPrefix(rest, "ERR "))
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n > maxReply {
			return nil, errors.New("this is no Redis")
		}
		if n < 0 {
			return []string{""}, nil
		}
		text := make([]byte, n+2)
		if _, err := io.ReadFull(t.in, text); err != nil {
			return nil, err
		}
		return []string{string(text[:n])}, nil
	case '*':
		n, err := strconv.Atoi(rest)
		if err != nil || n > 10_000 {
			return nil, errors.New("this is no Redis")
		}
		var out []string
		for range n {
			item, err := t.reply(depth + 1)
			if err != nil {
				return nil, err
			}
			out = append(out, item...)
		}
		return out, nil
	}
	return nil, errors.New("this is no Redis")
}

func (t *redisTalk) get(ctx context.Context, name string) (string, error) {
	list, err := t.do(ctx, "CONFIG", "GET", name)
	if err != nil {
		return "", err
	}
	if len(list) != 2 || list[0] != name {
		return "", fmt.Errorf("it has no setting %s", name)
	}
	return list[1], nil
}

func (t *redisTalk) set(ctx context.Context, name, value string) error {
	_, err := t.do(ctx, "CONFIG", "SET", name, value)
	return err
}

// sameMemory knows Redis's units: "1mb" is 1048576.
func sameMemory(a, b string) bool {
	if a == b {
		return true
	}
	x, ok1 := memory(a)
	y, ok2 := memory(b)
	return ok1 && ok2 && x == y
}

func memory(s string) (int64, bool) {
	s = strings.ToLower(s)
	digits := strings.TrimRight(s, "kmgb")
	n, err := strconv.ParseInt(digits, 10, 64)
	unit, ok := map[string]int64{"": 1, "b": 1, "k": 1e3, "kb": 1 << 10, "m": 1e6, "mb": 1 << 20, "g": 1e9, "gb": 1 << 30}[s[len(digits):]]
	return n * unit, err == nil && ok
}
