package owner

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzOf: whatever a pod is named and labelled, it has an owner, and no name is made up.
func FuzzOf(f *testing.F) {
	f.Add("cart-7d9f8b6c5d-x2x4z", "ReplicaSet", "cart-7d9f8b6c5d", "pod-template-hash", "7d9f8b6c5d", int64(0))
	f.Add("cart-7d9f8b6c5d-x2x4z", "ReplicaSet", "cart-7d9f8b6c5d", "rollouts-pod-template-hash", "7d9f8b6c5d", int64(0))
	f.Add("backup-29123456-abcde", "Job", "backup-29123456", "job-name", "backup-29123456", int64(60*29123456))
	f.Add("db-0", "StatefulSet", "db", LabelStatefulPod, "db-0", int64(0))
	f.Add("-", "Job", "-1", "job-name", "--", int64(-1))
	f.Fuzz(func(t *testing.T, pod, kind, name, label, value string, created int64) {
		labels, at, yes := map[string]string{label: value}, time.Unix(created%(1<<33), 0), true
		k, n := Of(pod, labels, []metav1.OwnerReference{{Kind: kind, Name: name, Controller: &yes}}, at)
		if !strings.HasPrefix(name, n) && n != pod || k == "" && kind != "" {
			t.Errorf("%s %q is of %s %q", pod, labels, k, n)
		}
		if k, n = ByLabels(pod, labels, at); k == "" || !strings.HasPrefix(pod, n) && !strings.HasPrefix(value, n) {
			t.Errorf("by its labels %s %q is of %s %q", pod, labels, k, n)
		}
		if k, n = Of(pod, labels, nil, at); k != "Pod" || n != pod {
			t.Errorf("without a controller %s is of %s %q", pod, k, n)
		}
	})
}
