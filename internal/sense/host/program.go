package host

import (
	"bytes"
	"os"
	"slices"
	"sync"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
)

// programs are servers, by the name that their readers know them by, with names that
// their processes usually have, and a text that no other program has in its constants.
var programs = []struct {
	name  string
	names []string
	text  string
}{
	{"nginx", []string{"openresty", "tengine", "angie", "freenginx", "nginx-debug"}, "nginx version: "},
	{"php-fpm", nil, "pm.max_children"},
	{"postgres", []string{"postmaster"}, "database system is ready to accept connections"},
	{"mariadbd", []string{"mysqld"}, "mariadb.org binary distribution"},
	{"mariadbd", nil, "MariaDB Server"},
	{"mysqld", nil, "MySQL Community Server"},
	{"redis-server", nil, "redis_git_sha1:%s"},
	{"valkey-server", nil, "valkey_version:%s"},
	{"haproxy", nil, "HAProxy version "},
	{"apache2", []string{"httpd", "httpd.worker", "httpd.event"}, "ServerRoot must be a valid directory"},
	{"memcached", nil, "slab_reassign"},
	{"uwsgi", nil, "*** Starting uWSGI"},
	{"pgbouncer", nil, "default_pool_size"},
}

// IsProgram says whether this is the usual name of a server that is known.
func IsProgram(comm string) bool {
	for i := range programs {
		if p := &programs[i]; p.name == comm || slices.Contains(p.names, comm) {
			return true
		}
	}
	return false
}

// Programs tells which server a process executes, whatever it is called. It remembers
// files.
type Programs struct {
	mu    sync.Mutex
	known map[elffile.ID]string
}

const maxPrograms = 4096 // files that are remembered

// Of is the server that a process executes, "redis-server"; empty where it is none that
// is known, or its file cannot be read within b.
func (p *Programs) Of(b *budget.Budget, fs FS, pid int) string {
	file, err := fs.OpenExe(pid)
	if err != nil {
		return ""
	}
	defer file.Close()
	id, ok := elffile.IDOf(file)
	if !ok {
		return ""
	}
	p.mu.Lock()
	name, seen := p.known[id]
	p.mu.Unlock()
	if seen {
		return name
	}
	if name, err = programOf(b, file); err != nil {
		elffile.Refuse(b, file, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.Err() == nil && len(p.known) < maxPrograms {
		if p.known == nil {
			p.known = map[elffile.ID]string{}
		}
		p.known[id] = name
	}
	return name
}

func programOf(b *budget.Budget, file *os.File) (name string, err error) {
	e, err := elffile.Open(b, file)
	if err != nil || e.IsGo() {
		return "", err
	}
	constants := e.Section(".rodata")
	if constants == nil {
		return "", nil
	}
	data, err := constants.Data()
	return programIn(data), err
}

func programIn(constants []byte) string {
	for i := range programs {
		if bytes.Contains(constants, []byte(programs[i].text)) {
			return programs[i].name
		}
	}
	return ""
}
