package store

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// Every column is reported in docs/history-columns.md.
func TestColumnsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/history-columns.md")
	must(t, err)
	sections := strings.Split(string(text), "\n## ")
	for prefix, row := range map[string]reflect.Type{
		"requests": reflect.TypeFor[requestRow](), "seconds": reflect.TypeFor[secondRow](), "findings": reflect.TypeFor[findingRow](),
	} {
		section := ""
		for _, s := range sections {
			if strings.HasPrefix(s, prefix) {
				section = s
			}
		}
		for _, f := range rowFields[row] {
			name, _, _ := strings.Cut(f.path, ".")
			if prefix == "seconds" && strings.HasPrefix(name, "ledger_") {
				continue // told once, with the requests
			}
			if !strings.Contains(section, "`"+name+"`") {
				t.Errorf("docs/history-columns.md does not tell of %s.%s", prefix, name)
			}
		}
	}
}
