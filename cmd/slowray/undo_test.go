package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every command but undo says that changes of a killed run are still there.
func TestNoticeOfKilledRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	if err := os.Chmod(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	entry := `{"schema":"slowray.journal/1","id":"1","boot_id":"` + strings.TrimSpace(string(boot)) + `","state":"applied",
		"changes":[{"change":{"kind":"no-such-kind","text":"somaxconn 128 → 4096"},"was":{"was":"128"},"made":"yes"}]}`
	if err := os.WriteFile(filepath.Join(dir, "1.json"), []byte(entry), 0o600); err != nil {
		t.Fatal(err)
	}
	defer func(old string) { noticeDir = old }(noticeDir)
	noticeDir = dir
	const notice = "slowray: changes of a run that was killed are still there (somaxconn 128 → 4096): put them back with: slowray undo\n"
	for command, want := range map[string]string{"causes": notice, "undo --list --state " + dir: ""} {
		var out, err bytes.Buffer
		if status := run(strings.Fields(command), &out, &err); status != exitNothing || err.String() != want {
			t.Errorf("%s: status %d, %q, want %q", command, status, err.String(), want)
		}
	}
	var out, stderr bytes.Buffer
	if status := run([]string{"undo", "--state", dir}, &out, &stderr); status != exitFindings || stderr.Len() > 0 ||
		!strings.Contains(out.String(), "1  somaxconn 128 → 4096: not put back: changes of kind \"no-such-kind\" cannot be made by this version\n") {
		t.Errorf("undo: status %d, %q, %q", status, out.String(), stderr.String())
	}
}
