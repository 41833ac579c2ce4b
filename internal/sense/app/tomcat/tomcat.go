package tomcat

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/app/pool"
)

// Discover finds Java processes that may serve with Tomcat or Jetty: whether they do,
// Begin finds out.
func Discover(procs []observe.Process, procRoot string) []*pool.Instance {
	s := pool.Server{Kind: observe.KindTomcat, Begin: begin, Classify: classify, End: end,
		Worker: func(*pool.Instance, int) bool { return false }}
	return pool.Masters(procs, procRoot, s, func(p *observe.Process) bool {
		return p.Comm == "java" || p.Comm == "jsvc" || strings.Contains(p.Cmdline, "org.apache.catalina.startup.Bootstrap")
	})
}

// Defaults of Tomcat 10 (docs/config/http.html).
const (
	defaultThreads = "200"
	defaultAccept  = "100"
)

// base is catalina.base, "" for a program that is no Tomcat of its own.
func base(in *pool.Instance) string {
	home := ""
	for _, a := range in.Args() {
		if v, ok := strings.CutPrefix(a, "-Dcatalina.base="); ok {
			return v
		}
		if v, ok := strings.CutPrefix(a, "-Dcatalina.home="); ok {
			home = v
		}
	}
	return home
}

func begin(in *pool.Instance) {
	dir := base(in)
	if dir == "" {
		in.Other = len(pools(in.Budget, in)) == 0
		return // end sees the threads that have been made
	}
	dir = in.Abs("", dir)
	conf := path.Join(dir, "conf/server.xml")
	args := in.Args()
	for i, a := range args {
		if a == "-config" && i+1 < len(args) {
			conf = in.Abs(dir, args[i+1])
		}
	}
	in.Out.Config = conf
	text, err := in.ReadFile(conf)
	if err != nil {
		in.Gap(conf, true, "the configuration of Tomcat (pid %d) cannot be read: %s", in.PID, rootfs.Plain(err))
		return
	}
	properties := map[string]string{}
	for _, a := range args {
		if k, v, ok := strings.Cut(strings.TrimPrefix(a, "-D"), "="); ok && strings.HasPrefix(a, "-D") {
			properties[k] = v
		}
	}
	if in.Out.Pools, err = connectors(in.Budget, text, conf, properties); err != nil && in.Budget.Err() == nil {
		in.Gap(conf, true, "the configuration of Tomcat (pid %d) is not understood: %s", in.PID, err)
	}
	for _, name := range []string{"catalina.out"} {
		in.Follow(path.Join(dir, "logs", name), "log")
	}
}

// element is a Connector or an Executor with where each attribute stands.
type element struct {
	attr map[string]string
	line int
}

func (e element) setting(name, def, file string) observe.Setting {
	if v, ok := e.attr[name]; ok {
		return observe.Setting{Value: v, File: file, Line: e.line}
	}
	return observe.Setting{Value: def, Default: true}
}

// Bounds of a server.xml, next to its budget.
const (
	maxConnectors = 64
	maxAttributes = 64
	maxValue      = 4096 // bytes
)

// connectors reads server.xml. The text of an element may take several lines:
// the first one is reported.
func connectors(b *budget.Budget, text, file string, properties map[string]string) ([]observe.WorkerPool, error) {
	d := xml.NewDecoder(strings.NewReader(text))
	d.Strict = false
	executors := map[string]element{}
	var found []element
	line, counted := 1, int64(0) // lines before a place in the text
	for {
		before := d.InputOffset()
		if err := b.Node(); err != nil {
			return nil, err
		}
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return build(found, executors, file), err
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "Connector" && start.Name.Local != "Executor" {
			continue
		}
		line += strings.Count(text[counted:before], "\n")
		counted = before
		e := element{attr: map[string]string{}, line: line}
		for _, a := range start.Attr {
			if len(e.attr) < maxAttributes {
				e.attr[a.Name.Local] = replace(b, a.Value, properties)
			}
		}
		if start.Name.Local == "Executor" {
			if len(executors) == maxConnectors {
				continue
			}
			executors[e.attr["name"]] = e
		} else if len(found) < maxConnectors {
			found = append(found, e)
		}
	}
	return build(found, executors, file), nil
}

// replace puts system properties in the place of ${name} and ${name:-default}; nothing
// that grows too long.
func replace(b *budget.Budget, s string, properties map[string]string) string {
	for range 16 {
		if len(s) > maxValue || b.Unpack(int64(len(s))) != nil {
			return ""
		}
		before, rest, ok := strings.Cut(s, "${")
		name, after, closed := strings.Cut(rest, "}")
		if !ok || !closed {
			break
		}
		name, def, _ := strings.Cut(name, ":-")
		if v, ok := properties[name]; ok {
			def = v
		}
		s = before + def + after
	}
	return s
}

