package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/fleet/clickhouse"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/shell"
)

type fleetInitCmd struct {
	URL       string `arg:"" help:"Of the engine: clickhouse://[user@]host:8123/database."`
	Retention string `placeholder:"30d" help:"Keep requests and seconds for so long, in whole days; sums of ten seconds three times, of five minutes and findings twelve times as long. 0: for ever. Without it: as it was."`
	Print     bool   `help:"Print the SQL, and ask no server."`
}

// Help is printed by --help, above the flags.
func (*fleetInitCmd) Help() string {
	return `Makes the tables that slowray record --to and slowray fleet use, on each server of the URL, and leaves what is there already. Run it again after an update, or to change how long rows are kept.

clickhouse://user@h1:8123|h1b:8123,h2:8123/database: a comma is between shards, a bar between the replicas of a shard. Options, after a ?: secure=1 (HTTPS), password-file=FILE, token-file=FILE, cluster=NAME (what the servers call all shards in remote_servers), dialect=auto|modern|plain, compress=lz4|none. A password is also taken from SLOWRAY_CLICKHOUSE_PASSWORD.`
}

// Validate is called by the command line parser.
func (c *fleetInitCmd) Validate() error {
	if _, err := c.keep(); err != nil {
		return err
	}
	return nil
}

// keep reads --retention: days, with or without a d.
func (c *fleetInitCmd) keep() (*clickhouse.Retention, error) {
	if c.Retention == "" {
		return nil, nil
	}
	days, err := strconv.Atoi(strings.TrimSuffix(c.Retention, "d"))
	if err != nil || days < 0 || days > 3650 {
		return nil, errors.New("--retention takes days, 3650 at most: 30d")
	}
	return &clickhouse.Retention{Days: days}, nil
}

// Run makes the tables, or prints how.
func (c *fleetInitCmd) Run(ctx context.Context, s *streams) error {
	cfg, err := clickhouse.Parse(c.URL)
	if err != nil {
		return fmt.Errorf("fleet init: %w", err)
	}
	keep, err := c.keep()
	if err != nil {
		return err
	}
	if c.Print {
		if keep == nil {
			keep = &clickhouse.Retention{}
		}
		return cfg.Print(s.out, *keep)
	}
	err = clickhouse.Init(ctx, cfg, keep, func(line string) { fmt.Fprintln(s.out, printable.Text(line)) })
	if err != nil {
		return fmt.Errorf("fleet init: %w", advised(err))
	}
	fmt.Fprintf(s.out, "Next, on each host, as root: %s\nThen, anywhere:              %s\n", shell.Line("slowray record --to %s", shell.Word(c.URL)), shell.Line("slowray fleet why --from %s", shell.Word(c.URL)))
	return nil
}
