package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/observe/observetest"
)

// TestErrorsAreOneLine: what is wrong is said on one line that drives no
// terminal, whatever was given.
func TestErrorsAreOneLine(t *testing.T) {
	for _, bad := range []string{"\x1b]0;owned\x07\x1b[2J", "a\nb\r\nc", "\u202egnp.exe", "\xff\xfe", strings.Repeat("A", 64<<10), "<script>"} {
		for _, args := range [][]string{
			{bad}, {"causes", bad}, {"replay", bad}, {"compare", bad, bad}, {"prove", bad}, {"--for", bad}, {"completion", bad}, {"lab", "run", bad},
			{"why", "--unit", bad, "--for", bad}, {"record", "--listen", bad, "--window", bad},
		} {
			var out, wrong bytes.Buffer
			if code := run(args, &out, &wrong); code != exitFailed {
				t.Errorf("%.60q: exit status %d", args, code)
			}
			text := wrong.String()
			if !strings.HasPrefix(text, "slowray: ") || strings.Count(text, "\n") != 1 || len(text) > 10_000 || out.Len() > 0 {
				t.Errorf("%.60q: %d bytes of errors, %d of output: %.200q", args, len(text), out.Len(), text)
			}
			for _, c := range strings.TrimSuffix(text, "\n") {
				if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) {
					t.Errorf("%.60q: character %U in %.200q", args, c, text)
					break
				}
			}
		}
	}
}

// toldByTheHost are the fields of an Observation whose text the watched host is free
// to choose.
var toldByTheHost = map[string]bool{
	"Comm": true, "ParentComm": true, "Container": true, "ContainerName": true, "Unit": true, "Image": true, "Cgroup": true, "Path": true, "File": true,
	"Text": true, "Example": true, "Label": true, "Statement": true, "Interface": true, "Location": true, "PeerName": true, "Remote": true, "Object": true,
	"Script": true, "Root": true, "Config": true, "Why": true, "What": true, "Because": true, "Subject": true, "Kernel": true, "Addr": true, "Notes": true,
}

// taint adds evil to all that the host chooses, so that what was equal still is.
func taint(v reflect.Value, field, evil string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			taint(v.Elem(), field, evil)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				taint(v.Field(i), f.Name, evil)
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			taint(v.Index(i), field, evil)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			taint(value, field, evil)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		if toldByTheHost[field] && v.CanSet() {
			v.SetString(v.String() + evil)
		}
	}
}

// TestHostileWindows: saved windows of hosts that give their processes, files,
// containers and log lines the worst of names are judged and compared, and
// nothing that is printed drives a terminal or floods it.
func TestHostileWindows(t *testing.T) {
	files, err := filepath.Glob("../../internal/diagnose/testdata/*.slowray")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d recorded windows: %v", len(files), err)
	}
	files = files[:3]
	if testing.Short() {
		files = files[:2] // to compare takes two
	}
	for i, evil := range []string{
		"\x1b]0;owned\x07\x1b[2J\u009b31m\u202e\u2028\r\n\x00", "<script>alert(1)</script>\"'&", strings.Repeat("A", 64<<10), strings.Repeat("é\u202e ", 10<<10),
	} {
		seen := false
		before := ""
		for _, file := range files {
			o, err := observe.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			taint(reflect.ValueOf(o), "", evil)
			o.Host.Name += evil
			hurt := filepath.Join(t.TempDir(), fmt.Sprint(i, filepath.Base(file)))
			observetest.Save(t, hurt, o)
			commands := [][]string{{"replay", hurt}, {"replay", "--all", hurt}, {"replay", "--json", hurt}}
			if before != "" {
				commands = append(commands, []string{"compare", before, hurt}, []string{"compare", "--json", before, hurt})
			}
			before = hurt
			for _, args := range commands {
				var out, wrong bytes.Buffer
				if code := run(args, &out, &wrong); code == exitFailed || wrong.Len() > 0 {
					t.Fatalf("%s %s: exit status %d: %s", args[0], filepath.Base(file), code, wrong.String())
				}
				asJSON := args[1] == "--json"
				var v any
				if asJSON && json.Unmarshal(out.Bytes(), &v) != nil {
					t.Errorf("%v: not JSON", args)
				}
				seen = seen || strings.Contains(out.String(), "\uFFFD") || strings.Contains(out.String(), "AAAA") || strings.Contains(out.String(), "<script")
				for line := range strings.Lines(out.String()) {
					if !asJSON && len(line) > 40_000 {
						t.Errorf("%v: a line of %d bytes", args[:2], len(line))
					}
					for at, c := range strings.TrimSuffix(line, "\n") {
						if unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp) {
							t.Fatalf("%v: character %U in %q", args, c, line[max(0, at-30):min(len(line), at+30)])
						}
					}
				}
			}
		}
		if !seen {
			t.Errorf("text %d is nowhere to be seen: the test shows nothing", i)
		}
	}
}
