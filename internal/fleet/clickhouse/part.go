package clickhouse

import (
	"context"
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
	var text []byte
	err := c.gateways.each(ctx, func(ctx context.Context) error {
		return c.request(ctx, http.MethodGet, server, "/ping", nil, func(r io.Reader) (err error) {
			text, err = io.ReadAll(io.LimitReader(r, maxMessage))
			return err
		})
	})
	if err == nil && strings.TrimSpace(string(text)) != "Ok." {
		err = failure(server, http.StatusOK, string(text), false)
	}
	return err
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
