package clickhouse

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/slowray/slowray/internal/fleet"
)

// asked is a server that notes what it is asked and answers as the test says.
type asked struct {
	mu      sync.Mutex
	params  []url.Values
	queries []string
}

func askedServer(t *testing.T, answer func(query string) (status int, text string)) (address string, a *asked) {
	a = &asked{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		q := r.URL.Query()
		a.mu.Lock()
		a.params, a.queries = append(a.params, q), append(a.queries, q.Get("query")+string(body))
		a.mu.Unlock()
		status, text := answer(string(body))
		w.WriteHeader(status)
		io.WriteString(w, text)
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://"), a
}

// A present server would put inserts together by itself, and then a batch could come
// after its host heard that it is not there.
func TestAServerIsToldNotToPutInsertsTogether(t *testing.T) {
	for dialect, want := range map[string]string{"modern": "0", "plain": ""} {
		address, a := askedServer(t, func(string) (int, string) { return 200, "" })
		db, err := Open("clickhouse://" + address + "/slowray?compress=none&dialect=" + dialect)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		h := hostNumber(1)
		if err := db.Send(t.Context(), requestBatch(h, 1, newTraffic(1).requests(3, noon))); err != nil {
			t.Fatal(err)
		}
		if err := db.Hello(t.Context(), h, noon); err != nil {
			t.Fatal(err)
		}
		inserts := 0
		for i, p := range a.params {
			if !strings.HasPrefix(a.queries[i], "INSERT") {
				continue
			}
			inserts++
			if got := p.Get("async_insert"); got != want {
				t.Errorf("%s: async_insert is %q, want %q in %s", dialect, got, want, a.queries[i])
			}
		}
		if inserts != 2 {
			t.Errorf("%d inserts", inserts)
		}
	}
}

// A user that may only read can often not change settings either.
func TestQuantilesAreAskedForWithoutSettingsWhereTheUserMayNotChangeThem(t *testing.T) {
	address, a := askedServer(t, func(query string) (int, string) {
		if strings.Contains(query, "SETTINGS") {
			return 500, "Code: 164, e.displayText() = DB::Exception: Cannot modify 'max_block_size' setting in readonly mode, e.what() = DB::Exception"
		}
		return 200, ""
	})
	db, err := Open("clickhouse://" + address + "/slowray?dialect=plain")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for range 2 {
		if _, err := db.Quantiles(t.Context(), fleet.Question{From: noon, To: noon.Add(300e9)}, []float64{0.5}); err != nil {
			t.Fatal(err)
		}
	}
	refused := 0
	for _, q := range a.queries {
		if strings.Contains(q, "SETTINGS max_block_size") {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("settings were sent %d times, want once: %q", refused, a.queries)
	}
}
