package kube

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
)

// The addresses of a node, all in its own network namespace.
const (
	nodeName    = "node-1"
	zone        = "zone-a"
	nodeAddr    = "192.168.213.1"
	nowhere     = "192.168.213.254"
	podCIDR     = "10.244.0.0/24"
	serviceCIDR = "10.96.0.0/16"
	apiService  = "10.96.0.1" // the first of serviceCIDR
	apiURL      = "https://127.0.0.1:6443"
)

// network gives the node's namespace an interface with the node's address and a default
// route, which leads nowhere: a kubelet looks for both.
func network() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("network: lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("network: lo: %w", err)
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "nowhere"}); err != nil {
		return fmt.Errorf("network: veth: %w", err)
	}
	for _, name := range []string{"nowhere", "eth0"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("network: %s: %w", name, err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("network: %s: %w", name, err)
		}
		if name != "eth0" {
			continue
		}
		addr, err := netlink.ParseAddr(nodeAddr + "/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("network: address: %w", err)
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(nowhere)}); err != nil {
			return fmt.Errorf("network: default route: %w", err)
		}
	}
	// Of this namespace only.
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}
