package config

import (
	"context"
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/gunicorn"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/app/mariadb"
	"github.com/slowray/slowray/internal/sense/app/redis"
	"github.com/slowray/slowray/internal/shell"
)

// commandLine is what a reader gives for the file of an argument.
const commandLine = "command line"

// Lasting says which line in which file makes a setting of a running server last;
// zero where that cannot be known, or c is of another kind.
func Lasting(c *cause.Change) (note shell.Command) {
	if c.Kind != cause.ChangeSetting {
		return note
	}
	_ = with(c, func(ctx context.Context, p *product, _ *access, talk asker) error {
		b := reading()
		root := rootfs.At(fmt.Sprintf("/proc/%d/root", c.PID), b)
		line, add, now := c.Name+" = "+c.Value, "in a group [mysqld]", observe.Setting{}
		main := ""
		switch t := talk.(type) {
		case *mariadbTalk:
			args := prefork.Args("/proc", c.PID)
			now, main = mariadb.Option(b, root, args[min(1, len(args)):], c.Name)
		case gunicornTalk:
			for _, in := range gunicorn.Discover(processOf(c.PID), "/proc") {
				if in.Silent = true; in.PID == c.PID && !in.Begin(b) {
					out, _, _ := in.End(b, observe.Window{})
					if len(out.Pools) == 0 {
						break
					}
					now, main, add = out.Pools[0].Setting, out.Config, "added"
				}
			}
		case *redisTalk:
			line, add = c.Name+" "+c.Value, "added"
			var err error
			if main, err = t.file(ctx); err != nil {
				return err
			}
			if main != "" {
				now = redis.Option(b, root, main, c.Name)
			}
		}
		switch {
		case now.Line > 0:
			note = shell.Line("# %s in %s:%s (%s there now)", shell.Text(line), now.File, now.Line, now.Value)
		case now.File == commandLine || main == "":
			note = shell.Line("# --%s=%s on the command line of %s (pid %s)", strings.ReplaceAll(c.Name, "_", "-"), c.Value, p.name, c.PID)
		default:
			note = shell.Line("# %s in %s, %s", shell.Text(line), main, shell.Text(add))
		}
		return nil
	})
	return note
}

// file is the configuration file that the server was started with; empty without.
func (t *redisTalk) file(ctx context.Context) (string, error) {
	list, err := t.do(ctx, "INFO", "server")
	if err != nil || len(list) == 0 {
		return "", err
	}
	for line := range strings.Lines(list[0]) {
		if v, ok := strings.CutPrefix(line, "config_file:"); ok {
			return strings.TrimSpace(v), nil
		}
	}
	return "", nil
}
