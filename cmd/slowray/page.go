package main

import (
	"context"
	"fmt"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/prove/journal"
	"github.com/slowray/slowray/internal/prove/results"
	"github.com/slowray/slowray/internal/store"
	"github.com/slowray/slowray/internal/web"
)

type pageCmd struct {
	Dir        string   `default:"${history}" placeholder:"D" complete:"dirs" help:"Where the history is (${default})."`
	Listen     string   `default:"127.0.0.1:7788" placeholder:"A" help:"Where the page is served (${default}): host:port or unix:/path. Elsewhere than on loopback a token is needed, which is printed, or taken from $$SLOWRAY_TOKEN."`
	ListenName []string `placeholder:"NAME" sep:"," help:"A further host name of the page, as behind a reverse proxy; may be repeated."`
}

// Help is printed by --help, above the flags.
func (*pageCmd) Help() string {
	return `Serves the page of a history that slowray record has kept, here or on another host, until Ctrl-C. Nothing is recorded and nothing is written: it needs no root, only a history that may be read (its directory is root's alone unless it was copied or given away).

While a recorder runs it serves the page itself: slowray record --listen.

Exit status: 0 ended as asked, 2 could not serve.`
}

// Validate is called by the command line parser.
func (c *pageCmd) Validate() error {
	switch {
	case c.Listen == "" || c.Listen == listenOff:
		return fmt.Errorf("--listen: must be host:port, as 127.0.0.1:7788, or unix:/path")
	case c.Dir == "":
		return fmt.Errorf("--dir: is empty")
	}
	return nil
}

// Run serves until it is asked to end.
func (c *pageCmd) Run(ctx context.Context, s *streams) error {
	reader, err := (&atFlags{Dir: c.Dir}).open()
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	defer reader.Close()
	from, to, err := reader.Span()
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	if from.IsZero() {
		return fmt.Errorf("page: there is nothing of a history in %s: slowray record keeps one", c.Dir)
	}
	page, err := listenPage(c.Listen, c.ListenName)
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	defer page.close()
	proofs := ""
	if c.Dir == historyDir { // of this host; those of a copy are elsewhere
		proofs = results.Dir(journal.DefaultDir)
	}
	handler, err := web.New(reader, web.Options{
		Version: version(), Host: recordedHost(reader, from, to), Token: page.token, Loopback: page.listener.Loopback(), Names: page.names,
		Proofs: proofs,
	})
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	fmt.Fprintf(s.out, "The history of %s to %s is at %s until Ctrl-C.\n", clockText(from), clockText(to), page.address())
	if err := web.Serve(ctx, page.listener, handler); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return nil
}

// recordedHost is the host that a history is of, as its last window that can be
// read tells it; without one nothing is known of it.
func recordedHost(r *store.Reader, from, to time.Time) diagnose.ReportHost {
	windows, _ := r.Observations(from, to)
	const tries = 3
	for i := len(windows) - 1; i >= max(0, len(windows)-tries); i-- {
		if o, err := observe.Load(windows[i].Path); err == nil {
			return diagnose.ReportHost{Name: o.Host.Name, Kernel: o.Host.Kernel, CPUs: o.Host.CPUs, BootID: o.Host.BootID}
		}
	}
	return diagnose.ReportHost{}
}
