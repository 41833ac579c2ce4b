package container

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unicode"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
)

// FuzzEngine asks a container engine that answers whatever it likes.
func FuzzEngine(f *testing.F) {
	f.Add([]byte(`[{"Id":"`+full+`","Names":["/shop"],"Image":"shop:1","ImageID":"sha256:605c77e624ddb75e6110f997c58876baa13f8754486b461117934b24a9dc3a85","State":"exited"}]`),
		[]byte(`{"Id":"`+full+`","Name":"/shop","Path":"/opt/catalina.sh","RestartCount":2,"State":{"Status":"exited","FinishedAt":"2026-11-21T11:59:00Z"},"Config":{"Env":["CATALINA_OPTS=-Xmx2g"]},"HostConfig":{"Memory":-1,"CpuQuota":5,"CpuPeriod":-9}}`),
		[]byte(`{"Action":"oom","Actor":{"ID":"bbbb6e1f0c2b4d7e","Attributes":{"name":"gone","exitCode":"x"}},"time":1}{"Action":"destroy","Actor":{"ID":"bbbb6e1f0c2b4d7e"},"time":9223372036854775807}`))
	f.Add([]byte(`[{"Id":"\u001b[2J"},{"Id":"3c5a6e1f0c2b","State":"exited"},{`), []byte(`{"State":{"FinishedAt":"9999-12-31T23:59:59-23:59"},"HostConfig":{"NanoCpus":9223372036854775807}}`), []byte(`{"Actor":{"Attributes":null}`))
	answers := map[string]string{}
	r := fakeEngine(f, answers, 0)
	f.Fuzz(func(t *testing.T, list, inspected, events []byte) {
		answers["/containers/json"], answers["/containers/3c5a6e1f0c2b/json"], answers["/events"] = string(list), string(inspected), string(events)
		now := time.Now()
		budgettest.Within(t, len(list)+len(inspected)+len(events), budgettest.Cost{PerByte: 4096, Fixed: 8 << 20, CPU: budgettest.Usual.CPU}, func() {
			got, _ := r.Look(context.Background(), []Process{{7, "dockerd"}}, []string{"3c5a6e1f0c2b"}, now.Add(-Lately), now)
			check(t, got)
		})
	})
}

// FuzzStores reads what engines keep in files, whatever stands there.
func FuzzStores(f *testing.F) {
	const id = "abcdef0123456789"
	f.Add([]byte(`[{"id":"`+full+`","names":["k8s_web_shop"],"metadata":"{\"image-name\":\"web:1\",\"image-id\":\"77af4d6b9913e693\"}"},{"id":"","names":["x"]}]`),
		[]byte(`{"annotations":{"io.kubernetes.cri.container-name":"web","io.kubernetes.cri.sandbox-name":"shop-5d9c","io.kubernetes.cri.image-name":"web:2"}}`),
		[]byte(`{"State":{"Running":true},"Config":{"Image":"nginx:1.27"},"Image":"sha256:605c77e624dd","Name":"/front"}`))
	f.Add([]byte(`[{"id":"a","names":["\u009b"],"metadata":"["}]`), []byte(`{"annotations":null}`), []byte(`[]`))
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, store, bundle, docker []byte) {
		for name, text := range map[string][]byte{stores[0]: store, bundles + "/k8s.io/" + id + "/config.json": bundle, dockerDir + "/" + id + "/config.v2.json": docker} {
			name = filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		budgettest.Within(t, len(store)+len(bundle)+len(docker), budgettest.Cost{PerByte: 4096, Fixed: 4 << 20, CPU: budgettest.Usual.CPU}, func() {
			got, _ := Reader{Proc: root, Root: root}.Names(budget.New(context.Background(), Limits), nil, []string{id, full})
			check(t, got)
		})
	})
}

// check wants containers with names that a terminal shows as they are, in an Observation
// that can be written.
func check(t *testing.T, list []observe.Container) {
	t.Helper()
	for _, c := range list {
		for _, name := range []string{c.ID, c.Name, c.Image, c.ImageID, c.Engine, c.State} {
			for _, r := range name {
				if !unicode.IsPrint(r) {
					t.Errorf("%q is not printable", name)
				}
			}
		}
		if c.ID == "" {
			t.Errorf("a container without ID: %+v", c)
		}
		Find(list, c.Name)
	}
	if _, err := json.Marshal(list); err != nil {
		t.Error(err)
	}
}
