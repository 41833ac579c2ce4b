package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/fleet"
)

// part is whether questions may be answered without shards of which no server is reached,
// and which those are.
type part struct {
	mu      sync.Mutex
	allowed bool
	absent  []string
}

var _ fleet.Partly = (*DB)(nil)

// InPart implements fleet.Partly.
func (db *DB) InPart() {
	p := &db.c.part
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allowed, p.absent = true, nil
}

// Absent implements fleet.Partly.
func (db *DB) Absent() []string {
	p := &db.c.part
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.absent)
}

// skipping says whether shards that are away are left out now.
func (p *part) skipping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.absent) > 0
}

func (p *part) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.absent = nil
}

// skipAway has a server leave out shards that it does not reach.
var skipAway = url.Values{"skip_unavailable_shards": {"1"}}

// inPart asks, and where a server does not reach another and answers in part are allowed
// asks once more without those that are away. A recorder's questions never allow it.
func (c *client) inPart(ctx context.Context, ask func(skip url.Values) error) error {
	if c.part.skipping() {
		return ask(skipAway)
	}
	err := ask(nil)
	// Another question may have found out meanwhile.
	if err == nil || !c.leaveOut(ctx, err) && (!slices.Contains(awayCodes, codeOf(err)) || !c.part.skipping()) {
		return err
	}
	again := ask(skipAway)
	if codeOf(again) == codeFixedSettings {
		c.part.forget() // the user may not ask so
		return err
	}
	return again
}

// awayCodes are of errors of a server that did not reach another one, or lost it: DNS_ERROR,
// SOCKET_TIMEOUT, NETWORK_ERROR, ALL_CONNECTION_TRIES_FAILED.
var awayCodes = []int{198, codeTimeout, codeNetwork, codeNoShard}

// leaveOut says whether to ask again without what is away, after an error of a server.
func (c *client) leaveOut(ctx context.Context, err error) bool {
	p := &c.part
	p.mu.Lock()
	may := p.allowed && len(p.absent) == 0 && c.cfg.sharded() && slices.Contains(awayCodes, codeOf(err))
	p.mu.Unlock()
	if !may {
		return false
	}
	var absent []string
	for i, replicas := range c.cfg.Shards {
		if !slices.ContainsFunc(replicas, func(server string) bool { return c.ping(ctx, server) == nil }) {
			absent = append(absent, "shard "+strconv.Itoa(i+1)+" ("+strings.Join(replicas, ", ")+")")
		}
	}
	if len(absent) == 0 {
		// They are reached from here, and not by that server.
		absent = []string{"shards that a server does not reach (" + err.Error() + ")"}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.absent = absent
	return true
}

// pingTimeout is how long a server may take to say that it is there.
const pingTimeout = 3 * time.Second

// ping asks a server whether it is there, which needs no user.
func (c *client) ping(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	scheme := "http"
	if c.cfg.Secure {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+server+"/ping", nil)
	if err != nil {
		return fmt.Errorf("%s: malformed address", server)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var wrapped *url.Error // it names the server, too
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return fmt.Errorf("%s: %w", server, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", server, err)
	case resp.StatusCode != http.StatusOK || strings.TrimSpace(string(text)) != "Ok.":
		return failure(server, resp.StatusCode, string(text), false)
	}
	return nil
}

// Ping says of each server of a URL that does not answer why: an error each.
func Ping(ctx context.Context, cfg *Config) (away []error) {
	c := newClient(cfg)
	defer c.http.CloseIdleConnections()
	for _, replicas := range cfg.Shards {
		for _, server := range replicas {
			if err := c.ping(ctx, server); err != nil {
				away = append(away, err)
			}
		}
	}
	return away
}
