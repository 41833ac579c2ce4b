package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Load is the traffic of an incident.
type Load struct {
	Conns   int           // connections held at a time
	Close   bool          // one request for each connection; the server closes
	Reset   bool          // with First: by a reset, as a client does that has enough
	First   bool          // one request for each connection; the client closes
	GiveUp  time.Duration // a client that waits longer for its answer closes and tries again; 0 = waits
	Rate    float64       // requests per second, sent on time whether or not answers come; 0 = as fast as answers come
	Idle    int           // further connections, open before and all the time, that never ask for anything
	Timeout time.Duration // an answer later than this is counted as timed out; default 2 s

	Own       bool          // made by the small client in any case: wrk corrects its latencies for requests it did not send
	Think     time.Duration // between an answer and the next request of a connection
	Burst     time.Duration // all connections ask at once, each time this has passed
	ReadPause time.Duration // for each ReadBytes of an answer: a client that is slow to read
	ReadBytes int
	ReadBuf   int // SO_RCVBUF of the clients, bytes; 0 = as the kernel sizes it
	TLS       bool
	HTTP2     bool // over TLS, several clients on each connection, where the server agrees
	RPC       bool // calls of gRPC, several clients on each connection
	Resume    bool // sessions of TLS, each connection its own
	Sources   int  // own addresses the connections are spread over, as server.ClientNet has them; 0 = the one
}

// None reports whether there is no load at all.
func (l Load) None() bool { return l.Conns == 0 }

func (l Load) timeout() time.Duration {
	if l.Timeout == 0 {
		return 2 * time.Second
	}
	return l.Timeout
}

// UsesWrk reports whether the load is made by wrk, not by the small client.
func (l Load) UsesWrk() bool {
	return l == Load{Conns: l.Conns, Close: l.Close, Idle: l.Idle, Timeout: l.Timeout}
}

// ClientRole is the value of the sandbox's role variable under which the
// executable must call [ClientMain].
const (
	ClientRole = "load"
	clientEnv  = "LAB_LOAD"
)

// Command is the program that makes the load for a time, and variables for its
// environment. exe is an executable that calls ClientMain under ClientRole.
func (l Load) Command(exe, roleEnv, addr string, port int, d time.Duration) (args, env []string) {
	target := net.JoinHostPort(addr, strconv.Itoa(port))
	if !l.UsesWrk() {
		l.Idle = 0                                                                // HoldCommand's
		data, _ := json.Marshal(clientSpec{Load: l, Target: target, Duration: d}) // numbers and strings only
		return []string{exe}, []string{roleEnv + "=" + ClientRole, clientEnv + "=" + string(data)}
	}
	secs := max(1, int((d+time.Second-1)/time.Second)) // wrk takes whole seconds
	args = []string{"wrk", "--latency", "--timeout", strconv.Itoa(int(l.timeout()/time.Second)) + "s",
		"-c", strconv.Itoa(l.Conns), "-t", strconv.Itoa(min(2, l.Conns)), "-d", strconv.Itoa(secs) + "s"}
	if l.Close {
		args = append(args, "-H", "Connection: close")
	}
	return append(args, "http://"+target+"/"), nil
}

// HoldCommand is the program that holds the idle connections for a time. It
// prints a line when all are open.
func (l Load) HoldCommand(exe, roleEnv, addr string, port int, d time.Duration) (args, env []string) {
	l = Load{Idle: l.Idle}
	data, _ := json.Marshal(clientSpec{Load: l, Target: net.JoinHostPort(addr, strconv.Itoa(port)), Duration: d})
	return []string{exe}, []string{roleEnv + "=" + ClientRole, clientEnv + "=" + string(data)}
}

// Describe is the load in a few words.
func (l Load) Describe() string {
	if l.None() {
		return "no load"
	}
	what := []string{strconv.Itoa(l.Conns) + " connections"}
	if l.Close || l.First {
		what = append(what, "a new one for each request")
	}
	if l.First {
		what = append(what, "closed by the client")
	}
	if l.Idle > 0 {
		what = append(what, strconv.Itoa(l.Idle)+" idle ones")
	}
	if l.GiveUp > 0 {
		what = append(what, fmt.Sprintf("giving up after %v", l.GiveUp))
	}
	if l.Rate > 0 {
		what = append(what, fmt.Sprintf("%g requests/s whatever comes back", l.Rate))
	}
	if l.Think > 0 {
		what = append(what, fmt.Sprintf("%v between answer and request", l.Think))
	}
	if l.Burst > 0 {
		what = append(what, fmt.Sprintf("all at once every %v", l.Burst))
	}
	if l.ReadPause > 0 {
		what = append(what, fmt.Sprintf("reading %d bytes every %v", l.ReadBytes, l.ReadPause))
	}
	if l.TLS {
		what = append(what, "over TLS")
	}
	if l.HTTP2 {
		what = append(what, fmt.Sprintf("%d at a time on one of HTTP/2", clientsPerConn))
	}
	if l.Sources > 0 {
		what = append(what, fmt.Sprintf("from %d addresses", l.Sources))
	}
	return strings.Join(what, ", ")
}

// Outcome is what the clients saw over the whole load.
type Outcome struct {
	Duration time.Duration `json:"duration_ns"`
	Requests int64         `json:"requests"` // answers received, of any status
	Non2xx   int64         `json:"non_2xx"`  // answers that are neither 2xx nor 3xx
	Connect  int64         `json:"connect_errors"`
	Read     int64         `json:"read_errors"`
	Write    int64         `json:"write_errors"`
	Timeout  int64         `json:"timeouts"` // answers that came late or not at all
	Mean     time.Duration `json:"mean_ns"`
	P50      time.Duration `json:"p50_ns"`
	P90      time.Duration `json:"p90_ns"`
	P99      time.Duration `json:"p99_ns"`
	Max      time.Duration `json:"max_ns"`
}

// Good is the answers with status 2xx or 3xx.
func (o Outcome) Good() int64 { return o.Requests - o.Non2xx }

// Bad is everything that went wrong: non-2xx answers, socket errors, timeouts.
func (o Outcome) Bad() int64 { return o.Non2xx + o.Connect + o.Read + o.Write + o.Timeout }

// Attempts is answers, and requests that got none. wrk counts a late answer
// both as an answer and as a timeout.
func (o Outcome) Attempts() int64 { return o.Requests + o.Connect + o.Read + o.Write + o.Timeout }

// GoodRate is good answers per second over the whole load.
func (o Outcome) GoodRate() float64 {
	if o.Duration <= 0 {
		return 0
	}
	return float64(o.Good()) / o.Duration.Seconds()
}

// Parse reads the output of the load generator that Command started.
func (l Load) Parse(output []byte) (Outcome, error) {
	if l.UsesWrk() {
		return ParseWrk(output)
	}
	var o Outcome
	if err := json.Unmarshal(output, &o); err != nil {
		return o, fmt.Errorf("load client: %w: %.200s", err, output)
	}
	return o, nil
}

var errNotWrk = errors.New("wrk: output not understood")
