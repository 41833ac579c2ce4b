package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
)

const full = "3c5a6e1f0c2b4d7e8f9a0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f6"

// fakeEngine answers as Docker 20.10 does, below a /proc of its own.
func fakeEngine(t testing.TB, answers map[string]string, wait time.Duration) Reader {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "proc/7/root/run")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/7/cmdline"), []byte("/usr/sbin/dockerd\x00-H\x00unix:///run/docker.sock\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/7/status"), fmt.Appendf(nil, "Name:\tdockerd\nUid:\t%d\t%d\t%[1]d\t%[1]d\n", os.Getuid(), os.Geteuid()), 0o600); err != nil {
		t.Fatal(err)
	}
	// The path of a socket is short, that of a test's directory is not.
	back, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chdir(dir); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", "docker.sock")
	if err := errors.Join(err, os.Chdir(back)); err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(wait)
		body, ok := answers[r.URL.Path]
		if r.Method != http.MethodGet || !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(body))
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return Reader{Proc: filepath.Join(root, "proc"), Root: root, HostBytes: 24 << 30}
}

func TestLookAtDocker(t *testing.T) {
	origin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r := fakeEngine(t, map[string]string{
		"/containers/json": `[{"Id":"` + full + `","Names":["/shop"],"Image":"shop:1","ImageID":"sha256:605c77e624ddb75e6110f997c58876baa13f8754486b461117934b24a9dc3a85","State":"exited"},
			{"Id":"ffff6e1f0c2b4d7e","Names":["/old\u0007"],"Image":"x","State":"exited"},{"Id":"aaaa6e1f0c2b4d7e","Names":["/web"],"State":"running"}]`,
		"/containers/3c5a6e1f0c2b/json": `{"Id":"` + full + `","Name":"/shop","Path":"/opt/catalina.sh","Args":["run"],"RestartCount":2,
			"State":{"Status":"exited","OOMKilled":true,"ExitCode":137,"FinishedAt":"2026-11-21T11:59:00Z"},
			"Config":{"Image":"shop:1","Env":["PASSWORD=x","CATALINA_OPTS=-Xmx2g -Dsecret=y"]},"HostConfig":{"Memory":536870912,"NanoCpus":100000000}}`,
		"/containers/ffff6e1f0c2b/json": `{"Id":"ffff","Name":"/old","State":{"Status":"exited","FinishedAt":"2026-11-21T08:00:00Z"}}`,
		"/events": `{"Type":"container","Action":"oom","Actor":{"ID":"bbbb6e1f0c2b4d7e","Attributes":{"image":"x:2","name":"gone"}},"time":1}
			{"Type":"container","Action":"die","Actor":{"ID":"bbbb6e1f0c2b4d7e","Attributes":{"image":"x:2","name":"gone","exitCode":"137"}},"time":` + "1795262340" + `}
			{"Type":"container","Action":"destroy","Actor":{"ID":"bbbb6e1f0c2b4d7e","Attributes":{"image":"x:2","name":"gone"}},"time":3}`,
	}, 0)
	got, errs := r.Look(context.Background(), []Process{{7, "dockerd"}}, []string{"3c5a6e1f0c2b"}, origin.Add(-15*time.Minute), origin)
	if len(errs) > 0 {
		t.Error(errs)
	}
	want := []observe.Container{
		{ID: "3c5a6e1f0c2b", Name: "shop", Image: "shop:1", ImageID: "605c77e624dd", Engine: "docker", State: "exited", OOMKilled: true, ExitCode: 137, Restarts: 2, EndedAt: -60,
			MemoryLimitBytes: 512 << 20, QuotaCPUs: 0.1, Options: []string{"-Xmx2g"}, Heap: &observe.Heap{Runtime: "jvm", MaxBytes: 2 << 30, From: "-Xmx2g"}},
		{ID: "bbbb6e1f0c2b", Name: "gone", Image: "x:2", Engine: "docker", State: "removed", OOMKilled: true, ExitCode: 137, EndedAt: time.Unix(1795262340, 0).Sub(origin).Seconds()},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if id := Find([]observe.Container{{ID: "a", Name: "x", State: "removed", EndedAt: -9}, {ID: "b", Name: "x", State: "exited", EndedAt: -3}, {ID: "c", Name: "x", State: "removed", EndedAt: -5}}, "x"); id != "b" {
		t.Errorf("the last x is %q", id)
	}
	if id := Find(got, "shop"); id != "3c5a6e1f0c2b" {
		t.Errorf("shop is %q", id)
	}
}

// An engine that hangs, as behind a log collector that does not read, costs
// little time and is reported.
func TestEngineThatHangs(t *testing.T) {
	r := fakeEngine(t, nil, 5*time.Second)
	began := time.Now()
	got, errs := r.Look(context.Background(), []Process{{7, "dockerd"}}, []string{"3c5a6e1f0c2b"}, began.Add(-time.Minute), began)
	if len(got) > 0 || len(errs) == 0 || time.Since(began) > 2*maxTime {
		t.Errorf("%v %v after %s", got, errs, time.Since(began))
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for _, body := range []string{"", "{", `[{"Id":5}]`, `"x"`, `[{"Id":""}]`, strings.Repeat("[", 10_000)} {
		r := fakeEngine(t, map[string]string{"/containers/json": body, "/events": body}, 0)
		if got, _ := r.Look(context.Background(), []Process{{7, "dockerd"}}, []string{"3c5a6e1f0c2b"}, time.Now(), time.Now()); len(got) > 0 {
			t.Errorf("%.20q: %v", body, got)
		}
	}
}

func TestStoresAndBundles(t *testing.T) {
	root := t.TempDir()
	const docker = "d0c5a6e1f0c2b4d7e8f9a0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f"
	for path, text := range map[string]string{
		stores[0]: `[{"id":"` + full + `","names":["k8s_web_shop"],"metadata":"{\"image-name\":\"web:1\",\"image-id\":\"77af4d6b9913e693e8d0b4b294fa62ade6054e6b2f1ffb617ac955dd63fb0182\"}"},{"id":"","names":["x"]}]`,
		"run/containerd/io.containerd.runtime.v2.task/k8s.io/abcdef012345678/config.json": `{"annotations":{"io.kubernetes.cri.container-name":"web","io.kubernetes.cri.sandbox-name":"shop-5d9c","io.kubernetes.cri.image-name":"web:2"}}`,
		// Docker 20.10, much shortened.
		dockerDir + "/" + docker + "/config.v2.json": `{"StreamConfig":{},"State":{"Running":true,"Paused":false,"OOMKilled":false,"Pid":4711,"ExitCode":0,"StartedAt":"2026-11-21T11:00:00Z"},` +
			`"ID":"` + docker + `","Created":"2026-11-21T11:00:00Z","Path":"nginx","Args":["-g","daemon off;"],"Config":{"Hostname":"d0c","Env":["PASSWORD=x"],"Cmd":["nginx"],"Image":"nginx:1.27","Labels":{}},` +
			`"Image":"sha256:605c77e624ddb75e6110f997c58876baa13f8754486b461117934b24a9dc3a85","NetworkSettings":{},"Name":"/front","Driver":"overlay2","RestartCount":0}`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, errs := Reader{Proc: root, Root: root}.Names(budget.New(context.Background(), Limits), nil, []string{"abcdef012345", "../../../etc", "3c5a6e1f0c2b", docker[:12]})
	want := []observe.Container{{ID: "3c5a6e1f0c2b", Name: "k8s_web_shop", Image: "web:1", ImageID: "77af4d6b9913", Engine: "containers-storage"},
		{ID: docker[:12], Name: "front", Image: "nginx:1.27", ImageID: "605c77e624dd", Engine: "docker", State: "running"},
		{ID: "abcdef012345", Name: "shop-5d9c/web", Image: "web:2", Engine: "containerd", State: "running"}}
	if d := cmp.Diff(want, got); d != "" || len(errs) > 0 {
		t.Error(d, errs)
	}
	if Find(got, "web") != "abcdef012345" || Find(got, "nothing") != "nothing" {
		t.Error(Find(got, "web"), Find(got, "nothing"))
	}
}

func TestEngineOf(t *testing.T) {
	for _, c := range []struct {
		comm string
		args []string
		want string
	}{
		{"dockerd", []string{"dockerd", "--host=unix:///a", "-H", "tcp://0.0.0.0:1"}, "/a"},
		{"dockerd", []string{"dockerd", "-H", "fd://"}, "/run/docker.sock"},
		{"dockerd", []string{"dockerd", "-H"}, "/run/docker.sock"},
		{"podman", []string{"podman", "system", "service", "unix:///b"}, "/b"},
		{"podman", []string{"podman", "run", "x"}, ""},
		{"nginx", nil, ""},
	} {
		_, sockets := engineOf(c.comm, c.args)
		if got := strings.Join(sockets, " "); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s %q: %q", c.comm, c.args, got)
		}
	}
}
