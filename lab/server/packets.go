package server

import (
	"fmt"
	"strings"
	"text/template"

	"github.com/slowray/slowray/lab/sandbox"
)

// Packets is what is done to the packets on their way: commands that are run
// in the network namespaces once the servers serve, one a line, for the shell,
// with fields of Plan in double braces. What they make goes with the namespace.
type Packets struct {
	AtServer, AtClients, AtBackend string
	// AtRouters is the same in the first router of a wire, and in those behind it:
	// of the one between clients and servers, else of that to the backend.
	AtRouters [sandbox.MaxRouters]string
	// Stray is commands of the clients' side that go on until the sandbox ends:
	// traffic that is nobody's.
	Stray string
}

// tools are the packages that commands come from, by their first word.
var tools = map[string]string{
	"nft": "nftables", "iptables-nft": "iptables", "iptables-nft-restore": "iptables", "iptables-legacy-restore": "iptables", "iptables-legacy": "iptables", "hping3": "hping3", "ip": "iproute2", "tc": "iproute2", "conntrack": "conntrack",
}

// Needs is the Debian packages that the commands come from.
func (p Packets) Needs() []string {
	var list []string
	for line := range strings.Lines(p.AtServer + p.AtClients + p.AtBackend + p.Stray + strings.Join(p.AtRouters[:], "")) {
		for word := range strings.FieldsSeq(line) {
			if pkg := tools[word]; pkg != "" {
				list = append(list, pkg)
				break
			}
		}
	}
	return list
}

func (s *starter) packets() error {
	p := s.v.Packets
	for _, at := range []struct {
		side  *sandbox.Side
		lines string
	}{{s.box.Server, p.AtServer}, {s.box.Client, p.AtClients}, {s.box.Backend, p.AtBackend}} {
		for line := range strings.Lines(at.lines) {
			text, err := s.filled(line)
			if err != nil {
				return err
			}
			if _, err := at.side.Output(s.ctx, "sh", "-c", text); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
	}
	routers := s.box.Front.Routers
	if len(routers) == 0 && s.box.Back != nil {
		routers = s.box.Back.Routers
	}
	for n, lines := range p.AtRouters {
		for line := range strings.Lines(lines) {
			text, err := s.filled(line)
			if err != nil {
				return err
			}
			if err := routers[n].Run(s.ctx, s.box.Server, text); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
	}
	for line := range strings.Lines(p.Stray) {
		text, err := s.filled(line)
		if err != nil {
			return err
		}
		if _, err := s.box.Client.Start(s.ctx, sandbox.Spec{Args: []string{"sh", "-c", text}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *starter) filled(line string) (string, error) {
	t, err := template.New("command").Parse(line)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = t.Execute(&text, s.v.Plan)
	return text.String(), err
}
