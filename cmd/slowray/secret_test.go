package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// TestSecretsAreNotSaved: what a program was given on its command line to keep to
// itself is neither in a saved observation nor in a report; the rest is.
func TestSecretsAreNotSaved(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to watch a host: that passwords on command lines are not saved is NOT tested end to end")
	}
	const secret = "zQ7planted7Qz"
	app := exec.Command("/bin/sh", "-c", "read x", "app", "--password="+secret, "--workers", "4", "--token", secret, "redis://u:"+secret+"@h:6379/",
		"--Api-Key="+secret, "-Ddb.credential="+secret, "Authorization: Bearer "+secret, "MYSQL_PWD="+secret, "mysql -p"+secret+" db", "-Xmx4g")
	stdin, err := app.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		_ = app.Wait() // read fails at the end of its input
	}()
	saved := filepath.Join(t.TempDir(), "saved")
	var out, wrong bytes.Buffer
	if status := run([]string{"why", "--for", "1s", "--all", "--json", "--save", saved}, &out, &wrong); status != 0 && status != exitFindings {
		t.Fatalf("status %d: %s", status, wrong.String())
	}
	o, err := observe.Load(saved)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	for what, in := range map[string]string{"the saved observation": string(text), "the report": out.String(), "standard error": wrong.String()} {
		if i := strings.Index(in, secret); i >= 0 {
			t.Errorf("a secret is in %s: …%s…", what, in[max(0, i-200):min(len(in), i+50)])
		}
	}
	i := slices.IndexFunc(o.Processes, func(p observe.Process) bool { return p.PID == app.Process.Pid })
	const want = "/bin/sh -c read x app --password=*** --workers 4 --token *** redis://u:***@h:6379/ --Api-Key=*** -Ddb.credential=*** Authorization: Bearer *** MYSQL_PWD=*** mysql -p*** db -Xmx4g"
	if i < 0 || o.Processes[i].Cmdline != want {
		t.Errorf("process %d of %d:\n%q, want\n%q", i, len(o.Processes), o.Processes[max(i, 0)].Cmdline, want)
	}
}
