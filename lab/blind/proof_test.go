package blind

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestProofs(t *testing.T) {
	var files []string
	for name, text := range map[string]string{
		"1": `{"schema":"slowray.prove/1","finding":{"confidence":0.9},"result":{"verdict":"proved"}}`,
		"2": `{"schema":"slowray.prove/1","finding":{"confidence":0.4},"result":{"verdict":"no effect"}}`,
		"3": `{"schema":"slowray.prove/1","finding":{"confidence":0.4},"result":{"verdict":"inconclusive"}}`,
		"4": `{"schema":"slowray.prove/1","result":{"verdict":"proved"}}`,
	} {
		files = append(files, filepath.Join(t.TempDir(), name))
		if err := os.WriteFile(files[len(files)-1], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(files, func(a, b string) int { return int(filepath.Base(a)[0]) - int(filepath.Base(b)[0]) })
	got, err := Proofs(files...)
	if want := []Sample{{0.9, true}, {0.4, false}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	other := filepath.Join(t.TempDir(), "report")
	if err := os.WriteFile(other, []byte(`{"schema":"slowray.report/1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Proofs(other); err == nil {
		t.Error("a report is taken for a proof")
	}
}
