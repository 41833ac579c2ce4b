package onnodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slowray/slowray/internal/commandline"
)

func names(spots []Spot) string {
	var out []string
	for _, s := range spots {
		out = append(out, strings.ReplaceAll(s.label(), "  ", " "))
	}
	return strings.Join(out, ", ")
}

func TestSpots(t *testing.T) {
	a := shop()
	c := serve(t, a)
	for target, want := range map[string]string{
		"deploy/cart": "node-1 shop/cart-a, node-2 shop/cart-b",
		"svc/cart":    "node-1 shop/cart-a, node-2 shop/cart-b",
		"pod/cart-b":  "node-2 shop/cart-b",
		"cart-b":      "node-2 shop/cart-b",
		"node/node-1": "node-1",
	} {
		if got, err := c.Spots(t.Context(), target); err != nil || names(got) != want {
			t.Errorf("%s is on %q, want %q: %v", target, names(got), want, err)
		}
	}
	for target, want := range map[string]string{
		"deploy/all":   "no selector",
		"deploy/idle":  "kubectl get pods -n shop -l app=idle",
		"svc/outside":  "no selector",
		"pod/cart-0":   "does not run",
		"deploy/other": "not found",
		"ingress/cart": "give deploy/NAME",
		"deploy/":      "give deploy/NAME",
		"deploy/a/b":   "give deploy/NAME",
	} {
		if got, err := c.Spots(t.Context(), target); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is on %q, want an error about %q: %v", target, names(got), want, err)
		}
	}
	a.denied = map[string]bool{"/api/v1/namespaces/shop/pods": true}
	if _, err := c.Spots(t.Context(), "deploy/cart"); err == nil || !strings.Contains(err.Error(), `cannot list resource "pods"`) || !strings.Contains(err.Error(), "docs/kubernetes.md") {
		t.Errorf("without rights: %v", err)
	}
}

// TestLook: slowray runs for each pod in the DaemonSet's pod of its node, and the worst
// report comes first.
func TestLook(t *testing.T) {
	a := shop()
	a.program = func(pod string, args []string) (string, string, int, bool) {
		want := map[string]string{"slowray-1": "id-of-cart-a", "slowray-2": "id-of-cart-b"}[pod]
		if got := strings.Join(args, " "); got != program+" why --for=5s --json-and-text --container="+want+" --end-with-input" {
			t.Errorf("in %s runs %s", pod, got)
		}
		if pod == "slowray-2" {
			return found(2, 0.5) + "PROBLEM cart :8080\n\n1. the cause\n", "slowray: watching\n", 1, false
		}
		return well + "OK  1 service\nmore\n", "slowray: watching\n", 0, false
	}
	c := serve(t, a)
	spots, err := c.Spots(t.Context(), "deploy/cart")
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.OnAgents(t.Context(), spots)
	if err != nil {
		t.Fatal(err)
	}
	results := Look(t.Context(), run, spots, []string{"why", "--for=5s"}, false)
	var out bytes.Buffer
	if err := Text(&out, results); err != nil {
		t.Fatal(err)
	}
	want := "PROBLEM cart :8080\n\n1. the cause\n\nWhere slowray looked, most harm first\n  node-2  shop/cart-b  the report above\n  node-1  shop/cart-a  OK  1 service\n"
	if out.String() != want || Worst(results) != 1 {
		t.Errorf("status %d\n%s", Worst(results), out.String())
	}
	// Where a node has no slowray, the others are still looked at.
	spots = append(spots, Spot{Node: "node-3"})
	results = append(results, Look(t.Context(), run, spots[2:], nil, false)...)
	out.Reset()
	if err := Text(&out, results); err != nil || !strings.Contains(out.String(), "node-3               could not look: slowray does not run on node node-3") || Worst(results) != 2 {
		t.Errorf("status %d: %v\n%s", Worst(results), err, out.String())
	}
	if _, err := c.OnAgents(t.Context(), spots[2:]); err == nil || !strings.Contains(err.Error(), "install it") || !strings.Contains(err.Error(), "--ephemeral") {
		t.Errorf("without slowray anywhere: %v", err)
	}
}

// well and found are reports as slowray prints them before their text.
const well = "{\n  \"schema\": \"slowray.report/1\",\n  \"findings\": [],\n  \"account\": {\"lost_s\": 0}\n}\n"

