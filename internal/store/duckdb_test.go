package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// Other programs read the files without slowray: DuckDB counts, sums and takes
// quantiles as this package does.
func TestDuckDB(t *testing.T) {
	python := filepath.Join("..", "..", ".venv", "bin", "python")
	if err := exec.Command(python, "-c", "import duckdb").Run(); err != nil {
		t.Skip("SKIP: no DuckDB in .venv (script/setup.sh test installs it)")
	}
	dir := t.TempDir()
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	want := fill(t, s, c, newTraffic(7), noon, 12, 20)
	obs := &observe.Observation{Schema: observe.SchemaObservation, Window: observe.Window{Start: noon, Seconds: 10}}
	must(t, s.AddObservation(obs, []cause.Finding{{Cause: "conntrack-full", Impact: cause.Impact{Share: 0.5}, Subject: cause.Subject{PID: 7}}}))
	must(t, s.Sync())
	c.set(noon.Add(2 * time.Hour))
	must(t, s.Sync())
	must(t, s.keep()) // merged ones
	want = append(want, fill(t, s, c, newTraffic(8), noon.Add(2*time.Hour), 5, 1)...)
	must(t, s.Close()) // and small ones

	const script = `
import duckdb, json, sys
d = sys.argv[1]
one = lambda sql: duckdb.sql(sql.replace('DIR', d)).fetchone()
rows = one("""select count(*), sum(total_us), sum(weight), sum(ledger_server_us), sum(ledger_server_cpu_us),
    min(epoch_us(start)), max(epoch_us(start)), count(*) filter (status = 'error'), count(*) filter (flags like '%timeout%'),
    count(distinct peer_addr), typeof(any_value(start)) from 'DIR/requests/*/*.parquet'""")
parts = one("""select count(*) from 'DIR/requests/*/*.parquet' where total_us <> ledger_accept_wait_us + ledger_tls_us + ledger_upload_us
    + ledger_recv_wait_us + ledger_server_us + ledger_stall_us + ledger_send_wait_us + ledger_network_us + ledger_retrans_us + ledger_unaccounted_us""")
p99 = one("""with b as (select unnest(total_hist) h from 'DIR/minutes5/*/*.parquet' where comm = 'svc-0'),
    c as (select h.us us, sum(h.n) n from b group by all),
    r as (select us, sum(n) over (order by us) / sum(n) over () q from c) select min(us) filter (q >= 0.99) from r""")
seconds = one("select sum(requests), sum(total_us), sum(list_sum(list_transform(total_hist, x -> x.n))) from 'DIR/seconds/*/*.parquet'")
ten = one("select sum(requests) from 'DIR/seconds10/*/*.parquet'")
found = one("select cause, share, pid, json->>'$.cause', epoch_us(start) from 'DIR/findings/*/*.parquet'")
print(json.dumps(dict(rows=[str(x) for x in rows], parts=parts[0], p99=p99[0], seconds=[int(x) for x in seconds], ten=int(ten[0]), found=[str(x) for x in found])))
`
	cmd := exec.Command(python, "-c", script, dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must(t, err)
	var got struct {
		Rows    []string
		Parts   int
		P99     float64
		Seconds []int64
		Ten     int64
		Found   []string
	}
	must(t, json.Unmarshal(out, &got))

	var total, weight, server, cpu int64
	first, last := int64(1<<62), int64(0)
	failed, timeouts := 0, 0
	peers := map[string]bool{}
	for i := range want {
		r := &want[i]
		total += r.TotalNS() / 1000
		weight += int64(r.Weight)
		server += r.Ledger[observe.Server] / 1000
		cpu += r.Split[observe.ServerCPU] / 1000
		first, last = min(first, r.StartNS/1000), max(last, r.StartNS/1000)
		if r.Status == observe.StatusError {
			failed++
		}
		if r.Flags&observe.FlagTimeout != 0 {
			timeouts++
		}
		peers[r.Peer.Addr().String()] = true
	}
	wantRows := []int64{int64(len(want)), total, weight, server, cpu, first, last, int64(failed), int64(timeouts), int64(len(peers))}
	for i, w := range wantRows {
		if text, _ := json.Marshal(w); string(text) != got.Rows[i] {
			t.Errorf("figure %d of requests is %s, want %d", i, got.Rows[i], w)
		}
	}
	if kind := got.Rows[len(wantRows)]; kind != "TIMESTAMP WITH TIME ZONE" {
		t.Errorf("the start is a %s", kind)
	}
	if got.Parts != 0 {
		t.Errorf("the parts of %d requests do not add up", got.Parts)
	}
	r, err := OpenReader(dir)
	must(t, err)
	eps, err := r.Endpoints(Query{Comm: "svc-0"})
	must(t, err)
	near(t, "p99", got.P99*1000, float64(eps[0].Endpoint.Total.Quantile(0.99)), 0.1, 0) // of few values
	all, err := r.Endpoints(Query{})
	must(t, err)
	var requests int64
	for _, e := range all {
		requests += int64(e.Endpoint.Requests)
	}
	if got.Seconds[0] != requests || got.Seconds[2] != requests || got.Ten != requests {
		t.Errorf("requests in seconds and ten seconds: %v, %d, want %d", got.Seconds, got.Ten, requests)
	}
	if f := got.Found; f[0] != "conntrack-full" || f[1] != "0.5" || f[2] != "7" || f[3] != "conntrack-full" {
		t.Errorf("finding %v", f)
	}
}

// The files are what parquet-go's own reader of rows says they are.
func TestColumnsAgainstLibrary(t *testing.T) {
	dir := t.TempDir()
	c := &clock{t: noon}
	s := openAt(t, dir, Options{}, c)
	fill(t, s, c, newTraffic(7), noon, 12, 100)
	c.set(noon.Add(2 * time.Hour))
	must(t, s.Close())
	compareWithLibrary[requestRow](t, dir, kindRequests)
	compareWithLibrary[secondRow](t, dir, kindSeconds)
	compareWithLibrary[secondRow](t, dir, kindMinutes5)
}

// A reader leaves out the pages whose bounds say that they do not hold what it
// looks for: they must be those of the page, of text too.
func TestBoundsOfPages(t *testing.T) {
	dir := t.TempDir()
	outage(t, dir, noon)
	for _, k := range []kind{kindRequests, kindSeconds, kindMinutes5} {
		list, err := segmentsIn(t, dir, k)
		must(t, err)
		if len(list) == 0 {
			t.Fatalf("no file of %s", k)
		}
		f, err := os.Open(list[0].path)
		must(t, err)
		defer f.Close()
		info, err := f.Stat()
		must(t, err)
		file, err := parquet.OpenFile(f, info.Size())
		must(t, err)
		for _, g := range file.RowGroups() {
			for i, want := range map[string][2]string{"side": {"called", "served"}, "comm": {"shop", "shop"}} {
				leaf, ok := file.Schema().Lookup(i)
				if !ok {
					t.Fatalf("%s has no column %s", k, i)
				}
				index, err := g.ColumnChunks()[leaf.ColumnIndex].ColumnIndex()
				must(t, err)
				for page := range index.NumPages() {
					if low, high := index.MinValue(page).String(), index.MaxValue(page).String(); low != want[0] || high != want[1] {
						t.Errorf("%s: page %d of %s is from %q to %q, want %q", k, page, i, low, high, want)
					}
				}
			}
		}
	}
}

// A file under way is none of those that a program finds which reads them all.
func TestFilesUnderWayAreNoParquet(t *testing.T) {
	dir := t.TempDir()
	seen := false
	err := publish(homeAt(t, dir), &segment{kind: kindSeconds, first: noon.Unix(), last: noon.Unix()}, func(*parquet.GenericWriter[secondRow]) error {
		names, err := filepath.Glob(filepath.Join(dir, "*", "*", "*"))
		seen = len(names) == 1 && filepath.Ext(names[0]) != parquetSuffix
		return err
	})
	must(t, err)
	if !seen {
		t.Error("what is being written cannot be distinguished from what is there")
	}
}

func compareWithLibrary[T any](t *testing.T, dir string, k kind) {
	t.Helper()
	list, err := segmentsIn(t, dir, k)
	must(t, err)
	total := 0
	for _, seg := range list {
		f, err := os.Open(seg.path)
		must(t, err)
		defer f.Close()
		file, err := openParquet(f)
		must(t, err)
		reader := parquet.NewGenericReader[T](file.File)
		defer reader.Close()
		one := make([]T, 1)
		for _, g := range file.groups() {
			err := readGroup(g, nil, func(rows []T) bool {
				for i := range rows {
					clear(one)
					if n, err := reader.Read(one); n != 1 || err != nil && !errors.Is(err, io.EOF) {
						t.Fatalf("%s row %d: %d, %v", k, total, n, err)
					}
					a, _ := json.Marshal(one[0])
					b, _ := json.Marshal(rows[i])
					if none := []byte("null"); !bytes.Equal(bytes.ReplaceAll(a, none, []byte("[]")), bytes.ReplaceAll(b, none, []byte("[]"))) {
						t.Fatalf("%s row %d:\n%s\n%s", k, total, a, b)
					}
					total++
				}
				return true
			})
			must(t, err)
		}
	}
	if total < 4 {
		t.Errorf("%s: %d rows", k, total)
	}
}
