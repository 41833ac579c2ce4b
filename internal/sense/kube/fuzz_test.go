package kube

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slowray/slowray/internal/sense/workload"
)

// FuzzPods: whatever a kubelet lists, what is told of it is bounded and can be printed,
// and the index takes it.
func FuzzPods(f *testing.F) {
	b, err := json.Marshal(corev1.PodList{Items: []corev1.Pod{cartPod(), *podAt("uid-exp", "exporter", "192.168.0.9", true)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"items":[{"metadata":{"uid":"1","name":"a","creationTimestamp":"0001-01-01T00:00:00Z"},"status":{"podIP":"::"}}]}`))
	f.Add([]byte(`{"items":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newState(newIndex(), "node-7")
		d := json.NewDecoder(bytes.NewReader(data))
		_ = items(d, func() error {
			var p corev1.Pod
			if err := d.Decode(&p); err != nil {
				return err
			}
			s.podSaid(workload.Kubelet, podOf(&p), time.Now(), time.Time{})
			return nil
		})
		for _, p := range s.window(Query{Start: time.Now()}).Pods {
			for _, name := range []string{p.Namespace, p.Name, p.Kind, p.Owner, p.Phase} {
				if len(name) > maxName || strings.ContainsAny(name, "\n\x1b") {
					t.Errorf("%q", name)
				}
			}
			if len(p.Containers) > maxContainers || len(p.IPs) > maxAddrs || len(p.Volumes) > maxVolumes {
				t.Errorf("%d containers, %d addresses, %d volumes", len(p.Containers), len(p.IPs), len(p.Volumes))
			}
		}
		s.sweep(time.Now().Add(time.Hour))
	})
}