func found(lost, share float64) string {
	return fmt.Sprintf(`{"schema": "slowray.report/1", "findings": [{"cause": "x", "impact": {"share": 0.01}}, {"impact": {"share": %g}}], "account": {"lost_s": %g}}`+"\n", share, lost)
}

// TestMostHarmFirst: the report is that of the node whose requests lost most, wherever it
// stands; then a line for each, as bad as they are.
func TestMostHarmFirst(t *testing.T) {
	said := map[string]struct {
		json, text string
		status     int
	}{
		"well":      {well, "OK  2 services\n", 0},
		"a little":  {found(0.5, 1), "PROBLEM a little\n", 1},
		"undecided": {well, "UNKNOWN  9 causes\n", 2},
		"most":      {found(90, 0.4), "PROBLEM most\nmore\n", 1},
		"some":      {found(30, 0.2), "PROBLEM some\n", 1},
		"explained": {found(30, 0.3), "PROBLEM as much, explained\n", 1},
		"refused":   {"", "", 2},
		"gone":      {"", "", 0},
	}
	run := func(_ context.Context, s Spot, _ []string, stdout, stderr io.Writer) (int, error) {
		r := said[s.Node]
		fmt.Fprint(stdout, r.json, r.text)
		fmt.Fprintln(stderr, "slowray: no process runs")
		return r.status, nil
	}
	var spots []Spot
	for _, node := range []string{"well", "gone", "a little", "undecided", "some", "most", "explained", "refused"} {
		spots = append(spots, Spot{Node: node})
	}
	var out bytes.Buffer
	if err := Text(&out, Look(t.Context(), run, spots, nil, false)); err != nil {
		t.Fatal(err)
	}
	const want = `PROBLEM most
more

Where slowray looked, most harm first
  most       the report above
  explained  PROBLEM as much, explained
  some       PROBLEM some
  a little   PROBLEM a little
  undecided  UNKNOWN  9 causes
  well       OK  2 services
  gone       could not look: it ended before its report was complete
  refused    slowray: no process runs
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// TestOldAgents: an agent that is older than the plugin is asked as it was before, and ranked
// by its exit status.
func TestOldAgents(t *testing.T) {
	said := map[string]struct {
		text   string
		status int
	}{"old, finds": {"PROBLEM old\n", 1}, "old, well": {"OK  old\n", 0}, "old, gone": {"", 0}}
	run := func(_ context.Context, s Spot, args []string, stdout, stderr io.Writer) (int, error) {
		r, old := said[s.Node]
		switch {
		case !old:
			fmt.Fprint(stdout, found(1, 1), "PROBLEM new\n")
			return 1, nil
		case slices.Contains(args, jsonAndText):
			fmt.Fprintln(stderr, `slowray: unknown flag --json-and-text, did you mean "--json"? (see slowray why --help)`)
			return 2, nil
		case slices.Contains(args, "--json") && r.text != "":
			fmt.Fprintf(stdout, `{"said": %q}`, r.text)
		default:
			fmt.Fprint(stdout, r.text)
		}
		return r.status, nil
	}
	spots := []Spot{{Node: "old, gone"}, {Node: "old, well"}, {Node: "old, finds"}, {Node: "new"}}
	var out bytes.Buffer
	if err := Text(&out, Look(t.Context(), run, spots, []string{"why"}, false)); err != nil {
		t.Fatal(err)
	}
	const want = `PROBLEM new

Where slowray looked, most harm first
  new         the report above
  old, finds  PROBLEM old
  old, well   OK  old
  old, gone   could not look: it ended before its report was complete
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	for i, want := range []string{"", `{"said": "OK  old\n"}`, `{"said": "PROBLEM old\n"}`} {
		r := Look(t.Context(), run, spots[i:i+1], []string{"why"}, true)[0]
		if string(r.JSON) != want || (r.Err == nil) != (want != "") {
			t.Errorf("%s: %s: %v", r.Node, r.JSON, r.Err)
		}
	}
}

