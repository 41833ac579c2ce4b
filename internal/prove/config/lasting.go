package config

import (
	"context"
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/app/mariadb"
	"github.com/slowray/slowray/internal/sense/app/redis"
)

// commandLine is what a reader gives for the file of an argument.
const commandLine = "command line"

// Lasting says which line in which file makes a setting of a running server last;
// empty where that cannot be told, or c is of another kind.
func Lasting(c *cause.Change) string {
	if c.Kind != cause.ChangeSetting {
		return ""
	}
	text := ""
	_ = with(c, func(ctx context.Context, p *product, _ *access, talk asker) error {
		root := rootfs.At(fmt.Sprintf("/proc/%d/root", c.PID))
		line, add, now := c.Name+" = "+c.Value, "in a group [mysqld]", observe.Setting{}
		main := ""
		switch t := talk.(type) {
		case *mariadbTalk:
			args := prefork.Args("/proc", c.PID)
			now, main = mariadb.Option(root, args[min(1, len(args)):], c.Name)
		case *redisTalk:
			line, add = c.Name+" "+c.Value, "added"
			var err error
			if main, err = t.file(ctx); err != nil {
				return err
			}
			if main != "" {
				now = redis.Option(root, main, c.Name)
			}
		}
		switch {
		case now.Line > 0:
			text = fmt.Sprintf("%s in %s:%d (%s there now)", line, now.File, now.Line, now.Value)
		case now.File == commandLine || main == "":
			text = fmt.Sprintf("--%s=%s on the command line of %s (pid %d)", strings.ReplaceAll(c.Name, "_", "-"), c.Value, p.name, c.PID)
		default:
			text = fmt.Sprintf("%s in %s, %s", line, main, add)
		}
		return nil
	})
	return text
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
