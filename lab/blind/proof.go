package blind

import (
	"encoding/json"
	"fmt"
	"os"
)

// Proofs reads what slowray prove --json wrote, one document a file: how sure a finding
// was, and whether the experiment proved it. A proof is a label as a draw is, of a host
// that nobody set up; one that came to no verdict says nothing.
func Proofs(files ...string) ([]Sample, error) {
	var list []Sample
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var d struct {
			Schema  string `json:"schema"`
			Finding *struct {
				Confidence float64 `json:"confidence"`
			} `json:"finding"`
			Result *struct {
				Verdict string `json:"verdict"`
			} `json:"result"`
		}
		if err := json.Unmarshal(data, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if d.Schema != "slowray.prove/1" {
			return nil, fmt.Errorf("%s: schema %q: not a proof", name, d.Schema)
		}
		if d.Finding == nil || d.Result == nil {
			continue
		}
		switch d.Result.Verdict {
		case "proved":
			list = append(list, Sample{d.Finding.Confidence, true})
		case "no effect":
			list = append(list, Sample{d.Finding.Confidence, false})
		}
	}
	return list, nil
}
