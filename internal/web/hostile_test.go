package web

import (
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
	"github.com/slowray/slowray/internal/store"
)

// hostileNames are texts that somebody may have chosen who can send a request or
// start a process.
var hostileNames = []string{
	"\x1b]0;owned\x07\x1b[2J", "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "\"><svg onload=alert(1)>", "]]><x>", "&amp;&lt;",
	"=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(1)", "\t=1", "\r\nSet-Cookie: a=b", "a,b\";c\nd", "\u202egnp.exe", "\u200b\u2066x\u2069", "\xff\xfe\x80", "\x00nul",
	"%00%0a", "{{.}}", "${jndi:ldap://x}", "' OR 1=1 --", strings.Repeat("A", 64<<10), strings.Repeat("\x1b[31m", 13<<10), strings.Repeat("é", 32<<10), "\u2028\u2029", "|pipe|in|key", "100%",
}

// hostile is a history in which every name is one of them.
func hostile(t *testing.T, name string) *memory {
	m := &memory{}
	for i := range 40 {
		m.add(noon.Add(time.Duration(i)*time.Second), func(r *store.Request) {
			r.Label = name
			r.Process.Comm, r.Process.Cgroup, r.Process.Container, r.Process.ContainerName, r.Process.Unit = name, name, name, name, name
			if i >= 30 {
				r.Ledger[observe.Server] *= 50
			}
		})
	}
	frame := observe.Frame{Name: name, Kind: observe.FrameKind(name), Module: name, File: name}
	for i := range 2 {
		m.window(t, noon.Add(time.Duration(i)*30*time.Second), 30, func(o *observe.Observation) {
			o.Profile = &observe.Profile{Hz: 100, Samples: 1000, Processes: []observe.ProfileProcess{{PID: 4711, Comm: name, Samples: uint64(100 + 900*i),
				Functions: []observe.ProfileFunction{{Frame: frame, Self: 90, Total: 90, Own: uint64(90 + 800*i)}}}}}
			hop := observe.WaitHop{Process: observe.WaitProcess{PID: 4711, Comm: name, ContainerName: name}, TID: 4711, Comm: name, Stack: []string{name}, Kind: observe.WaitDisk,
				Object: name, Detail: name, Wchan: name, Why: name}
			o.Waits = &observe.WaitGraph{EveryNS: 1e8, Unseen: []string{name}, Shares: []observe.WaitShare{{PID: 4711, ThreadNS: 5e9, LastNS: 20e9,
				Chain: observe.WaitChain{Hops: []observe.WaitHop{hop}, End: observe.EndDisk, Path: name, Text: name, BackTo: -1}}}}
			o.Losses = []observe.Loss{{What: name, Count: 1}}
		})
	}
	m.found = append(m.found, store.Finding{Start: noon, End: noon.Add(30 * time.Second), Finding: cause.Finding{Cause: "log-flooding", Title: name, Role: cause.RoleCause,
		Subject: cause.Subject{Kind: "process", Comm: name, Path: name, Rule: name}, Impact: cause.Impact{Text: name, Of: name},
		Evidence: []cause.Evidence{{Fact: name, Value: name, Source: name}}, Fix: cause.Fix{Text: name, Commands: []shell.Command{shell.Line("x %s   # %s", shell.Word(name), name)}}}})
	return m
}

// unfit finds a character in a text that must not be shown; "" when there is none.
func unfit(text string) string {
	for i, r := range text {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return fmt.Sprintf("a byte that is no UTF-8 at %d", i)
			}
		}
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return fmt.Sprintf("%U at %d", r, i)
		}
	}
	return ""
}

// texts calls f for every text in a JSON value, keys of objects too.
func texts(v any, f func(string)) {
	switch v := v.(type) {
	case string:
		f(v)
	case []any:
		for _, x := range v {
			texts(x, f)
		}
	case map[string]any:
		for k, x := range v {
			f(k)
			texts(x, f)
		}
	}
}