func TestJSON(t *testing.T) {
	a, b := pod("shop", "cart-a", "node-1", "cart", ""), pod("shop", "cart-c", "node-1", "cart", "")
	var out bytes.Buffer
	err := JSON(&out, []Result{
		{Spot: Spot{"node-1", []*corev1.Pod{&a, &b}}, Status: 1, JSON: []byte(`{"schema":"slowray.report/1","x":[1]}`), Out: []byte("PROBLEM\n")},
		{Spot: Spot{Node: "node-2"}, Status: 2, Err: errors.New("away\x1b[31m")},
		{Spot: Spot{Node: "node-3"}, Status: 2, Stderr: []byte("slowray: watching\nslowray: no process runs\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got[0]) != "map[exit_status:1 namespace:shop node:node-1 pods:[cart-a cart-c] report:map[schema:slowray.report/1 x:[1]]]" ||
		got[1]["error"] == nil || strings.ContainsRune(got[1]["error"].(string), 0x1b) || got[2]["error"] != "slowray: no process runs" {
		t.Errorf("%s", out.String())
	}
}

// TestOldServer: without WebSocket SPDY is tried.
func TestOldServer(t *testing.T) {
	a := shop()
	a.old = true
	c := serve(t, a)
	status, err := c.OnNode(t.Context(), "node-1", []string{"top"}, nil, io.Discard, io.Discard)
	if err == nil || strings.Join(a.calls, ", ") != "GET websocket, POST SPDY/3.1" {
		t.Errorf("it called %q, status %d: %v", a.calls, status, err)
	}
}

// TestInterrupt: after Ctrl-C slowray still reports.
func TestInterrupt(t *testing.T) {
	a := shop()
	ctx, cancel := context.WithCancel(t.Context())
	a.program = func(string, []string) (string, string, int, bool) {
		cancel() // it runs
		return well + "OK  so far\n", "", 0, true
	}
	c := serve(t, a)
	spots := []Spot{{Node: "node-1"}}
	run, err := c.OnAgents(ctx, spots)
	if err != nil {
		t.Fatal(err)
	}
	if r := Look(ctx, run, spots, []string{"why"}, false)[0]; r.Err != nil || string(r.Out) != "OK  so far\n" {
		t.Errorf("it said %q: %v", r.Out, r.Err)
	}
}

// TestEphemeral: a pod is made on the node with the rights of the DaemonSet's, and is
// gone afterwards, whatever happens.
func TestEphemeral(t *testing.T) {
	for name, test := range map[string]struct {
		log    string
		status int
		want   string
	}{
		"finds":    {"slowray: watching\n" + well + "PROBLEM x\nslowray is not at a line's begin\n", 1, "PROBLEM x\nslowray is not at a line's begin\n"},
		"no image": {"", 0, ""},
	} {
		a := shop()
		var ran []string
		a.program = func(_ string, args []string) (string, string, int, bool) {
			ran = args
			return test.log, "", test.status, false
		}
		c := serve(t, a)
		run, err := c.Ephemeral("registry.example.org/slowray:1", "")
		if err != nil {
			t.Fatal(err)
		}
		r := Look(t.Context(), run, []Spot{{Node: "node-3"}}, []string{"why", "--for=5s"}, false)[0]
		if test.log == "" {
			if r.Err == nil || !strings.Contains(r.Err.Error(), "--image") {
				t.Errorf("%s: %v", name, r.Err)
			}
		} else if r.Err != nil || r.Status != test.status || string(r.Out) != test.want || string(r.Stderr) != "slowray: watching\n" {
			t.Errorf("%s: %d %q %q: %v", name, r.Status, r.Out, r.Stderr, r.Err)
		}
		if len(a.calls) != 2 || a.calls[0] != "POST /api/v1/namespaces/shop/pods" || !strings.HasPrefix(a.calls[1], "DELETE /api/v1/namespaces/shop/pods/slowray-ephemeral-") {
			t.Errorf("%s: it called %q", name, a.calls)
		}
		if !slices.Equal(ran, []string{"why", "--for=5s", "--json-and-text"}) {
			t.Errorf("%s: it ran %q", name, ran)
		}
	}
}

func TestAgentSpec(t *testing.T) {
	s, err := agentSpec("x:1", "slowray")
	if err != nil || s.ServiceAccountName != "slowray" || !*s.AutomountServiceAccountToken {
		t.Fatalf("with a service account: %+v: %v", s, err)
	}
	if s, err = agentSpec("x:1", ""); err != nil || s.ServiceAccountName != "" {
		t.Fatalf("%+v: %v", s, err)
	}
	c := s.Containers[0]
	if !s.HostPID || s.HostNetwork || c.Image != "x:1" || *c.SecurityContext.Privileged || len(c.SecurityContext.Capabilities.Add) < 5 ||
		*s.AutomountServiceAccountToken || s.RestartPolicy != "Never" || *s.ActiveDeadlineSeconds < 60 {
		t.Errorf("%+v", s)
	}
	for _, v := range s.Volumes {
		if v.HostPath != nil && v.HostPath.Path == "/var/lib/slowray" {
			t.Error("it keeps a history on the node")
		}
	}
}

// TestFilter: slowray looks at the pods that are asked about, and no others.
func TestFilter(t *testing.T) {
	one, two := pod("shop", "cart-5d8f9-abcde", "node-1", "cart-5d8f9", "ReplicaSet"), pod("shop", "cart-5d8f9-fghij", "node-1", "cart-5d8f9", "ReplicaSet")
	one.Labels["pod-template-hash"], two.Labels["pod-template-hash"] = "5d8f9", "5d8f9"
	stray := pod("shop", "alone", "node-1", "cart", "")
	stray.OwnerReferences = nil
	yes := true
	rollout := []corev1.Pod{one, two}
	for i := range rollout {
		rollout[i].Labels = map[string]string{"rollouts-pod-template-hash": "5d8f9"}
	}
	nightly := []corev1.Pod{one, two}
	for i := range nightly {
		nightly[i].CreationTimestamp = metav1.Unix(60*29123456, 0)
		nightly[i].OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "backup-29123456", Controller: &yes}}
	}
	down := pod("shop", "cart-5d8f9-zzzzz", "node-1", "cart-5d8f9", "ReplicaSet")
	down.Labels["pod-template-hash"] = "5d8f9"
	down.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	meshed := stray
	meshed.Status.InitContainerStatuses = []corev1.ContainerStatus{
		{Name: "proxy", ContainerID: "containerd://proxy-of-alone", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		{Name: "migrate", ContainerID: "containerd://over", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
	}
	for name, test := range map[string]struct {
		pods          []*corev1.Pod
		why, requests string
	}{
		"a node":       {nil, "[] <nil>", "[] <nil>"},
		"one pod":      {[]*corev1.Pod{&stray}, "[--container=id-of-alone-] <nil>", "[--pod=shop/alone] <nil>"},
		"a Deployment": {[]*corev1.Pod{&one, &two}, "[--container=id-of-cart-5,id-of-cart-5] <nil>", "[--pod=shop/cart] <nil>"},
		"a Rollout":    {[]*corev1.Pod{&rollout[0], &rollout[1]}, "[--container=id-of-cart-5,id-of-cart-5] <nil>", "[--pod=shop/cart] <nil>"},
		"a CronJob":    {[]*corev1.Pod{&nightly[0], &nightly[1]}, "[--container=id-of-cart-5,id-of-cart-5] <nil>", "[--pod=shop/backup] <nil>"},
		"a sidecar":    {[]*corev1.Pod{&meshed}, "[--container=proxy-of-alo,id-of-alone-] <nil>", "[--pod=shop/alone] <nil>"},
		"one of two":   {[]*corev1.Pod{&down, &one}, "[--container=id-of-cart-5] <nil>", "[--pod=shop/cart] <nil>"},
		"none runs":    {[]*corev1.Pod{&down}, "[] no container of shop/cart-5d8f9-zzzzz runs at the moment: kubectl describe -n shop pod/cart-5d8f9-zzzzz", "[--pod=shop/cart-5d8f9-zzzzz] <nil>"},
		"a service":    {[]*corev1.Pod{&one, &stray}, "[--container=id-of-cart-5,id-of-alone-] <nil>", "[] nothing controls all 2 pods on node node-1: name one of them"},
	} {
		s := Spot{"node-1", test.pods}
		ids, err := s.containers()
		if got := fmt.Sprint(ids, " ", err); got != test.why {
			t.Errorf("%s: why %s, want %s", name, got, test.why)
		}
		flags, err := s.Workload()
		if got := fmt.Sprint(flags, " ", err); got != test.requests {
			t.Errorf("%s: requests %s, want %s", name, got, test.requests)
		}
	}
}

// TestFirst: slowray wait looks at the process of a pod without anybody knowing its pid.
func TestFirst(t *testing.T) {
	p := pod("shop", "cart-5d8f9-abcde", "node-1", "cart-5d8f9", "ReplicaSet")
	p.Spec.Containers = []corev1.Container{{Name: "app"}, {Name: "proxy"}}
	always := corev1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []corev1.Container{{Name: "migrate"}, {Name: "mesh", RestartPolicy: &always}}
	for _, test := range []struct {
		pods            []*corev1.Pod
		container, want string
	}{
		{[]*corev1.Pod{&p}, "", "--pod=shop/cart-5d8f9-abcde <nil>"},
		{[]*corev1.Pod{&p}, "proxy", "--pod=shop/cart-5d8f9-abcde/proxy <nil>"},
		{[]*corev1.Pod{&p}, "../x", ` pod cart-5d8f9-abcde has no container "../x": it has app, proxy, mesh`},
		{[]*corev1.Pod{&p}, "mesh", "--pod=shop/cart-5d8f9-abcde/mesh <nil>"},
		{nil, "", " give a pod of node node-1, or the pid of a process there"},
	} {
		flag, err := Spot{"node-1", test.pods}.First(test.container)
		if got := fmt.Sprint(flag, " ", err); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// TestStream: lines of several nodes come whole, with the node before each.
func TestStream(t *testing.T) {
	a := shop()
	a.program = func(pod string, _ []string) (string, string, int, bool) {
		return strings.Repeat("line of "+pod+"\n", 3) + "last", "slowray: recording\n", 0, false
	}
	c := serve(t, a)
	spots := []Spot{{Node: "node-1"}, {Node: "node-2"}}
	run, err := c.OnAgents(t.Context(), spots)
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if status := Stream(t.Context(), run, spots, []string{"requests"}, true, &out, &errs); status != 0 {
		t.Errorf("status %d: %s", status, errs.String())
	}
	for line, want := range map[string]int{"node-1  line of slowray-1\n": 3, "node-2  line of slowray-2\n": 3, "node-1  last\n": 1, "node-2  last\n": 1} {
		if got := strings.Count(out.String(), line); got != want {
			t.Errorf("%q is there %d times, want %d:\n%s", line, got, want, out.String())
		}
	}
}

// TestStreamOfManyNodes: all nodes are listened to at the same time, for none would end.
func TestStreamOfManyNodes(t *testing.T) {
	spots := make([]Spot, 100)
	for i := range spots {
		spots[i].Node = fmt.Sprint("node-", i)
	}
	ctx, end := context.WithTimeout(t.Context(), 10*time.Second)
	defer end()
	var running atomic.Int64
	status := Stream(ctx, func(ctx context.Context, _ Spot, _ []string, _, _ io.Writer) (int, error) {
		if running.Add(1) == int64(len(spots)) {
			end()
		}
		<-ctx.Done()
		return 0, nil
	}, spots, nil, true, io.Discard, io.Discard)
	if n := running.Load(); n != int64(len(spots)) || status != 0 {
		t.Errorf("%d of %d nodes were listened to, status %d", n, len(spots), status)
	}
}

// TestRogueNode: what whoever has taken over a node says does not drive this terminal.
func TestRogueNode(t *testing.T) {
	const evil = "\x1b]52;c;ZXZpbA==\a\x1b[2J\u202e"
	a := shop()
	a.program = func(_ string, args []string) (string, string, int, bool) {
		out := "PROBLEM " + evil + "\n{\"a\":1}\n" + evil
		if slices.Contains(args, "why") {
			out = well + out
		}
		return out, evil + "\n", 1, false
	}
	c := serve(t, a)
	spots := []Spot{{Node: "node-1"}}
	run, err := c.OnAgents(t.Context(), spots)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Text(&out, Look(t.Context(), run, spots, []string{"why"}, false)); err != nil {
		t.Fatal(err)
	}
	Stream(t.Context(), run, spots, []string{"requests"}, true, &out, &out)
	Stream(t.Context(), run, spots, []string{"requests"}, false, &out, &out)
	if strings.ContainsAny(out.String(), "\x1b\a\u202e") || strings.Count(out.String(), "{\"a\":1}\n") != 3 {
		t.Errorf("%q", out.String())
	}
}

// TestNodeDies: a node that dies meanwhile breaks the stream off, which looks like a good end.
// That is no report, and not the exit status of one that found nothing.
func TestNodeDies(t *testing.T) {
	for _, said := range []string{"", "\n", "OK  no report before it\n", `{"findings":[`, found(1, 1), well + "\n"} {
		a := shop()
		a.program = func(string, []string) (string, string, int, bool) { return said, "slowray: watching\n", 0, false }
		c := serve(t, a)
		spots := []Spot{{Node: "node-1"}}
		run, err := c.OnAgents(t.Context(), spots)
		if err != nil {
			t.Fatal(err)
		}
		results := Look(t.Context(), run, spots, []string{"why"}, false)
		if results[0].Err == nil || Worst(results) != commandline.ExitFailed {
			t.Errorf("%q: status %d, %v", said, Worst(results), results[0].Err)
		}
	}
}
