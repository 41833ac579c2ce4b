package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/slowray/slowray/internal/fleet/clickhouse"
	"github.com/slowray/slowray/internal/fleet/gateway"
	"github.com/slowray/slowray/internal/printable"
)

type fleetGatewayCmd struct {
	To     string        `required:"" placeholder:"URL" help:"The ClickHouse that hosts ship to, as in their own --to. The gateway forwards to no other servers."`
	Listen string        `default:"127.0.0.1:8124" placeholder:"A" help:"Where hosts reach the gateway (${default}): host:port."`
	Wait   time.Duration `default:"1s" placeholder:"D" help:"How long a batch waits for those of other hosts (${default}): 0s to 10s."`
}

// Help is printed by --help, above the flags.
func (*fleetGatewayCmd) Help() string {
	return `Stands between many hosts and ClickHouse, and makes one insert of the batches of many, until Ctrl-C. Hosts name it in their own URL: slowray record --to 'clickhouse://ch-1:8123/slowray?gateway=HOST:8124'. A host is answered when its rows are there: when the gateway is killed nothing is lost and nothing comes twice.

Who reaches the gateway can ask the servers as far as they let them, by users and passwords; what passes is not encrypted.

Exit status: 0 ended as asked, 2 could not serve.`
}

// Validate is called by the command line parser.
func (c *fleetGatewayCmd) Validate() error {
	if c.Wait < 0 || c.Wait > gateway.MaxWait {
		return fmt.Errorf("--wait %s: must be 0s to %s", c.Wait, gateway.MaxWait)
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return errors.New("--listen: must be host:port, as 127.0.0.1:8124")
	}
	return nil
}

// gatewayMemory is from how many bytes of heap on the gateway collects ever more often:
// what it holds is bounded, and garbage is not to be several times as much.
const gatewayMemory = 256 << 20

// Run serves until it is asked to end.
func (c *fleetGatewayCmd) Run(ctx context.Context, s *streams) error {
	debug.SetGCPercent(100)
	debug.SetMemoryLimit(gatewayMemory)
	cfg, err := clickhouse.Parse(c.To)
	if err != nil {
		return fmt.Errorf("fleet gateway: %w", err)
	}
	if cfg.Secure || len(cfg.Gateways) > 0 {
		return errors.New("fleet gateway: --to takes no secure=1 and no gateway: it speaks HTTP with the servers themselves")
	}
	var servers []string
	for _, replicas := range cfg.Shards {
		servers = append(servers, replicas...)
	}
	g := gateway.New(gateway.Options{Servers: servers, Wait: c.Wait, Say: func(line string) { fmt.Fprintln(s.err, "fleet gateway: "+printable.Text(line)) }})
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("fleet gateway: %w", err)
	}
	for _, err := range clickhouse.Ping(ctx, cfg) {
		fmt.Fprintf(s.err, "slowray: fleet gateway: %s; hosts wait until it answers\n", printable.Text(advised(err).Error()))
	}
	fmt.Fprintf(s.out, "Hosts reach this gateway with gateway=%s until Ctrl-C.\n", l.Addr())
	if err := g.Serve(ctx, l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("fleet gateway: %w", err)
	}
	n := g.Stats()
	fmt.Fprintf(s.out, "%d batches in %d inserts, %d of them failed; %d batches went by themselves.\n", n.Batches, n.Inserts, n.Failed, n.Alone)
	return nil
}
