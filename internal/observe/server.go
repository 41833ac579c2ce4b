package observe

import "strings"

// ServerPart is one part of a request's Server time, by what the threads did
// that had the request in hand, from its being read to the first byte of its
// answer.
type ServerPart int

// The parts. They add up to Server.
const (
	// ServerCPU: computing, interrupts on top of it included.
	ServerCPU ServerPart = iota
	// ServerRunq: ready to compute, and other threads had the CPUs.
	ServerRunq
	// ServerThrottled: ready to compute, and a control group of the thread
	// had used up its CPU quota.
	ServerThrottled
	// ServerLock: in futex(2) until another thread of the process ended that, or
	// for less than 10 ms at a time; flock(2) or semop(2).
	ServerLock
	// ServerDisk: waiting for a file or a block device.
	ServerDisk
	// ServerPipe: reading or writing a pipe.
	ServerPipe
	// ServerNet: in a call on sockets that are no call of ServerCall: unix
	// sockets, name service, poll(2).
	ServerNet
	// ServerSleep: in nanosleep(2), pause(2), or futex(2) for 10 ms or more.
	ServerSleep
	// ServerOther: blocked in anything else, as epoll_wait(2) for a timer.
	ServerOther
	// ServerCall: waiting for what a TCP connection that this process opened
	// answers: the time is that of a request on the called side.
	ServerCall
	// ServerHandoff: the answer was sent by a thread that is not seen to have
	// got the request from the one that read it, so it cannot be known what
	// was done meanwhile.
	ServerHandoff

	NumServerParts
)

var serverPartNames = [NumServerParts]string{
	"server.cpu", "server.runq", "server.throttled", "server.blocked.lock", "server.blocked.disk", "server.blocked.pipe",
	"server.blocked.net", "server.blocked.sleep", "server.blocked.other", "server.call", "server.handoff",
}

// String is the part's key in JSON.
func (p ServerPart) String() string { return serverPartNames[p] }

// Short is the last word of the key: its name among the parts of Server.
func (p ServerPart) Short() string {
	name := serverPartNames[p]
	return name[strings.LastIndexByte(name, '.')+1:]
}

// PartName is what a part is called wherever people read it, by its key in JSON: the key,
// or "server" and the last word of the key.
func PartName(key string) string {
	server := Server.String()
	if strings.HasPrefix(key, server+".") {
		return server + " " + key[strings.LastIndexByte(key, '.')+1:]
	}
	return key
}

// ServerSplit is Server in nanoseconds, by ServerPart.
type ServerSplit [NumServerParts]int64

// Sum is that of all parts.
func (s *ServerSplit) Sum() int64 {
	var sum int64
	for _, ns := range s {
		sum += ns
	}
	return sum
}

// splitSlack is how much the end of Server, which is when the first byte was
// sent, may be later than the end of the split, which is when the call that
// sends it began.
const splitSlack = 100_000 // ns

// Fit makes the parts add up to server, ns. They are measured up to the call
// that sends the answer, and Server up to when it was sent: what is missing was
// computed in the kernel, or is not known if it is more than that can be.
func (s *ServerSplit) Fit(server int64) {
	missing := server - s.Sum()
	switch {
	case missing > splitSlack:
		s[ServerHandoff] += missing
	case missing > 0:
		s[ServerCPU] += missing
	}
	// Too much is a matter of microseconds, unless the request was cut
	// otherwise in the meantime.
	for missing < 0 {
		greatest := ServerCPU
		for p, ns := range s {
			if ns > s[greatest] {
				greatest = ServerPart(p)
			}
		}
		if s[greatest] <= 0 {
			return
		}
		cut := min(-missing, s[greatest])
		s[greatest] -= cut
		missing += cut
	}
}

// SplitStats is how the Server time of an endpoint's requests is split, of
// those that were followed. Its Parts add up to ServerNS.
type SplitStats struct {
	Requests uint64               `json:"requests"`
	ServerNS int64                `json:"server_ns"`
	Parts    map[string]PartStats `json:"parts"` // by ServerPart.String()
	// SlowParts is that of the slowest requests (see Endpoint.SlowParts), of
	// which SlowServerNS was split.
	SlowParts    map[string]int64 `json:"slow_parts_ns,omitempty"`
	SlowServerNS int64            `json:"slow_server_ns,omitempty"`
}

// ShareNS is what of ns, a Server time, went into p, as far as the requests
// that were followed tell; 0 when none was.
func (s *SplitStats) ShareNS(p ServerPart, ns float64) float64 {
	if s == nil {
		return 0
	}
	return ns * portion(float64(s.Parts[p.String()].SumNS), float64(s.ServerNS))
}

// SlowShareNS is the same of the slowest requests.
func (s *SplitStats) SlowShareNS(p ServerPart, ns float64) float64 {
	if s == nil {
		return 0
	}
	return ns * portion(float64(s.SlowParts[p.String()]), float64(s.SlowServerNS))
}
