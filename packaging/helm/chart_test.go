// Package helm_test renders the chart as helm does. With -update it writes what is
// rendered: the golden files, and ../kubernetes/slowray.yaml for those without Helm.
package helm_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/releaseutil"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what the chart renders")

const (
	chartDir  = "slowray"
	manifests = "../kubernetes/slowray.yaml"
	namespace = "slowray"
)

// head is above what is rendered for those without Helm.
const head = `# Rendered from packaging/helm/slowray by make manifests: edit the chart, not this.
# Import the image on every node, or push it to a registry of yours and name it here.
#
#   kubectl apply -f slowray.yaml
`

// render is helm template: objects in the order in which Helm installs them.
func render(name string, values map[string]any) (string, error) {
	files, err := renderFiles(name, namespace, values)
	if err != nil {
		return "", err
	}
	delete(files, notes)
	_, objects, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, o := range objects {
		fmt.Fprintf(&b, "---\n%s\n", strings.TrimSpace(o.Content))
	}
	return b.String(), nil
}

// notes are what Helm prints after it has installed.
const notes = "slowray/templates/NOTES.txt"

// renderFiles renders each template by itself.
func renderFiles(name, namespace string, values map[string]any) (map[string]string, error) {
	c, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	options := chartutil.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// TestNotes: what is printed can be pasted.
func TestNotes(t *testing.T) {
	for namespace, want := range map[string]string{
		"slowray": "  kubectl slowray page node/NODE     #", "tools": "deploy/NAME --slowray-namespace tools\n  kubectl slowray page node/NODE --slowray-namespace tools ",
	} {
		files, err := renderFiles("slowray", namespace, nil)
		if err != nil || !strings.Contains(files[notes], want) || !strings.Contains(files[notes], "exec -n "+namespace+" ds/slowray -- slowray why") {
			t.Errorf("%v\n%s", err, files[notes])
		}
	}
}

// compare compares with a file, or writes it.
func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what the chart renders (make manifests writes it) (-file +chart):\n%s", path, diff)
	}
}

// TestManifests: those without Helm get what the chart renders.
func TestManifests(t *testing.T) {
	got, err := render("slowray", map[string]any{"namespace": map[string]any{"create": true}})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, manifests, strings.ReplaceAll(head+got, "managed-by: \"Helm\"", "managed-by: \"kubectl\""))
}

// TestTemplates: what the values in testdata/NAME.values.yaml render is
// testdata/NAME.golden.yaml.
func TestTemplates(t *testing.T) {
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files of values: %v", len(files), err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".values.yaml")
		t.Run(name, func(t *testing.T) {
			got, err := render(name, valuesOf(t, path))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, filepath.Join("testdata", name+".golden.yaml"), got)
		})
	}
}

func valuesOf(t *testing.T, path string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func TestLint(t *testing.T) {
	result := lint.All(chartDir, nil, namespace, true)
	for _, m := range result.Messages {
		if !strings.Contains(m.Err.Error(), "icon is recommended") {
			t.Errorf("%v: %s: %v", m.Severity, m.Path, m.Err)
		}
	}
	// It must be able to fail.
	if bad := lint.All(chartDir, map[string]any{"image": "x"}, namespace, true); bad.HighestSeverity < 3 {
		t.Error("lint takes wrong values")
	}
}

// TestRefuses: wrong values are refused, by their name.
func TestRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"image: {repository: ''}":                                        "repository",
		"image: {repository: 'UPPER/x'}":                                 "repository",
		"image: {tag: 'a b'}":                                            "tag",
		"image: {pullpolicy: Always}":                                    "pullpolicy",
		"history: {hostPath: var/lib}":                                   "hostPath",
		"history: {hostPath: /}":                                         "hostPath",
		"history: {maxSize: 2GiB}":                                       "maxSize",
		"history: {maxAge: 7 days}":                                      "maxAge",
		"page: {listen: 'unix:/run/x'}":                                  "listen",
		"page: {listen: '0.0.0.0'}":                                      "listen",
		"extraArgs: [record]":                                            "extraArgs",
		"extraCapabilities: [CAP_SYS_RESOURCE]":                          "extraCapabilities",
		"extraCapabilities: [ALL]":                                       "extraCapabilities",
		"runtimeDirs: [run]":                                             "runtimeDirs",
		"tolerations: {}":                                                "tolerations",
		"hostNetwork: true":                                              "hostNetwork",
		"serviceMonitor: {enabled: true}":                                "page.listen",
		"{serviceMonitor: {enabled: true}, page: {listen: '0.0.0.0:1'}}": "page.tokenSecret",
		"{serviceMonitor: {enabled: true}, page: {listen: '0.0.0.0:1', tokenSecret: {name: x, key: token}}}":   "networkPolicy.from",
		"{serviceMonitor: {enabled: true}, page: {listen: '127.1.2.3:1', tokenSecret: {name: x, key: token}}}": "page.listen",
	} {
		values := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &values); err != nil {
			t.Fatal(err)
		}
		if _, err := render("slowray", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error about %s: %v", text, want, err)
		}
	}
}

// TestSchemaKnowsValues: each value of values.yaml is in the schema and the other way
// round, so that no misspelt one is taken.
func TestSchemaKnowsValues(t *testing.T) {
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	var schema struct{ Properties map[string]any }
	if err := yaml.Unmarshal(c.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	delete(schema.Properties, "global")
	if got, want := keys(schema.Properties), keys(c.Values); !slices.Equal(got, want) {
		t.Errorf("the schema has %v, values.yaml %v", got, want)
	}
	if c.Metadata.Type != "application" || !hasFile(c, ".helmignore") {
		t.Error("an incomplete chart")
	}
}

func keys(m map[string]any) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func hasFile(c *chart.Chart, name string) bool {
	return slices.ContainsFunc(c.Raw, func(f *chart.File) bool { return f.Name == name })
}