func TestHostileNamesInJSON(t *testing.T) {
	for i, name := range hostileNames {
		m := hostile(t, name)
		h := serve(t, m, Options{})
		shown := 0
		for _, path := range []string{"status", "endpoints", "series", "findings", "report", "requests", "difference", "histogram", "waits", "stacks", "drops", "proofs",
			"request?id=" + url.QueryEscape(requestID(&m.reqs[35]))} {
			sep := "?"
			if strings.Contains(path, "?") {
				sep = "&"
			}
			w := get(t, h, "/api/"+path+sep+"from="+unixText(noon.Add(30*time.Second))+"&to="+unixText(noon.Add(time.Minute)))
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != typeJSON {
				t.Errorf("name %d: %s: %d %v", i, path, w.Code, w.Header())
				continue
			}
			body := w.Body.Bytes()
			if bad := unfit(string(body)); bad != "" {
				t.Errorf("name %d: %s: %s as it is sent", i, path, bad)
			}
			var v any
			if err := json.Unmarshal(body, &v); err != nil {
				t.Errorf("name %d: %s: %v", i, path, err)
				continue
			}
			texts(v, func(text string) {
				shown++
				if bad := unfit(text); bad != "" {
					t.Errorf("name %d: %s: %s", i, path, bad)
				}
				if len(text) > maxText+len("…") {
					t.Errorf("name %d: %s: a text of %d bytes", i, path, len(text))
				}
			})
			if len(body) > 1<<20 {
				t.Errorf("name %d: %s: %d bytes", i, path, len(body))
			}
		}
		if shown < 100 {
			t.Errorf("name %d: only %d texts", i, shown)
		}
	}
}

// The key of an endpoint with any name finds it again.
func TestHostileNamesInKeys(t *testing.T) {
	for i, name := range hostileNames {
		if len(name) > maxKey/4 { // the kernel keeps 15 bytes of a name
			continue
		}
		h := serve(t, hostile(t, name), Options{})
		type endpoints struct{ Endpoints []struct{ Key string } }
		a := ask[endpoints](t, h, "/api/endpoints?from="+unixText(noon))
		if len(a.Endpoints) != 1 {
			t.Fatalf("name %d: %+v", i, a)
		}
		again := ask[endpoints](t, h, "/api/endpoints?from="+unixText(noon)+"&ep="+url.QueryEscape(a.Endpoints[0].Key))
		if len(again.Endpoints) != 1 || again.Endpoints[0] != a.Endpoints[0] {
			t.Errorf("name %d: %q finds %+v", i, a.Endpoints[0].Key, again)
		}
	}
}

func TestHostileNamesInCSV(t *testing.T) {
	for i, name := range hostileNames {
		h := serve(t, hostile(t, name), Options{})
		for _, path := range []string{"endpoints", "series", "requests"} {
			w := get(t, h, "/api/"+path+"?format=csv&from="+unixText(noon))
			if w.Header().Get("Content-Type") != typeCSV || !strings.HasPrefix(w.Header().Get("Content-Disposition"), "attachment") {
				t.Errorf("name %d: %s: %v", i, path, w.Header())
			}
			rows, err := csv.NewReader(w.Body).ReadAll()
			if err != nil || len(rows) < 2 {
				t.Fatalf("name %d: %s: %d rows, %v", i, path, len(rows), err)
			}
			for _, row := range rows {
				if len(row) != len(rows[0]) {
					t.Errorf("name %d: %s: %d cells of %d", i, path, len(row), len(rows[0]))
				}
				for _, c := range row {
					if c != "" && strings.ContainsRune("=+-@|\t\r", rune(c[0])) {
						t.Errorf("name %d: %s: a formula: %.40q", i, path, c)
					}
					if bad := unfit(c); bad != "" || len(c) > maxText+10 {
						t.Errorf("name %d: %s: %s in a cell of %d bytes", i, path, bad, len(c))
					}
				}
			}
		}
	}
}

