package diagnose

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// replicas is a pod whose CPU limit throttles it, and another one with the same fault, in a
// network namespace of its own, which runs for as many requests and waits half as long.
func replicas(t *testing.T) *observe.Observation {
	o := load(t, "testdata/corpus/fixture-cpu-quota-throttled-fires-the-cpu-limit-of-a-container-in-a-pod")
	k := o.Kubernetes
	first := slices.IndexFunc(o.Processes, func(p observe.Process) bool { return p.Container == k.Pods[0].Containers[0].ID })
	p := o.Processes[first]
	pid := p.PID
	ns := o.Namespaces[0]
	ns.Inode, ns.PID, ns.Addrs = ns.Inode+1, pid+1, k.Pods[1].IPs
	ns.Listeners = slices.DeleteFunc(slices.Clone(ns.Listeners), func(l observe.Listener) bool { return l.PID != pid })
	ns.Listeners[0].PID, ns.Listeners[0].PIDs, ns.Listeners[0].Addr = pid+1, []int{pid + 1}, k.Pods[1].IPs[0]
	p.PID, p.NetNS, p.Container, p.Cgroup = pid+1, ns.Inode, k.Pods[1].Containers[0].ID, "/kubepods/burstable/pod"+k.Pods[1].UID+"/x"
	c := o.Cgroups[0]
	c.Path, c.PIDs, c.QuotaFile = p.Cgroup, []int{p.PID}, "/sys/fs/cgroup/twin/cpu.max"
	c.ThrottledSeconds = 7 // it runs on more CPUs than the other, in shorter spells
	o.Processes, o.Namespaces, o.Cgroups = append(o.Processes, p), append(o.Namespaces, ns), append(o.Cgroups, c)
	e := o.Endpoints[0]
	e.NetNS, e.Addr, e.PID, e.PIDs = ns.Inode, k.Pods[1].IPs[0], p.PID, []int{p.PID}
	e.Parts = map[string]observe.PartStats{}
	for name, part := range o.Endpoints[0].Parts {
		part.SumNS /= 2
		e.Parts[name] = part
	}
	o.Endpoints = append(o.Endpoints, e)
	return o
}

func quotas(r *Report) (found []cause.Finding) {
	for _, f := range r.Findings {
		if f.Cause == cause.CPUQuotaThrottled {
			found = append(found, f)
		}
	}
	return found
}

// TestReplicas: two pods of one workload with one fault are one finding, with what it costs
// in both and one command; of two workloads they are two.
func TestReplicas(t *testing.T) {
	o := replicas(t)
	apart := replicas(t)
	apart.Kubernetes.Pods[1].Owner = "stock"
	two := judge(apart)
	each := quotas(&two)
	if len(each) != 2 || each[0].Pods != nil || each[1].Pods != nil || each[0].Subject.Workload.Name == each[1].Subject.Workload.Name {
		t.Fatalf("of two workloads: %+v", each)
	}
	r := judge(o)
	found := quotas(&r)
	if len(found) != 1 {
		t.Fatalf("of one workload: %d findings", len(found))
	}
	f := found[0]
	var pods []string
	for _, p := range f.Pods {
		pods = append(pods, p.Pod)
	}
	if diff := cmp.Diff([]string{"cart-5d9-a", "cart-5d9-b"}, pods); diff != "" {
		t.Error(diff)
	}
	sum := costOf(&each[0]) + costOf(&each[1])
	if got := costOf(&f); got < sum-0.002 || got > sum+0.002 || got <= costOf(&each[0]) {
		t.Errorf("it costs %v s, those of two workloads %v and %v", got, costOf(&each[0]), costOf(&each[1]))
	}
	if low, high := min(each[0].Impact.Share, each[1].Impact.Share), max(each[0].Impact.Share, each[1].Impact.Share); f.Impact.Share < low || f.Impact.Share > high {
		t.Errorf("share %v, of the pods %v to %v", f.Impact.Share, low, high)
	}
	if f.Subject.Workload.Pod != pods[0] || !strings.HasPrefix(f.Impact.Text, "2 pods, most in cart-5d9-a: ") {
		t.Errorf("%+v: %s", f.Subject.Workload, f.Impact.Text)
	}
	if len(f.Fix.Changes) != 2 || f.Fix.Changes[0].Path == f.Fix.Changes[1].Path {
		t.Errorf("it is tried by %v", f.Fix.Changes)
	}
	if got := f.Fix.Commands[0].String(); got != "kubectl -n shop set resources deployment/cart -c app --limits=cpu=1.9" {
		t.Errorf("the limit of both: %s", got)
	}
	// A pod that the workload makes anew is the same finding, and that of another workload is not.
	if IdentityOf(&each[0]) == IdentityOf(&each[1]) {
		t.Error("two workloads are one")
	}
	other := f
	other.Subject.Workload.Pod, other.Subject.PID, other.Subject.NetNS, other.Subject.Path = "cart-5d9-c", 1, 2, "/kubepods/burstable/podzz/y"
	if IdentityOf(&f) != IdentityOf(&other) {
		t.Error("a pod that takes the place of another is another finding")
	}
	alone := other.Subject
	alone.Workload = observe.Workload{Namespace: "shop", Pod: "cart-5d9-c", Kind: "Pod", Name: "cart-5d9-c"}
	if replicated(alone) != alone {
		t.Error("a pod of its own stands for others")
	}
	text, err := json.Marshal(f)
	if err != nil || !strings.Contains(string(text), `"pods":[{"pod":"cart-5d9-a","pid":`) {
		t.Errorf("%v %s", err, text)
	}
	schema, err := jsonschema.NewCompiler().Compile("../../schema/report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	validate(t, schema, "replicas", r)
}
