package goroutine

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Wait is what a goroutine waits for.
type Wait uint8

// What goroutines wait for. Which of them it is is known by the functions on the
// stack: the runtime's own numbers differ from version to version.
const (
	Unknown   Wait = iota
	Mutex          // sync.Mutex
	ReadLock       // sync.RWMutex, for reading
	WriteLock      // sync.RWMutex, for writing
	Group          // sync.WaitGroup
	Semaphore      // another semaphore of the runtime's
	Cond           // sync.Cond
	Receive        // a channel
	Send           // a channel
	Select         // channels
	Forever        // a channel that is nil, or a select without cases
	IO             // a connection, a pipe, a terminal
	Sleep          //
	Collector      // the garbage collector
	Idle           // nothing: a goroutine of the runtime's own
)

// lock says that it is a semaphore with an address.
func (w Wait) lock() bool { return w == Mutex || w == ReadLock || w == WriteLock }

// Lock says that it is a lock that somebody has to let go.
func (w Wait) Lock() bool { return w.lock() }

// alone says that a reason of the runtime's stands for this alone.
func (w Wait) alone() bool {
	return w == IO || w == Sleep || w == Receive || w == Select || w == Cond || w == Send
}

// String names it as Go's programmers do.
func (w Wait) String() string {
	switch w {
	case Mutex:
		return "sync.Mutex"
	case ReadLock:
		return "sync.RWMutex (to read)"
	case WriteLock:
		return "sync.RWMutex (to write)"
	case Group:
		return "sync.WaitGroup"
	case Semaphore:
		return "a semaphore of the runtime"
	case Cond:
		return "sync.Cond"
	case Receive:
		return "a value from a channel"
	case Send:
		return "room in a channel"
	case Select:
		return "one of several channels (select)"
	case Forever:
		return "nothing that can come (nil channel, empty select)"
	case IO:
		return "the network, or a pipe"
	case Sleep:
		return "a time that it chose itself"
	case Collector:
		return "the garbage collector"
	case Idle:
		return "work of the runtime's own"
	}
	return "something that is not known"
}

// waitOf tells from a stack what its goroutine waits for.
func waitOf(frames []Frame) Wait {
	for i := range frames {
		name := frames[i].Function
		switch {
		case strings.HasPrefix(name, "runtime.netpollblock"):
			return IO
		case name == "runtime.selectgo":
			return Select
		case name == "runtime.chanrecv":
			return Receive
		case name == "runtime.chansend":
			return Send
		case name == "runtime.block":
			return Forever
		case name == "time.Sleep" || name == "runtime.timeSleep":
			return Sleep
		case strings.HasPrefix(name, "runtime.gcAssist"), name == "runtime.gcParkAssist", name == "runtime.gcWaitOnMark", name == "runtime.GC", name == "runtime.gcStart":
			return Collector
		case name == "sync.runtime_notifyListWait" || strings.HasPrefix(name, "sync.(*Cond)."):
			return Cond
		case strings.HasPrefix(name, "sync.(*WaitGroup)."):
			return Group
		case strings.HasPrefix(name, "sync.(*RWMutex).RLock"), strings.HasSuffix(name, "runtime_SemacquireRWMutexR"):
			return ReadLock
		case strings.HasPrefix(name, "sync.(*RWMutex).Lock"), strings.HasSuffix(name, "runtime_SemacquireRWMutex"):
			return WriteLock
		case ofMutex(name):
			if i+1 == len(frames) || !ofMutex(frames[i+1].Function) {
				return mutexOf(frames[i+1:])
			}
		case !parks(name):
			if named(frames[:i], "runtime.semacquire1") {
				return Semaphore
			}
			return Unknown
		}
	}
	return Idle
}

func ofMutex(name string) bool {
	return strings.HasPrefix(name, "sync.(*Mutex).") || strings.HasPrefix(name, "internal/sync.(*Mutex).")
}

// mutexOf is what a mutex belongs to: the write lock begins with one of its own.
func mutexOf(callers []Frame) Wait {
	if len(callers) > 0 && strings.HasPrefix(callers[0].Function, "sync.(*RWMutex).Lock") {
		return WriteLock
	}
	return Mutex
}

