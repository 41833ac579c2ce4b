package assistant

import (
	"encoding/json"
	"testing"
)

// FuzzFit: any JSON object is cut to JSON within the limit, or it is said how long it is.
func FuzzFit(f *testing.F) {
	f.Add([]byte(`{"findings":[{"cause":"a","evidence":[1,2,3]}],"verdict":"PROBLEM","x":null}`), 60)
	f.Add([]byte(`{"a":[[[[]]]],"b":{"c":{"d":["long long long"]}},"n":1e400}`), 40)
	f.Fuzz(func(t *testing.T, text []byte, limit int) {
		var whole map[string]json.RawMessage
		if json.Unmarshal(text, &whole) != nil || whole == nil {
			return
		}
		got, err := fit(&answer{value: whole, keep: map[string]int{"findings": 2}}, limit)
		if err == nil && (!json.Valid(got) || len(got) > limit) {
			t.Errorf("%d bytes of %d: %s", len(got), limit, got)
		}
	})
}