func build(found []element, executors map[string]element, file string) []observe.WorkerPool {
	var out []observe.WorkerPool
	for _, e := range found {
		port := pool.Port(e.attr["port"])
		if port == 0 {
			continue
		}
		p := observe.WorkerPool{Name: "connector of port " + strconv.Itoa(port), Knob: "maxThreads", Setting: e.setting("maxThreads", defaultThreads, file)}
		if x, ok := executors[e.attr["executor"]]; ok {
			p.Setting, p.Name = x.setting("maxThreads", defaultThreads, file), "executor "+e.attr["executor"]
		}
		p.Limit = pool.Count(p.Setting.Value)
		p.Listens = []observe.AppListen{{Addr: e.attr["address"], Port: port, Backlog: e.setting("acceptCount", defaultAccept, file)}}
		out = append(out, p)
	}
	return out
}

const (
	maxThreads  = 4096 // of one process that are looked at
	threadPrice = 16   // items of the budget that reading the name of one costs as much as
	maxComm     = 64   // bytes
)

// pools counts the threads of each pool by name: the kernel keeps 15 bytes of
// it. "http-nio-8080-exec-12" is Tomcat's, "qtp1234567-12" Jetty's.
func pools(b *budget.Budget, in *pool.Instance) map[string]int {
	dir := filepath.Join(in.ProcRoot, strconv.Itoa(in.PID), "task")
	names, err := budget.Names(dir, maxThreads)
	if err != nil {
		return nil
	}
	out := map[string]int{}
	for _, tid := range names {
		if b.Nodes(threadPrice) != nil {
			break
		}
		comm, err := budget.Head(filepath.Join(dir, tid, "comm"), maxComm)
		if err == nil {
			if name := poolOf(string(bytes.TrimSpace(comm))); name != "" {
				out[name]++
			}
		}
	}
	return out
}

// poolOf is the port of Tomcat's pool that a thread belongs to, "jetty" for one
// of Jetty's, "" for any other.
func poolOf(comm string) string {
	for _, prefix := range []string{"http-nio-", "https-jsse-nio-", "https-openssl-nio-", "http-nio2-", "http-apr-"} {
		rest, ok := strings.CutPrefix(comm, prefix)
		if !ok {
			continue
		}
		port, kind, _ := strings.Cut(rest, "-")
		if _, err := strconv.Atoi(port); err == nil && strings.HasPrefix("exec", kind[:min(len(kind), 4)]) && kind != "" {
			return port
		}
	}
	if rest, ok := strings.CutPrefix(comm, "qtp"); ok {
		if n, _, _ := strings.Cut(rest, "-"); n != "" && strings.Trim(n, "0123456789") == "" {
			return "jetty"
		}
	}
	return ""
}

// end takes the threads that there are where no configuration tells.
func end(b *budget.Budget, in *pool.Instance) {
	if len(in.Out.Pools) > 0 {
		return
	}
	b = b.Share(2)
	made := pools(b, in)
	if err := b.Err(); err != nil {
		in.Gap(fmt.Sprintf("pid %d", in.PID), true, "not all threads of %s (pid %d) were looked at: %s", in.Proc.Comm, in.PID, err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(made)) {
		p := observe.WorkerPool{Name: "threads of port " + name, Knob: "server.tomcat.threads.max", Limit: made[name],
			Setting: observe.Setting{Value: strconv.Itoa(made[name]), File: fmt.Sprintf("threads of pid %d that there are", in.PID)}}
		port, err := strconv.Atoi(name)
		if err == nil {
			p.Listens = []observe.AppListen{{Port: port}}
		} else {
			p.Name, p.Knob = "threads of Jetty", "maxThreads"
		}
		in.Out.Pools = append(in.Out.Pools, p)
	}
}

// Kinds of log lines, observe.LogKind.Kind.
const (
	KindThreadsBusy = "threads-busy"     // all threads are busy
	KindPoolTimeout = "db-pool-empty"    // no connection of a database pool within its timeout
	KindOutOfMemory = "out-of-memory"    // java.lang.OutOfMemoryError
	KindNoThread    = "no-native-thread" // unable to create native thread
)

func classify(line []byte) (string, int) {
	head := line[:min(len(line), 400)]
	switch {
	case bytes.Contains(head, []byte("are currently busy, waiting. Increase maxThreads")), bytes.Contains(head, []byte("Maximum number of threads (")):
		return KindThreadsBusy, 0
	case bytes.Contains(head, []byte("Connection is not available, request timed out after")),
		bytes.Contains(head, []byte("PoolExhaustedException")), bytes.Contains(head, []byte("Cannot get a connection, pool error Timeout waiting for idle object")):
		return KindPoolTimeout, 0
	case bytes.Contains(head, []byte("unable to create native thread")), bytes.Contains(head, []byte("unable to create new native thread")):
		return KindNoThread, 0
	case bytes.Contains(head, []byte("java.lang.OutOfMemoryError")):
		return KindOutOfMemory, 0
	}
	return "", 0
}
