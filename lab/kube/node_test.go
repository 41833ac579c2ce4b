package kube

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	InitMain()
	os.Exit(m.Run())
}

// startNode starts a node that ends with the test, or skips where its parts are not built.
func startNode(t *testing.T, opt Options) *Node {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: a Kubernetes node takes a minute (-short)")
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a Kubernetes node needs root")
	}
	parts, err := exec.Command("../../script/kube.sh", "--where").Output()
	if err != nil {
		t.Skip("SKIPPED: the parts of a Kubernetes node have not been built (script/kube.sh)")
	}
	opt.Parts = string(bytes.TrimSpace(parts))
	if err := missing(opt.Parts); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	began := time.Now()
	opt.Say = func(text string) { t.Logf("%v %s", time.Since(began).Round(time.Second), text) }
	n, err := StartShop(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		nothingLeft(t, n)
	})
	return n
}

// nothingLeft checks that a node that was closed has left nothing.
func nothingLeft(t *testing.T, n *Node) {
	t.Helper()
	if _, err := os.Stat(n.Dir); err == nil {
		t.Errorf("%s is left", n.Dir)
	}
	list, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range list {
		if dir := filepath.Join(h, filepath.Base(n.Dir)); isGroup(dir) {
			t.Errorf("the group %s is left", dir)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte(n.Dir)) {
		t.Errorf("mounts of %s are left (%v)", n.Dir, err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if text, err := os.ReadFile(p); err == nil && bytes.Contains(text, []byte(n.Dir)) {
			t.Errorf("a process is left: %q", text)
		}
	}
}

// buildSlowray gives the path of the program.
func buildSlowray(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "slowray")
	cmd := exec.Command("go", "build", "-o", file, "github.com/slowray/slowray/cmd/slowray")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// TestKilled kills the keeper: nothing of the node outlives it but what Close removes.
func TestKilled(t *testing.T) {
	n := startNode(t, Options{Alone: true, Static: [][]byte{staticPod}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	untilServing(ctx, t, n)
	n.keeper.Process.Kill()
	if err := n.Err(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the node ended with %v", err)
	}
}

// settings are those of the host that a kubelet would change.
func settings(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name := range kernelSettings {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(value)
	}
	return all
}

var staticPod = []byte(`apiVersion: v1
kind: Pod
metadata: {name: fixed, namespace: shop, labels: {app: fixed}}
spec:
  dnsPolicy: Default
  enableServiceLinks: false
  containers:
  - name: stock
    image: localhost/stock:1
    imagePullPolicy: Never
    ports: [{containerPort: 8080, hostPort: 18099}]
    resources: {limits: {cpu: 500m, memory: 64Mi}}
`)

// staticURL is where the static pod answers.
const staticURL = "http://" + nodeAddr + ":18099/"

func untilServing(ctx context.Context, t *testing.T, n *Node) {
	t.Helper()
	for n.ask(ctx, staticURL) != nil {
		if ctx.Err() != nil {
			t.Fatalf("the static pod does not answer; kubelet: %s", n.Log("kubelet"))
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Log("the static pod answers")
}

// TestStaticPod: a kubelet without API server and its read-only port are enough for the name
// of a pod, and the node has changed no setting of the host.
func TestStaticPod(t *testing.T) {
	slowray, before := buildSlowray(t), settings(t)
	n := startNode(t, Options{Alone: true, Static: [][]byte{staticPod}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	untilServing(ctx, t, n)
	cmd := n.Command(ctx, slowray, "requests", "--side", "served", "--port", "8080", "--format", "json", "--limit", "5", "--for", "20s")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	asking, stop := context.WithCancel(ctx)
	go func() {
		for asking.Err() == nil {
			n.ask(asking, staticURL)
			time.Sleep(100 * time.Millisecond)
		}
	}()
	err := cmd.Wait()
	stop()
	if err != nil {
		t.Fatalf("slowray requests: %v", err)
	}
	const want = `"workload":{"namespace":"shop","pod":"fixed-node-1","container":"stock","kind":"Pod","name":"fixed-node-1"`
	if !strings.Contains(out.String(), want) {
		t.Errorf("no %s in\n%s", want, out.String())
	}
	for name, value := range settings(t) {
		if value != before[name] {
			t.Errorf("%s was %q and is %q", name, before[name], value)
		}
	}
}
