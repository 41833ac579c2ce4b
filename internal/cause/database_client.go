package cause

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// The commands that talk to a database carry what this server really has: its socket,
// its port, its user, and the network namespace in which they are found.

// hostClient has a client of the host's own reach a server: by a socket only where the
// host's files are the server's own, else in its network namespace. No printed command
// enters a mount namespace: the client there is what its owner has put there
// (SECURITY.md). Where a server in such a place has only sockets, the command is a note.
func (v *View) hostClient(d *observe.Database, socket string, client shell.Command) shell.Command {
	switch {
	case socket != "" && seesHostFiles(d):
		return client // sockets of files belong to no network namespace
	case portOfDatabase(d) == 0 && len(d.Sockets) > 0:
		return shell.Line("# %s (pid %s) listens at unix sockets in a mount namespace of its own: use the client there", d.Kind, d.PID)
	}
	return v.in(v.place(d.NetNS), client)
}

// seesHostFiles says that a server sees the host's files.
func seesHostFiles(d *observe.Database) bool { return d.Container == "" && d.Root == "" }

// socketOf is the first unix socket of a database that is a file of the host; empty
// where there is none.
func socketOf(d *observe.Database) string {
	if !seesHostFiles(d) {
		return ""
	}
	if i := slices.IndexFunc(d.Sockets, path.IsAbs); i >= 0 {
		return d.Sockets[i]
	}
	return ""
}

// hostOf is the address at which a database is asked, empty for loopback.
func (v *View) hostOf(d *observe.Database, port int) string {
	for _, l := range v.endpointsOf(d) {
		if a := l.address; l.Port == port && a.IsValid() && !a.IsLoopback() && !a.IsUnspecified() {
			return a.Unmap().String()
		}
	}
	return ""
}

func portOfDatabase(d *observe.Database) int {
	if len(d.Ports) > 0 {
		return d.Ports[0]
	}
	return 0
}

// psql is the command that talks to a PostgreSQL; rest are its options. By its socket
// the server takes the user that it runs as itself, by default without a password.
func (v *View) psql(d *observe.Database, rest shell.Command) shell.Command {
	socket, port := socketOf(d), portOfDatabase(d)
	user := d.User
	if user == "" {
		user = "postgres"
	}
	if dir, file := path.Split(socket); strings.HasPrefix(file, ".s.PGSQL.") {
		client := shell.Line("psql -h %s -p %s", shell.Path(path.Clean(dir)), shell.Word(strings.TrimPrefix(file, ".s.PGSQL.")))
		if d.User != "" {
			client = shell.Line("runuser -u %s --", shell.Word(user)).Then(client)
		}
		return v.hostClient(d, socket, client).Then(rest)
	}
	client := shell.Line("psql -h %s -p %s -U %s", shell.Word(cmp.Or(v.hostOf(d, port), "127.0.0.1")), port, shell.Word(user))
	return v.hostClient(d, "", client).Then(rest)
}

// sql is the command that talks to a MariaDB or MySQL.
func (v *View) sql(d *observe.Database, rest shell.Command) shell.Command {
	client := shell.Line("mariadb")
	if d.Kind == "mysql" {
		client = shell.Line("mysql")
	}
	socket := socketOf(d)
	switch port := portOfDatabase(d); {
	case socket != "":
		client = client.Then(shell.Line("-S %s", shell.Path(socket)))
	case port != 0:
		client = client.Then(shell.Line("-h %s -P %s -u root -p", shell.Word(cmp.Or(v.hostOf(d, port), "127.0.0.1")), port))
	}
	return v.hostClient(d, socket, client).Then(rest)
}

// redisCLI is the command that talks to a Redis or Valkey.
func (v *View) redisCLI(d *observe.Database, rest shell.Command) shell.Command {
	cli := shell.Line("redis-cli")
	if d.Kind == "valkey" {
		cli = shell.Line("valkey-cli")
	}
	port, socket := portOfDatabase(d), ""
	if port == 0 {
		socket = socketOf(d)
	}
	if socket != "" {
		cli = cli.Then(shell.Line("-s %s", shell.Path(socket)))
	} else {
		if host := v.hostOf(d, port); host != "" {
			cli = cli.Then(shell.Line("-h %s", shell.Word(host)))
		}
		cli = cli.Then(shell.Line("-p %s", port))
	}
	return v.hostClient(d, socket, cli).Then(rest)
}
