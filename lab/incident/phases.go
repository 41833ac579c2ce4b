package incident

import (
	"time"

	"github.com/slowray/slowray/lab/link"
	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// Phase is one state of the network while the same load goes on.
type Phase struct {
	Name string
	RTT  time.Duration // added between clients and application
	// Loss, 0 … 1, by direction.
	FromClient, ToClient, ToDatabase float64
}

// Loss is all of it.
func (p Phase) Loss() float64 { return p.FromClient + p.ToClient + p.ToDatabase }

// Clients is the settings of the link between clients and application.
func (p Phase) Clients() (toServer, toClient link.Settings) {
	return link.Settings{Delay: p.RTT / 2, Loss: p.FromClient}, link.Settings{Delay: p.RTT / 2, Loss: p.ToClient}
}

// Database is the settings of the link from the application to its database.
func (p Phase) Database() link.Settings { return link.Settings{Loss: p.ToDatabase} }

// tcprtSixPhases is incident E: where a request's time goes, with a network in
// six states and nothing else changed. All links are emulated all the time, so
// that no phase is spared what that costs. The clients pause between requests:
// where the servers need all of the CPUs, other programs move every figure.
func tcprtSixPhases() Incident {
	return Incident{
		Name:    "tcprt-six-phases",
		Summary: "an application that asks MariaDB: six states of the network under the same load, and the time breakdown",
		Setup: func() server.Setup {
			s := webAndBackend(server.WebDatabase, 0)()
			s.Web.Calls = 2
			return s
		},
		Load: load.Load{Conns: 16, Think: 8 * time.Millisecond, Own: true},
		Phases: []Phase{
			{Name: "clean"},
			{Name: "RTT 17 ms", RTT: 17 * time.Millisecond},
			{Name: "RTT 7 ms", RTT: 7 * time.Millisecond},
			{Name: "0.1 % loss client→server", FromClient: 0.001},
			{Name: "1 % loss client→server", FromClient: 0.01},
			{Name: "1 % loss to client and to database", ToClient: 0.01, ToDatabase: 0.01},
		},
	}
}