func TestHostileNamesInPictures(t *testing.T) {
	for i, name := range hostileNames {
		h := serve(t, hostile(t, name), Options{})
		picture := get(t, h, "/flame.svg?from="+unixText(noon))
		if picture.Code != http.StatusOK {
			t.Fatalf("name %d: %d %s", i, picture.Code, picture.Body)
		}
		if csp := picture.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "script-src") {
			t.Errorf("name %d: %q lets scripts run", i, csp)
		}
		d := xml.NewDecoder(strings.NewReader(picture.Body.String()))
		for {
			tok, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("name %d: %v", i, err)
			}
			if e, ok := tok.(xml.StartElement); ok {
				switch e.Name.Local {
				case "svg", "g", "rect", "text", "title", "style", "tspan":
				default:
					t.Errorf("name %d: element %s", i, e.Name.Local)
				}
				for _, a := range e.Attr {
					if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" {
						t.Errorf("name %d: attribute %s", i, a.Name.Local)
					}
				}
			}
		}
		if page := get(t, h, "/flame?from="+unixText(noon)).Body.String(); strings.Contains(page, "<script>alert") || strings.Contains(page, "<img src=x") {
			t.Errorf("name %d gets out of its place in the page", i)
		}
	}
}

// Errors quote what was asked for.
func TestHostileQueries(t *testing.T) {
	h := serve(t, incident(), Options{})
	for i, name := range hostileNames {
		for _, parameter := range []string{"from", "to", "ep", "points", "limit", "slow_us", "status", "sort", "side", "kind", "format", "id", "value"} {
			path := "/api/requests"
			if parameter == "id" {
				path = "/api/request"
			}
			w := get(t, h, path+"?"+parameter+"="+url.QueryEscape(name))
			if w.Code != http.StatusBadRequest || w.Header().Get("Content-Type") != typeJSON {
				t.Errorf("%s, name %d: %d %s", parameter, i, w.Code, w.Body)
			}
			if bad := unfit(w.Body.String()); bad != "" || w.Body.Len() > 1000 {
				t.Errorf("%s, name %d: %s in %d bytes", parameter, i, bad, w.Body.Len())
			}
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path, r.URL.RawQuery = "/"+name, name
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusNotFound && w.Code != http.StatusBadRequest && w.Code/100 != 3 {
			t.Errorf("path %d: %d", i, w.Code)
		}
		for key, values := range w.Header() {
			if strings.Contains(key, "Set-Cookie") || strings.ContainsAny(strings.Join(values, ""), "\r\n") {
				t.Errorf("path %d: header %s: %q", i, key, values)
			}
		}
	}
}

func TestQueriesThatAreTooLarge(t *testing.T) {
	h := serve(t, incident(), Options{})
	many := strings.Repeat("&ep=served%7C1%7C10.0.0.1%7C80%7Ca", maxKeys+1)
	for _, q := range []string{"points=0", "points=1001", "points=1e3", "points=-1", "limit=1001", "limit=999999999999999999999", "from=1e300", "from=-1", "from=NaN", "from=Inf", "to=253402300800",
		"from=2&to=1", "from=1&to=1", "from=0&to=100000000", "against_from=1", "against_from=5&against_to=4", "slow_us=-1", "slow_us=NaN", "slow_us=1e30", "status=9999", "status=6x", "sort=up", "side=in",
		"format=xml", "%zz", "a;b", many[1:], "ep=served|x|10.0.0.1|80|a", "ep=served|1|10.0.0.1|65536|a", "ep=a", "ep=served|1|evil/../|80|a", "id=" + strings.Repeat("1", 301)} {
		r := httptest.NewRequest(http.MethodGet, "/api/requests", nil)
		r.URL.RawQuery = q
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var e struct{ Error string }
		if w.Code != http.StatusBadRequest || json.Unmarshal(w.Body.Bytes(), &e) != nil || e.Error == "" || strings.Contains(e.Error, "\n") {
			t.Errorf("%.60s: %d %s", q, w.Code, w.Body)
		}
	}
}

// What a damaged or foreign file holds is reported, and harms nothing.
func TestDamagedFiles(t *testing.T) {
	m := incident()
	dir := t.TempDir()
	for i, text := range []string{"", "no zstd", "(\xb5/\xfd"} {
		path := filepath.Join(dir, fmt.Sprint(i))
		os.WriteFile(path, []byte(text), 0o600)
		m.windows = append(m.windows, store.Window{Path: path, Start: noon.Add(time.Duration(i) * time.Minute), End: noon.Add(time.Duration(i+1) * time.Minute)})
	}
	m.windows = append(m.windows, store.Window{Path: filepath.Join(dir, "gone"), Start: noon.Add(3 * time.Minute), End: noon.Add(4 * time.Minute)})
	proofs := t.TempDir()
	for name, text := range map[string]string{"a.json": "{", "b.json": `{"schema":"slowray.undo/1"}`, "c.json": `{"schema":"slowray.prove/1","cause":"conntrack-full"}`, "d.json": "[]", "e.txt": "secret"} {
		os.WriteFile(filepath.Join(proofs, name), []byte(text), 0o600)
	}
	os.Symlink("/etc/passwd", filepath.Join(proofs, "f.json"))
	h := serve(t, m, Options{Proofs: proofs})
	for _, path := range []string{"waits", "drops", "stacks", "findings", "difference"} {
		var v struct{ Losses []observe.Loss }
		w := get(t, h, "/api/"+path+"?from="+unixText(noon)+"&to="+unixText(noon.Add(4*time.Minute)))
		if json.Unmarshal(w.Body.Bytes(), &v) != nil || w.Code != http.StatusOK || len(v.Losses) == 0 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	p := ask[struct {
		Proofs []struct{ Cause string }
		Losses []observe.Loss
	}](t, h, "/api/proofs")
	if len(p.Proofs) != 1 || p.Proofs[0].Cause != "conntrack-full" || len(p.Losses) != 1 || p.Losses[0].Count != 2 {
		t.Errorf("%+v", p)
	}
}

func FuzzParseQuery(f *testing.F) {
	for _, q := range []string{"from=1&to=2", "ep=served%7C1%7C10.0.0.1%7C80%7Ca&points=3", "status=5xx&slow_us=1.5&sort=time", "from=2026-11-22T12:00:00Z", "id=1_s_1_1.2.3.4:5_[::1]:6_7", "a;b", "%zz", "against_from=1&against_to=2&kind=off&format=csv"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseQuery(raw)
		if err != nil {
			if q != nil && q.limit > maxLimit || len(err.Error()) > 500 {
				t.Fatalf("%q: %d bytes of error", raw, len(err.Error()))
			}
			return
		}
		if err := q.complete(timeRange{noon, noon.Add(time.Hour)}, noon); err != nil {
			return
		}
		if !q.from.Before(q.to) || q.to.Sub(q.from) > maxRange || q.points < 1 || q.points > maxPoints || q.limit < 1 || q.limit > maxLimit || len(q.keys) > maxKeys {
			t.Fatalf("%q: %+v", raw, q)
		}
		for _, k := range q.keys {
			if again, err := parseKey(k.String()); err != nil || again != k {
				t.Fatalf("%q: key %+v reads as %+v, %v", raw, k, again, err)
			}
		}
		g := newGrid(q.timeRange, timeRange{}, q.points)
		if g.n < 1 || g.n > q.points+1 {
			t.Fatalf("%q: %d points", raw, g.n)
		}
		if w, err := parseID(q.id); err == nil && w.start < 0 {
			t.Fatalf("%q: %+v", raw, w)
		}
	})
}

func FuzzHarmless(f *testing.F) {
	for _, name := range hostileNames {
		if len(name) < 1000 {
			f.Add(name)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		doc, err := json.Marshal(map[string]any{"a": text, text: []string{text, "x"}})
		if err != nil {
			t.Skip()
		}
		out := harmless(doc)
		var v any
		if err := json.Unmarshal(out, &v); err != nil {
			t.Fatalf("%q became %q: %v", doc, out, err)
		}
		texts(v, func(s string) {
			if bad := unfit(s); bad != "" {
				t.Fatalf("%q: %s", s, bad)
			}
		})
		if again := harmless(out); string(again) != string(out) {
			t.Fatalf("%q is not done at once: %q", out, again)
		}
	})
}
