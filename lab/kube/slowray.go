package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tools are slowray as it is installed in a cluster: its image, its chart, its plugin.
type Tools struct {
	Image Image

	dir    string
	chart  string
	plugin string
}

// slowrayTag is the image's.
const slowrayTag = "demo"

// BuildSlowray makes the image of a slowray that is built already, and the plugin of
// kubectl. It is called inside the module.
func BuildSlowray(ctx context.Context, exe string) (*Tools, error) {
	exe, err := filepath.Abs(exe)
	if err != nil {
		return nil, err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	t := &Tools{chart: filepath.Join(root, "packaging/helm/slowray")}
	if t.dir, err = os.MkdirTemp("", "slowray-tools-"); err != nil {
		return nil, err
	}
	t.plugin = filepath.Join(t.dir, "kubectl-slowray")
	layout, image := filepath.Join(t.dir, "layout"), filepath.Join(t.dir, "slowray.tar")
	for _, line := range [][]string{
		{"go", "build", "-C", root, "-o", t.plugin, "./cmd/kubectl-slowray"},
		{"go", "run", "-C", filepath.Join(root, "packaging/tools"), "./image", layout, "localhost/slowray:" + slowrayTag, slowrayTag, filepath.Join(root, "LICENSE"), runtime.GOARCH + "=" + exe},
		{"tar", "-cf", image, "-C", layout, "."},
	} {
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "SOURCE_DATE_EPOCH=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, errors.Join(fmt.Errorf("kube: %v: %w: %s", line, err, bytes.TrimSpace(out)), t.Close())
		}
	}
	t.Image = Image{Name: "slowray", Tar: image}
	return t, nil
}

// Close removes what was made.
func (t *Tools) Close() error { return os.RemoveAll(t.dir) }

// moduleRoot is the directory of slowray's source.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/slowray/slowray").Output()
	if err != nil {
		return "", fmt.Errorf("kube: go list: %w (not in slowray's source?)", err)
	}
	return string(bytes.TrimSpace(out)), nil
}

// InstallSlowray installs slowray by its chart and waits until it records. The node
// was started with the tools' image.
func (n *Node) InstallSlowray(ctx context.Context, t *Tools) error {
	cmd := n.Command(ctx, filepath.Join(n.parts, "helm"), "install", "slowray", t.chart, "--namespace", "slowray", "--create-namespace", "--set", "image.tag="+slowrayTag)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kube: helm: %w: %s", err, bytes.TrimSpace(out))
	}
	c, err := n.Client()
	if err != nil {
		return err
	}
	for {
		d, err := c.AppsV1().DaemonSets("slowray").Get(ctx, "slowray", metav1.GetOptions{})
		if err == nil && d.Status.NumberAvailable > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kube: slowray does not run: %s", c.why("slowray"))
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// Why is what kubectl slowray why prints, whether it found something or not.
func (n *Node) Why(ctx context.Context, t *Tools, args ...string) (string, error) {
	cmd := n.Command(ctx, append([]string{t.plugin, "why"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return "", fmt.Errorf("kube: kubectl slowray why: %w: %s", err, out)
	}
	return string(out), nil
}

// Endless waits until a Service has no endpoint left.
func (c *Client) Endless(ctx context.Context, namespace, service string) error {
	for {
		slices, err := c.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		n := 0
		if err == nil {
			for _, s := range slices.Items {
				n += len(s.Endpoints)
			}
			if n == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kube: service %s still has %d endpoints", service, n)
		case <-time.After(250 * time.Millisecond):
		}
	}
}
