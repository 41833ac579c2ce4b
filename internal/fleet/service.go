package fleet

import (
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// Service is what an endpoint belongs to, the same name on each host that runs it:
// its workload in Kubernetes, its systemd unit, else its container, else its process, and where it answers the
// port: "mariadb:3306". At the calling end it is what calls, without a port.
func Service(side observe.Side, p *observe.Identity, port int) string {
	name := p.Comm
	switch {
	case p.Workload != (observe.Workload{}):
		name = p.Workload.Controller()
	case p.Unit != "":
		name = strings.TrimSuffix(p.Unit, ".service")
	case p.ContainerName != "":
		name = p.ContainerName
	}
	if name == "" {
		name = "?"
	}
	if side == observe.Called {
		return name
	}
	return name + ":" + strconv.Itoa(port)
}
