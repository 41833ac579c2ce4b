package onnodes

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// pagePort is where the page listens, unless the DaemonSet says otherwise.
const pagePort = "7788"

// Page forwards a port of this machine's loopback to the page of a node, until ctx ends.
// A port of 0 is any that is free; ready gets the address.
func (c *Cluster) Page(ctx context.Context, node string, port int, ready func(address string)) error {
	agents, err := c.Agents(ctx)
	if err != nil {
		return err
	}
	agent := agents[node]
	if agent == nil {
		return c.missing(node)
	}
	remote := pagePort
	for _, arg := range agent.Spec.Containers[0].Args {
		if listen, ok := strings.CutPrefix(arg, "--listen="); ok {
			if listen == "off" {
				return fmt.Errorf("the page of node %s is off: set page.listen of the chart", node)
			}
			remote = listen[strings.LastIndexByte(listen, ':')+1:]
		}
	}
	url := c.core.RESTClient().Post().Resource("pods").Namespace(agent.Namespace).Name(agent.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return err
	}
	socket, err := portforward.NewSPDYOverWebsocketDialer(url, c.config)
	if err != nil {
		return err
	}
	var dialer httpstream.Dialer = spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", url)
	dialer = portforward.NewFallbackDialer(socket, dialer, fallsBack)
	started := make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("%d:%s", port, remote)}, ctx.Done(), started, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case err := <-ended:
		return explain(err)
	case <-started:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	ready(fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local))
	err = <-ended
	if ctx.Err() != nil {
		return nil
	}
	return explain(err)
}
