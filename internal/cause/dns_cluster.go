package cause

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// clusterDNS is who answers names in a cluster; its zero value is nobody that is known.
type clusterDNS struct {
	service *observe.KubeService
	at      inPod // one of its pods; nobody where all are on other nodes
}

// clusterDNS finds who has a nameserver's address: a service, or a pod itself.
func (v *View) clusterDNS(addr string) clusterDNS {
	a := address(addr).Unmap()
	c := clusterDNS{service: v.pods().services[a]}
	pod := v.pods().byAddr[a]
	if c.service != nil {
		if behind := v.podsBehind(c.service); len(behind) > 0 {
			pod = behind[0]
		}
	}
	if pod != nil {
		c.at = inPod{pod: pod, node: &v.Kubernetes.Node}
	}
	return c
}

func (c clusterDNS) known() bool { return c.service != nil || c.at.pod != nil }

func (c clusterDNS) text() string {
	if c.at.pod != nil {
		return c.at.text()
	}
	return fmt.Sprintf("svc/%s (ns %s)", c.service.Name, c.service.Namespace)
}

func (c clusterDNS) evidence() []Evidence {
	if !c.known() {
		return nil
	}
	return append([]Evidence{{Fact: "who answers there", Value: c.text(), Source: "EndpointSlice, kubelet"}}, endpointEvidence(c.service)...)
}

// corefile shows the configuration of CoreDNS, which is a ConfigMap that is named as the Deployment
// or DaemonSet is (kubeadm, the Helm chart). Of others, and of pods on other nodes, what is known leads to it.
func (c clusterDNS) corefile() shell.Command {
	pod := c.at.pod
	switch {
	case pod != nil && pod.Owner != "" && (pod.Kind == "Deployment" || pod.Kind == "DaemonSet"):
		return shell.Line("kubectl -n %s get configmap %s -o yaml   # plugins cache and autopath in the Corefile", shell.Word(pod.Namespace), shell.Operand(pod.Owner))
	case c.service != nil:
		return shell.Line("kubectl -n %s get service %s -o wide   # its selector leads to the Deployment and its Corefile", shell.Word(c.service.Namespace), shell.Operand(c.service.Name))
	}
	return shell.Line("kubectl -n %s describe pod %s   # its volumes lead to the Corefile", shell.Word(pod.Namespace), shell.Operand(pod.Name))
}

// nodeLocal is a cache on each node, to which queries go without translation and tracking.
var nodeLocal = shell.Line("# NodeLocal DNSCache on each node: kubernetes.io/docs/tasks/administer-cluster/nodelocaldns")

// slowInCluster advises where the nameserver that is slow is the cluster's.
func (v *View) slowInCluster(f *Finding, n *names, s *observe.DNSServer) {
	c := v.clusterDNS(s.Addr)
	if !c.known() {
		return
	}
	f.Fix.Text = fmt.Sprintf("Let more pods of %s answer (replicas, or cluster-proportional-autoscaler), keep the plugin cache in its Corefile, and run NodeLocal DNSCache on the nodes. If they wait for the nameserver that they forward to, that one is slow.", c.text())
	f.Fix.Commands = append(f.Fix.Commands, c.corefile())
	if c.service != nil && c.at.pod != nil && c.at.pod.Kind == "Deployment" && readyOf(c.service) > 0 {
		f.Fix.Commands = slices.Insert(f.Fix.Commands, 0, c.at.edit("spec.replicas", shell.Line("scale"), shell.Line("--replicas=%s", 2*readyOf(c.service))))
	}
	f.Fix.Persist = []shell.Command{nodeLocal}
	if at := v.podOfProcess(n.where); at.pod != nil && n.searched > 0 && n.resolver.NDots > 1 {
		f.Fix.Text += fmt.Sprintf(" With ndots 1 in %s.dnsConfig.options %s asks for fewer names.", at.spec(), f.Subject.Comm)
		f.Fix.Persist = append(f.Fix.Persist, at.patchDNS(ndots, "1"))
	}
}

// ndots is the option of resolv.conf(5) that a pod's manifest often has.
const ndots = "ndots"

// patchDNS sets an option of the pod's resolver. A patch replaces the list of options: the others
// of the manifest stay.
func (at inPod) patchDNS(name, value string) shell.Command {
	options := []observe.DNSOption{{Name: name, Value: value}}
	for _, o := range at.pod.DNSOptions {
		if o.Name == name {
			continue
		}
		// None of resolv.conf(5) has other characters, and a patch without it would take it away.
		for _, text := range []string{o.Name, o.Value} {
			if c := shell.Line("kubectl %s", shell.KubeName(text)); text != "" && c.IsNote() {
				return c
			}
		}
		options = append(options, o)
	}
	return at.patch(at.spec()+".dnsConfig.options", map[string]any{"dnsConfig": map[string]any{"options": options}})
}

