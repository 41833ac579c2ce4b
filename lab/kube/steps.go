package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// parted are the programs that script/kube.sh builds.
var parted = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "helm"}

const (
	etcdURL     = "http://127.0.0.1:2379"
	etcdPeerURL = "http://127.0.0.1:2380"
	// criSocket is where containerd listens by default, which is where others look for it.
	criSocket = "/run/containerd/containerd.sock"
	// ReadOnlyPort is the kubelet's, of a node that is Alone.
	ReadOnlyPort = 10255
	cniPlugins   = "/usr/lib/cni" // of Debian's containernetworking-plugins
)

// ready is how long each part may take: on two CPUs that others use, too.
const ready = 2 * time.Minute

type step struct {
	text string
	do   func(context.Context) error
}

func (k *keeper) steps() []step {
	runtime := []step{
		{"containerd, with images made here", k.containerd},
		{"kubelet", k.kubelet},
	}
	if k.Options.Alone {
		return runtime
	}
	return append([]step{
		{"certificates", func(context.Context) error { return k.certificates() }},
		{"etcd", k.etcd},
		{"API server", k.apiServer},
		{"controller manager, scheduler, kube-proxy", k.controllers},
	}, append(runtime, step{"the node is ready", k.nodeReady})...)
}

func (k *keeper) path(parts ...string) string {
	return filepath.Join(append([]string{k.Dir}, parts...)...)
}

func (k *keeper) pki(name string) string { return k.path("pki", name) }

func (k *keeper) part(name string) string { return filepath.Join(k.Options.Parts, name) }

// certificates makes everybody's certificate, and the key that service accounts' tokens are
// signed by.
func (k *keeper) certificates() error {
	a, err := newAuthority(k.path("pki"))
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name, user string
		groups     []string
		addrs      []string
	}{
		{"apiserver", "kube-apiserver", []string{"system:masters"}, []string{"127.0.0.1", nodeAddr, apiService, "kubernetes", "kubernetes.default", "kubernetes.default.svc"}},
		{"service-accounts", "service-accounts", nil, nil},
		{"admin", "admin", []string{"system:masters"}, nil},
		{"kubelet", "system:node:" + nodeName, []string{"system:nodes"}, []string{"127.0.0.1", nodeAddr, nodeName}},
		{"kube-controller-manager", "system:kube-controller-manager", nil, nil},
		{"kube-scheduler", "system:kube-scheduler", nil, nil},
		{"kube-proxy", "system:kube-proxy", nil, nil},
	} {
		if err := a.sign(c.name, c.user, c.groups, c.addrs...); err != nil {
			return err
		}
		if err := a.kubeconfig(c.name); err != nil {
			return err
		}
	}
	return nil
}

func (k *keeper) etcd(ctx context.Context) error {
	// Nobody needs what is in it after a power failure.
	if err := k.start("etcd", k.part("etcd"), "--data-dir="+k.path("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls="+etcdPeerURL, "--initial-advertise-peer-urls="+etcdPeerURL, "--initial-cluster=default="+etcdPeerURL); err != nil {
		return err
	}
	return k.wait(ctx, ready, func(ctx context.Context) error { return k.healthy(ctx, etcdURL+"/health") })
}

func (k *keeper) apiServer(ctx context.Context) error {
	if err := k.start("kube-apiserver", k.part("kube-apiserver"),
		"--etcd-servers="+etcdURL, "--secure-port=6443", "--advertise-address="+nodeAddr, "--service-cluster-ip-range="+serviceCIDR,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP",
		"--client-ca-file="+k.pki("ca.crt"), "--tls-cert-file="+k.pki("apiserver.crt"), "--tls-private-key-file="+k.pki("apiserver.key"),
		"--kubelet-certificate-authority="+k.pki("ca.crt"), "--kubelet-client-certificate="+k.pki("apiserver.crt"), "--kubelet-client-key="+k.pki("apiserver.key"),
		"--service-account-issuer="+apiURL, "--service-account-key-file="+k.pki("service-accounts.key"), "--service-account-signing-key-file="+k.pki("service-accounts.key"),
	); err != nil {
		return err
	}
	return k.wait(ctx, ready, func(ctx context.Context) error { return k.healthy(ctx, apiURL+"/readyz") })
}

// healthy asks a URL, as the administrator where it is the API server's.
func (k *keeper) healthy(ctx context.Context, url string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if cert, err := tls.LoadX509KeyPair(k.pki("admin.crt"), k.pki("admin.key")); err == nil {
		ca, err := os.ReadFile(k.pki("ca.crt"))
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, answer.Status, text)
	}
	return err
}