// parks says that a function is one of those by which the runtime is asked to
// wait.
func parks(name string) bool {
	for _, prefix := range []string{"runtime.", "sync.runtime_", "internal/sync.runtime_", "internal/poll.runtime_", "time.Sleep", "internal/runtime/"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func named(frames []Frame, name string) bool {
	for i := range frames {
		if frames[i].Function == name {
			return true
		}
	}
	return false
}

// withoutParking leaves out the functions of the runtime at the top of a stack,
// and the one at its end.
func withoutParking(frames []Frame) []Frame {
	first := 0
	for first < len(frames) && strings.HasPrefix(frames[first].Function, "runtime.") && frames[first].Function != "runtime.main" {
		first++
	}
	if first == len(frames) {
		first = min(len(frames), 1) // a goroutine of the runtime's own
		for first < len(frames)-1 && frames[first].Function != "runtime.gopark" && frames[first].Function != "runtime.goparkunlock" {
			first++
		}
	}
	out := frames[first:]
	for len(out) > 0 && out[len(out)-1].Function == "runtime.goexit" {
		out = out[:len(out)-1]
	}
	return out
}

// Place is where in the program a goroutine is: the innermost function that is
// not of Go's library; of one that has none, the innermost that says more than
// that something is read or waited for, or at last what it began with.
func (p *Program) Place(g *Goroutine) *Frame {
	for i := range g.Stack {
		if p.own(&g.Stack[i]) {
			return &g.Stack[i]
		}
	}
	for i := range g.Stack {
		if !plumbing(g.Stack[i].Function) {
			return &g.Stack[i]
		}
	}
	if len(g.Stack) > 0 {
		return &g.Stack[len(g.Stack)-1]
	}
	return nil
}

// plumbing says of a function of Go's library that it only passes on what others
// ask for.
func plumbing(name string) bool {
	for _, prefix := range []string{"internal/", "runtime.", "sync.", "syscall.", "os.", "io.", "bufio.", "net.", "crypto/tls.", "time.", "net/http.(*connReader).", "net/http.(*persistConn).Read"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// Own is the functions on the stack that are the program's, or of libraries that
// it uses, innermost first.
func (p *Program) Own(g *Goroutine) []Frame {
	var out []Frame
	for i := range g.Stack {
		if f := &g.Stack[i]; p.own(f) && f.File != "<autogenerated>" {
			out = append(out, *f)
		}
	}
	return out
}

// handlers are functions under which a goroutine has a request in hand, of
// servers that are in wide use.
var handlers = []string{
	"net/http.serverHandler.ServeHTTP", "net/http.HandlerFunc.ServeHTTP", "google.golang.org/grpc.(*Server).handleStream", "google.golang.org/grpc.(*Server).processUnaryRPC",
	"github.com/valyala/fasthttp.(*Server).serveConnCleanup", "net/rpc.(*service).call",
}

// Serves says that a goroutine has a request in hand, as far as that is known
// of its server.
func (g *Goroutine) Serves() bool {
	for i := range g.Stack {
		for _, h := range handlers {
			if g.Stack[i].Function == h {
				return true
			}
		}
	}
	return false
}

// clients are functions under which a goroutine waits for the answer of another service,
// of clients in wide use that have a goroutine of their own read it. Who waits there for a
// connection of a pool is not among them.
var clients = []string{
	"net/http.(*persistConn).roundTrip", "net/http.(*http2ClientConn).roundTrip", "golang.org/x/net/http2.(*ClientConn).roundTrip",
	// gRPC: for the headers of the answer, whose stream had the shorter name before 1.70; for the rest of it.
	"google.golang.org/grpc/internal/transport.(*ClientStream).waitOnHeader", "google.golang.org/grpc/internal/transport.(*Stream).waitOnHeader",
	"google.golang.org/grpc/internal/transport.(*recvBufferReader).readMessageHeaderClient", "google.golang.org/grpc/internal/transport.(*recvBufferReader).readClient",
	"net/rpc.(*Client).Call",
}

// Calls says that a goroutine waits for what another service answers, as far as that is
// known of its client.
func (g *Goroutine) Calls() bool {
	return slices.ContainsFunc(g.Stack, func(f Frame) bool { return slices.Contains(clients, f.Function) })
}

// String is "orders.(*Desk).book desk.go:41": the function with its package, but
// not where that comes from.
func (f *Frame) String() string {
	if f == nil {
		return "a place that is not known"
	}
	name := f.Function
	if i := strings.LastIndexByte(beforeTypes(name), '/'); i >= 0 {
		name = name[i+1:]
	}
	if f.File == "" {
		return name
	}
	return fmt.Sprintf("%s %s:%d", name, path.Base(f.File), f.Line)
}

// beforeTypes is a name without what its types are instantiated with.
func beforeTypes(name string) string {
	name, _, _ = strings.Cut(name, "[")
	return name
}