// clashedAt is where on the way to a nameserver connection tracking dropped about as many
// packets, queries among them, as went without an answer: their entries clashed with others
// (nf_ct_resolve_clash in net/netfilter/nf_conntrack_core.c). It is nil for nowhere. Pods'
// own namespaces are on no other pod's way.
func (v *View) clashedAt(n *names, s *observe.DNSServer) (at *observe.NetNS) {
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		if ct := ns.Conntrack; ct == nil || ns.PID != 0 && !ns.Host && ns.Inode != n.netns || ratio(ct.InsertFailed, s.Unanswered) < clashShare || !v.dropsQueries(ns, s) {
			continue
		}
		if at == nil || ns.Conntrack.InsertFailed > at.Conntrack.InsertFailed {
			at = ns
		}
	}
	return at
}

// dropsQueries says whether about as many packets to nameservers died in the packet filter of a
// namespace, where tracking ends, as went without an answer, besides those that its rules may have
// dropped. Where drops were not watched, twins (A, AAAA) that were answered tell.
func (v *View) dropsQueries(ns *observe.NetNS, s *observe.DNSServer) bool {
	if v.Drops == nil {
		return ratio(s.Halves, s.Unanswered) >= clashShare
	}
	var lost, ruled uint64
	for _, d := range v.Drops.List {
		if d.NetNS != ns.Inode || d.Kind != "udp" || d.Reason != "" && d.Reason != "NETFILTER_DROP" {
			continue
		}
		for _, f := range d.Flows {
			if f.DstPort == namePort {
				lost += f.Segments
			}
		}
	}
	if ns.Firewall != nil {
		for i := range ns.Firewall.Rules {
			if r := &ns.Firewall.Rules[i]; r.Counted && (r.Protocol == "" || r.Protocol == "udp") && portFits(r.DstPorts, namePort) {
				ruled += r.Packets
			}
		}
	}
	return ratio(lost-min(lost, ruled), s.Unanswered) >= clashShare
}

// clashWords explains queries that connection tracking dropped. The queries for the two families
// of addresses, sent at once from one socket, are one flow: where one of them came through, both
// had begun an entry. Where both were lost, their entry clashed with that of another flow: they were
// translated to a port that was taken.
func (v *View) clashWords(f *Finding, n *names, s *observe.DNSServer, ns *observe.NetNS) {
	f.Title = fmt.Sprintf("conntrack drops DNS queries of %s (insert_failed)", f.Subject.Comm)
	ct := ns.Conntrack
	f.Evidence = slices.Insert(f.Evidence, 0,
		Evidence{Fact: "packets dropped because their conntrack entry clashed" + where(ns), Value: ct.InsertFailed, Limit: s.Unanswered, Unit: "packets, for queries without an answer", Source: "conntrack statistics, insert_failed"},
		Evidence{Fact: "clashes that the kernel resolved", Value: ct.ClashResolved, Unit: "packets", Source: "conntrack statistics, clash_resolve"},
		Evidence{Fact: "queries without an answer whose twin (A, AAAA) was answered", Value: s.Halves, Limit: s.Unanswered, Unit: "queries", Source: "packets of port 53"})
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("conntrack -S"))}
	if ratio(s.Halves, s.Unanswered) >= clashShare {
		file, _ := n.config()
		f.Fix.Text = fmt.Sprintf("A and AAAA queries leave one socket at once, and their conntrack entries clash. Let %s ask from two sockets (single-request-reopen) or over TCP (use-vc), by the options in %s: glibc and Go read them, musl does not.", f.Subject.Comm, file)
		f.Fix.Persist = []shell.Command{shell.Line("# in %s (or what writes it): options single-request-reopen", file)}
		if pod := v.podOfProcess(n.where); pod.pod != nil {
			f.Fix.Persist = []shell.Command{pod.patchDNS("single-request-reopen", "")}
		}
	} else {
		f.Fix.Text = "Queries are translated (SNAT, masquerade) to source ports that are taken. Let the rule use all ports (without --to-ports, with --random-fully), give it more addresses, or let a cache ask that needs no translation."
		f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("iptables-legacy-save -t nat")), v.in(ns, shell.Line("nft list ruleset   # masquerade, snat")))
		f.Fix.Persist = nil
	}
	if v.Kubernetes != nil {
		f.Fix.Text += " NodeLocal DNSCache keeps queries of pods out of connection tracking."
		f.Fix.Persist = append(f.Fix.Persist, nodeLocal)
	}
}