// controllers starts those that need nothing but the API server.
func (k *keeper) controllers(context.Context) error {
	// The variant of iptables that the node's namespace is for, whatever the host's default.
	if err := os.MkdirAll(k.path("bin"), 0o755); err != nil {
		return err
	}
	nft, err := exec.LookPath("xtables-nft-multi")
	if err != nil {
		return err
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		if err := os.Symlink(nft, k.path("bin", name)); err != nil {
			return err
		}
	}
	proxy, err := k.conf("kube-proxy", fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
hostnameOverride: %s
clientConnection: {kubeconfig: %s}
clusterCIDR: %s
# The size of the table of connections is the host's.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
iptables: {minSyncPeriod: 100ms}
`, nodeName, k.pki("kube-proxy.conf"), k.Options.PodCIDR))
	if err != nil {
		return err
	}
	return errors.Join(
		k.start("kube-controller-manager", k.part("kube-controller-manager"), "--kubeconfig="+k.pki("kube-controller-manager.conf"), "--leader-elect=false",
			"--use-service-account-credentials", "--root-ca-file="+k.pki("ca.crt"), "--service-account-private-key-file="+k.pki("service-accounts.key"),
			"--authentication-kubeconfig="+k.pki("kube-controller-manager.conf"), "--authorization-kubeconfig="+k.pki("kube-controller-manager.conf")),
		k.start("kube-scheduler", k.part("kube-scheduler"), "--kubeconfig="+k.pki("kube-scheduler.conf"), "--leader-elect=false",
			"--authentication-kubeconfig="+k.pki("kube-scheduler.conf"), "--authorization-kubeconfig="+k.pki("kube-scheduler.conf")),
		k.start("kube-proxy", k.part("kube-proxy"), "--config="+proxy))
}

// conf writes a file of configuration and gives its path.
func (k *keeper) conf(name, text string) (string, error) {
	path := k.path("conf", name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// containerd starts it with the CRI, and a network by the bridge plugin. The limits of the
// machine that this was written on: restrict_oom_score_adj, without which runc fails
// where CAP_SYS_RESOURCE is missing.
func (k *keeper) containerd(ctx context.Context) error {
	cni := k.path("conf", "cni")
	if err := os.MkdirAll(cni, 0o755); err != nil {
		return err
	}
	if _, err := k.conf("cni/10-node.conflist", fmt.Sprintf(`{
  "cniVersion": "1.0.0", "name": "node",
  "plugins": [
    {%s,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "%s"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, podLink(), k.Options.PodCIDR)); err != nil {
		return err
	}
	conf, err := k.conf("containerd.toml", fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "%s"
[plugins."io.containerd.internal.v1.opt"]
  path = "%s"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%s"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "%s"
    conf_dir = "%s"
`, criSocket, k.path("opt"), imageName("pause"), cniPlugins, cni))
	if err != nil {
		return err
	}
	if err := k.start("containerd", "containerd", "--config", conf); err != nil {
		return err
	}
	if err := k.wait(ctx, ready, dials(criSocket)); err != nil {
		return err
	}
	return k.importImages(ctx)
}

// podLink is the plugin that links pods to the node: a bridge; or a route to each, where what
// crosses a bridge does not pass iptables (no br_netfilter): answers to a service's
// address would not find their way back.
func podLink() string {
	if _, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables"); err != nil {
		return `"type": "ptp"`
	}
	return `"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true`
}

// dials checks that something listens on a socket.
func dials(path string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			c.Close()
		}
		return err
	}
}

// kubelet starts it, with the API server or alone.
func (k *keeper) kubelet(ctx context.Context) error {
	access := fmt.Sprintf(`authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
tlsCertFile: %s
tlsPrivateKeyFile: %s
`, k.pki("ca.crt"), k.pki("kubelet.crt"), k.pki("kubelet.key"))
	if k.Options.Alone {
		access = fmt.Sprintf(`authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
readOnlyPort: %d
`, ReadOnlyPort)
	}
	for i, manifest := range k.Options.Static {
		if err := os.WriteFile(k.path("static", fmt.Sprintf("%d.yaml", i)), manifest, 0o600); err != nil {
			return err
		}
	}
	conf, err := k.conf("kubelet", access+fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: %s
volumePluginDir: %s
containerRuntimeEndpoint: unix://%s
cgroupDriver: cgroupfs
cgroupRoot: /%s
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
imageGCHighThresholdPercent: 100
resolvConf: ""
nodeStatusUpdateFrequency: 5s
`, k.path("static"), k.path("volume-plugins"), criSocket, filepath.Base(k.Dir)))
	if err != nil {
		return err
	}
	args := []string{k.part("kubelet"), "--config=" + conf, "--hostname-override=" + nodeName, "--node-ip=" + nodeAddr}
	if !k.Options.Alone {
		args = append(args, "--kubeconfig="+k.pki("kubelet.conf"), "--node-labels=topology.kubernetes.io/zone="+zone)
	}
	if err := k.start("kubelet", args...); err != nil {
		return err
	}
	return k.wait(ctx, ready, func(ctx context.Context) error { return k.healthy(ctx, "http://127.0.0.1:10248/healthz") })
}

// nodeReady waits until pods can be scheduled here.
func (k *keeper) nodeReady(ctx context.Context) error {
	c, err := newClient(k.pki("admin.conf"), nil)
	if err != nil {
		return err
	}
	return k.wait(ctx, ready, c.nodeReady)
}
