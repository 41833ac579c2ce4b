package page_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

func TestHostileNamesAreText(t *testing.T) {
	evil := `<img src=x onerror="pwned=1"><script>pwned=1</script>` + "\u202e\u0000\x1b[31m\"'" + strings.Repeat("W", 64<<10)
	// spoil puts the name in place of all texts that come from the host.
	var spoil func(v any) any
	spoil = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			out := map[string]any{}
			for k, x := range v {
				switch k {
				case "key", "id", "side", "kind", "unit", "start", "from", "to", "nodes", "edges", "flags", "role", "schema", "dimension", "better", "outcome", "verdict":
					if _, text := x.(string); text {
						out[k] = x
						continue
					}
				}
				out[k] = spoil(x)
			}
			return out
		case []any:
			out := make([]any, 0, min(len(v), 6))
			for _, x := range v[:min(len(v), 6)] {
				if text, is := x.(string); is && len(text) < 9 { // an id
					out = append(out, x)
				} else {
					out = append(out, spoil(x))
				}
			}
			return out
		case string:
			return evil
		}
		return v
	}
	m := &mock{instead: map[string]any{}}
	for _, path := range []string{"endpoints", "findings", "requests?limit=3", "waits", "stacks", "drops", "proofs", "difference?from=" + fmt.Sprint(lossFrom) + "&to=" + fmt.Sprint(lossTo), "request?id=" + shop[0].requests(lossFrom, lossTo)[0]["id"].(string)} {
		u, _ := url.Parse("/api/" + path)
		r := httpGet(u)
		b, _ := json.Marshal(tell(r))
		var v any
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		m.instead[u.Path] = spoil(v)
	}
	b := open(t, 390, 844, m)
	for _, view := range append(views, "request") {
		b.goTo("#/?id=x&view="+view, view)
		b.fits(view)
		if n := b.number(`document.querySelectorAll("img, main script").length`); n != 0 {
			t.Errorf("%s: a name became %d elements", view, n)
		}
		if eval[bool](b, `"pwned" in window`) {
			t.Errorf("%s: a name was run", view)
		}
		if n := b.number(`document.getElementById("main").textContent.length`); n > 400000 {
			t.Errorf("%s holds %d characters: names are not cut", view, n)
		}
		if !eval[bool](b, `document.getElementById("main").textContent.includes("<img src=x")`) {
			t.Errorf("%s does not show the name as text", view)
		}
		if eval[bool](b, `/[\u202e\u0000\u001b]/.test(document.getElementById("main").textContent)`) {
			t.Errorf("%s lets control characters through", view)
		}
	}
}

func TestTroubleSaysWhatToDo(t *testing.T) {
	m := &mock{instead: map[string]any{"/api/requests": 500}}
	b := open(t, 1200, 800, m)
	b.goTo("#/?view=requests", "requests")
	b.until(`!document.getElementById("notice").hidden`)
	b.says("#notice", "the store cannot be read: no space left on device", "Try again")
	m.tells(nil)
	b.do(chromedp.Click("#notice button"))
	b.until(`document.getElementById("notice").hidden && document.querySelector("table.requests")`)
	m.tells(map[string]any{"/api/endpoints": object{"endpoints": []object{}}, "/api/findings": object{"findings": []object{}}, "/api/series": object{}, "/api/requests": object{}, "/api/waits": object{"nodes": nil, "because": "no process was slow"},
		"/api/stacks": object{"frames": nil, "because": "no stacks were recorded in this time"}, "/api/drops": object{}, "/api/proofs": object{"proofs": nil}})
	for view, want := range map[string]string{"timeline": "send one, or choose a longer time", "findings": "No cause of slowness was found", "requests": "No request was seen in this time", "waits": "no process was slow", "flame": "no stacks were recorded in this time", "drops": "No packet was dropped", "proofs": "slowray prove CAUSE --apply"} {
		b.goTo("#/?view="+view, view)
		b.says("#main", want)
	}
}
