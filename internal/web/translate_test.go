package web

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestTranslated: sentences are translated, and names, figures and commands stay.
func TestTranslated(t *testing.T) {
	for _, c := range []struct{ english, want string }{
		{`{"cause":"network-loss","title":"The network loses packets","text":"20 of 40 accept() calls failed"}`, `{"cause":"network-loss","title":"网络丢包","text":"40 次 accept() 中 20 次失败"}`},
		{`{"title":"The network loses packets","label":"The network loses packets"}`, `{"title":"The network loses packets","label":"The network loses packets"}`}, // a name
		{`[{"cause":"x"},{"title":"The network loses packets"}]`, `[{"cause":"x"},{"title":"The network loses packets"}]`},
		{`{"evidence":["The network loses packets",{"fact":"a \"b\" {","value":"}"}]}`, `{"evidence":["网络丢包",{"fact":"a \"b\" {","value":"}"}]}`},
		{`{"losses":[{"what":"no sentence of it","count":3}]}`, `{"losses":[{"what":"no sentence of it","count":3}]}`},
	} {
		if got := string(translated([]byte(c.english), "zh")); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.english, got, c.want)
		}
		for _, name := range []string{"", "en"} {
			if got := string(translated([]byte(c.english), name)); got != c.english {
				t.Errorf("%q: %s", name, got)
			}
		}
	}
}

// TestTranslatedHostile: whatever hosts name, an answer is translated for a moment only.
func TestTranslatedHostile(t *testing.T) {
	var list []string
	for i := range 3000 {
		list = append(list, strings.Repeat(string(rune('a'+i%26))+" of "+string(rune('b'+i%25))+", ", 100+i%80))
	}
	doc, err := json.Marshal(map[string]any{"notes": list})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	got := translated(doc, "zh")
	if d := time.Since(begin); d > 10*translateTime {
		t.Errorf("took %s", d)
	}
	if !json.Valid(got) {
		t.Error("no JSON is left of it")
	}
	if chinese.bytes > mostTexts {
		t.Errorf("%d bytes are kept", chinese.bytes)
	}
}

func BenchmarkTranslated(b *testing.B) {
	doc := []byte(`{"findings":[` + strings.Repeat(`{"cause":"x","title":"The network loses packets","text":"a request on :8000 takes 224 ms on average, 220 ms of it waiting for accept()"},`, 99) + `{}]}`)
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		translated(doc, "zh")
	}
}
