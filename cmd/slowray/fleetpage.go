package main

import (
	"context"
	"fmt"
	"time"

	"github.com/slowray/slowray/internal/web"
)

type fleetPageCmd struct {
	Listen     string   `default:"127.0.0.1:7789" placeholder:"A" help:"Where the page is served (${default}): host:port or unix:/path. Elsewhere than on loopback a token is needed, which is printed, or taken from $$SLOWRAY_TOKEN."`
	ListenName []string `placeholder:"NAME" sep:"," help:"A further host name of the page, as behind a reverse proxy; may be repeated."`
	fleetFlags `embed:""`
}

// Help is printed by --help, above the flags.
func (*fleetPageCmd) Help() string {
	return `Serves the page of all hosts that ship, until Ctrl-C: what is abnormal and what that has in common, who calls whom, services, hosts. It asks the archive when somebody looks, and writes nothing.

Exit status: 0 ended as asked, 2 could not serve.`
}

// Validate is called by the command line parser.
func (c *fleetPageCmd) Validate() error {
	if c.Listen == "" || c.Listen == listenOff {
		return fmt.Errorf("--listen: must be host:port, as 127.0.0.1:7789, or unix:/path")
	}
	return nil
}

// firstAnswer is how long the archive may take to answer before the page is served: who
// misspelt its address is reported at once.
const firstAnswer = 20 * time.Second

// Run serves until it is asked to end.
func (c *fleetPageCmd) Run(ctx context.Context, s *streams) error {
	archive, err := c.open()
	if err != nil {
		return err
	}
	defer closeArchive(archive)
	first, cancel := context.WithTimeout(ctx, firstAnswer)
	hosts, err := archive.Hosts(first)
	cancel()
	if err != nil {
		return fmt.Errorf("fleet page: %w", advised(err))
	}
	page, err := listenPage(c.Listen, c.ListenName)
	if err != nil {
		return fmt.Errorf("fleet page: %w", err)
	}
	defer page.close()
	handler, err := web.NewFleet(archive, web.Options{Version: version(), Token: page.token, Loopback: page.listener.Loopback(), Names: page.names})
	if err != nil {
		return fmt.Errorf("fleet page: %w", err)
	}
	fmt.Fprintf(s.out, "The page of a fleet of %d hosts is at %s until Ctrl-C.\n", len(hosts), page.address())
	if err := web.Serve(ctx, page.listener, handler); err != nil {
		return fmt.Errorf("fleet page: %w", err)
	}
	return nil
}
