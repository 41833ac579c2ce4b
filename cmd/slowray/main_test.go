package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slowray/slowray/internal/prove/journal"
	labcli "github.com/slowray/slowray/lab/cli"
)

// beSlowray makes the test binary slowray itself, for tests that have to kill it.
const beSlowray = "SLOWRAY_TEST_BE_SLOWRAY"

func TestMain(m *testing.M) {
	journal.WatchdogMain()
	if how := os.Getenv(beChild); how != "" {
		childMain(how)
	}
	if at := os.Getenv(beServer); at != "" {
		serveTest(at) // and does not come back
	}
	if at, dir, ok := strings.Cut(os.Getenv(beFleetAlerter), ","); ok {
		fleetAlerterMain(at, dir)
	}
	if os.Getenv(beSlowray) != "" {
		main() // and does not come back
	}
	testscript.Main(m, map[string]func(){"slowray": main, labProgram: labcli.Main})
}

// TestScripts runs testdata/script: the command line as a user types it.
func TestScripts(t *testing.T) {
	recorded, err := filepath.Abs("../../internal/diagnose/testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("RECORDED", recorded)
			return nil
		},
		Condition: func(c string) (bool, error) {
			if c == "root" {
				return os.Getuid() == 0, nil
			}
			return false, nil
		},
	})
}

// What was given when it was built goes before what Go knows.
func TestVersion(t *testing.T) {
	if version() == "" {
		t.Error("no version")
	}
	built = "1.2.3~test"
	defer func() { built = "" }()
	var out, errs bytes.Buffer
	if status := run([]string{"--version"}, &out, &errs); status != exitNothing || out.String() != "slowray 1.2.3~test\n" {
		t.Errorf("--version says %q %q, status %d", out.String(), errs.String(), status)
	}
}
