package packaging_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/slowray/slowray/packaging/kubernetes"
)

// TestManifests: every field is one that Kubernetes knows, and nothing asks for more
// rights than docs/kubernetes.md gives reasons for.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("helm/testdata/*.golden.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d golden files: %v", len(files), err)
	}
	all := map[string][]byte{"slowray.yaml": kubernetes.Manifests}
	for _, f := range files {
		if all[f], err = os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range all {
		t.Run(filepath.Base(name), func(t *testing.T) {
			kinds := map[string]int{}
			for _, object := range bytes.Split(text, []byte("---\n"))[1:] {
				kinds[lookAtObject(t, object)]++
			}
			if kinds["DaemonSet"] != 1 || kinds["ServiceAccount"] != 1 {
				t.Errorf("it has %v", kinds)
			}
		})
	}
}

// lookAtObject decodes an object strictly, and gives its kind.
func lookAtObject(t *testing.T, text []byte) string {
	t.Helper()
	var head struct{ Kind string }
	if err := yaml.Unmarshal(text, &head); err != nil {
		t.Fatal(err)
	}
	decode := func(into any) {
		t.Helper()
		if err := yaml.UnmarshalStrict(text, into); err != nil {
			t.Errorf("%s: %v", head.Kind, err)
		}
	}
	switch head.Kind {
	case "Namespace":
		decode(&corev1.Namespace{})
	case "Service":
		decode(&corev1.Service{})
	case "ServiceAccount":
		decode(&corev1.ServiceAccount{})
	case "ClusterRoleBinding":
		decode(&rbacv1.ClusterRoleBinding{})
	case "NetworkPolicy":
		var p networkingv1.NetworkPolicy
		decode(&p)
		for _, rule := range p.Spec.Ingress {
			if len(rule.From) == 0 {
				t.Error("everybody may reach the page")
			}
		}
	case "ClusterRole":
		var r rbacv1.ClusterRole
		decode(&r)
		for _, rule := range r.Rules {
			for _, verb := range rule.Verbs {
				if !slices.Contains([]string{"get", "list", "watch"}, verb) {
					t.Errorf("it may %s %v", verb, rule.Resources)
				}
			}
			for _, resource := range rule.Resources {
				if strings.Contains(resource, "/") || resource == "*" || resource == "secrets" || resource == "configmaps" {
					t.Errorf("it may read %s", resource)
				}
			}
		}
	case "DaemonSet":
		var d appsv1.DaemonSet
		decode(&d)
		spec := &d.Spec.Template.Spec
		if !spec.HostPID || spec.HostNetwork || spec.HostIPC || len(spec.Containers) != 1 {
			t.Errorf("the pod is %+v", spec)
		}
		s := spec.Containers[0].SecurityContext
		if *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || fmt.Sprint(s.Capabilities.Drop) != "[ALL]" {
			t.Errorf("the container is %+v", s)
		}
		for _, m := range spec.Containers[0].VolumeMounts {
			if hostPath(spec, m.Name) && !m.ReadOnly && m.Name != "history" {
				t.Errorf("it may write %s of the node", m.MountPath)
			}
		}
	case "ServiceMonitor": // k8s.io/api does not have it
	default:
		t.Errorf("kind %q", head.Kind)
	}
	return head.Kind
}

func hostPath(spec *corev1.PodSpec, volume string) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume && v.HostPath != nil })
}

// TestKubernetes: chart and manifests of a release name its image, and two are the same.
func TestKubernetes(t *testing.T) {
	dir, version := released, releasedVersion
	if released == "" {
		dir, version = t.TempDir(), "1.2.3-rc.1+x"
		pack := func(dir string) {
			run(t, []string{"VERSION=" + version, "SOURCE_DATE_EPOCH=1795340000"}, "./package", "kubernetes", dir)
		}
		again := t.TempDir()
		pack(dir)
		pack(again)
		run(t, nil, "diff", "-r", dir, again)
	}
	text, err := os.ReadFile(filepath.Join(dir, "slowray-"+version+"-kubernetes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if image := "image: \"localhost/slowray:" + strings.ReplaceAll(version, "+", "-") + "\"\n"; bytes.Count(text, []byte(image)) != 1 {
		t.Errorf("the manifests have no %s", image)
	}
	if label := "app.kubernetes.io/version: \"" + strings.ReplaceAll(version, "+", "_") + "\"\n"; bytes.Count(text, []byte(label)) < 5 || bytes.Count(text, []byte("app.kubernetes.io/version")) != bytes.Count(text, []byte(label)) {
		t.Errorf("not all have %s", label)
	}
	chart := run(t, nil, "tar", "-xOzf", filepath.Join(dir, "slowray-"+version+"-chart.tgz"), "slowray/Chart.yaml")
	if !strings.Contains(chart, "\nversion: "+version+"\n") || !strings.Contains(chart, "\nappVersion: "+version+"\n") {
		t.Errorf("the chart is\n%s", chart)
	}
}
