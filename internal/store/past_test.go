package store

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// entriesOf are the records of a log as a Decoder gives them.
func entriesOf(t *testing.T, path, stream string) (requests []Request, p99 []int64, seconds []Second, findings []Finding) {
	t.Helper()
	l, err := OpenLog(homeAt(t, filepath.Dir(path)).Root, filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var d Decoder
	var frame []byte
	for {
		if frame, err = l.Next(frame[:0], -1); err != nil {
			break
		}
		const all = 1 << 30
		switch stream {
		case "requests":
			d.Requests(frame, 0, all, func(_ int, r *Request) bool { requests = append(requests, *r); return true })
		case "seconds":
			d.Seconds(frame, 0, all, func(_ int, s *Second) bool {
				p99 = append(p99, s.Endpoint.Total.Quantile(0.99), int64(s.Endpoint.Total.Count()), s.Endpoint.Parts["server"].SumNS)
				flat := *s
				flat.Endpoint.Total, flat.Endpoint.RTT, flat.Endpoint.Parts, flat.Endpoint.Split = observe.Histogram{}, observe.Histogram{}, nil, nil
				flat.Endpoint.Flags, flat.Endpoint.Statuses = maps.Clone(s.Endpoint.Flags), maps.Clone(s.Endpoint.Statuses)
				seconds = append(seconds, flat)
				return true
			})
		case "findings":
			d.Findings(frame, 0, all, func(_ int, f *Finding) bool { findings = append(findings, *f); return true })
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	return requests, p99, seconds, findings
}

// A log that is made of a Parquet file has what the log had that the file was made of.
func TestUnpack(t *testing.T) {
	dir := t.TempDir()
	s, err := open(dir, Options{}, func() time.Time { return noon })
	if err != nil {
		t.Fatal(err)
	}
	traffic := newTraffic(1)
	for i := range 3000 {
		var r Request
		traffic.next(&r, noon.UnixNano()+int64(i)*1e6)
		s.AddRequest(&r)
	}
	for i := range 60 {
		sec := traffic.second(i%8, noon.Unix()+int64(i), 30)
		s.AddSecond(&sec)
	}
	o := &observe.Observation{Schema: observe.SchemaObservation, Window: observe.Window{Start: noon, Seconds: 60}}
	if err := s.AddObservation(o, []cause.Finding{{Cause: "blocked-on-disk", Title: "Threads wait", Weight: 0.5}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	for _, stream := range Streams {
		name := LogName(stream, 1)
		text, err := os.ReadFile(filepath.Join(dir, openDir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(copied, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	past := filepath.Join(dir, "past")
	if err := os.Mkdir(past, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err = open(dir, Options{Links: []Link{{Dir: "now", Past: "past"}}}, func() time.Time { return noon })
	if err != nil {
		t.Fatal(err)
	}
	defer s.lock.Close()
	first, whole, err := PastBegins(homeAt(t, dir).Root, "past")
	if err != nil || !whole || first["requests"] != 2 || first["seconds"] != 2 || first["findings"] != 2 {
		t.Fatalf("the past ends before %v, %v, %v", first, whole, err)
	}
	for _, stream := range Streams {
		packed := filepath.Join(past, PackedName(stream, 1, 1))
		log := filepath.Join(past, LogName(stream, 1))
		paced := 0
		bad, err := Unpack(homeAt(t, past), filepath.Base(packed), stream, filepath.Base(log), func() error { paced++; return nil })
		if bad != nil || err != nil || paced == 0 {
			t.Fatalf("%s: %v, %v, paced %d times", stream, bad, err, paced)
		}
		wantRequests, wantP99, wantSeconds, wantFindings := entriesOf(t, filepath.Join(copied, LogName(stream, 1)), stream)
		gotRequests, gotP99, gotSeconds, gotFindings := entriesOf(t, log, stream)
		if !slices.Equal(gotRequests, wantRequests) || !slices.Equal(gotP99, wantP99) {
			t.Errorf("%s: %d requests and %d figures, want %d and %d, or they are not the same", stream, len(gotRequests), len(gotP99), len(wantRequests), len(wantP99))
		}
		if diff := cmp.Diff(wantSeconds, gotSeconds, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(observe.Histogram{})); diff != "" {
			t.Errorf("%s: -want +got\n%s", stream, diff)
		}
		if len(gotFindings) != len(wantFindings) || len(gotFindings) > 0 && (gotFindings[0].Weight != 0.5 || gotFindings[0].Cause != "blocked-on-disk" || !gotFindings[0].Start.Equal(noon)) {
			t.Errorf("findings: %+v, want %+v", gotFindings, wantFindings)
		}
		if len(wantRequests)+len(wantSeconds)+len(wantFindings) == 0 {
			t.Errorf("%s: nothing was compared", stream)
		}
		stop := errors.New("enough")
		if _, err := Unpack(homeAt(t, past), filepath.Base(packed), stream, LogName(stream, 9), func() error { return stop }); !errors.Is(err, stop) {
			t.Errorf("%s: it goes on when it is asked to end: %v", stream, err)
		}
		if _, err := os.Stat(filepath.Join(past, LogName(stream, 9))); err == nil {
			t.Errorf("%s: half a log is left", stream)
		}
	}
	bad := filepath.Join(past, PackedName("requests", 7, 8))
	if err := os.WriteFile(bad, []byte("no Parquet"), 0o600); err != nil {
		t.Fatal(err)
	}
	if why, err := Unpack(homeAt(t, past), filepath.Base(bad), "requests", LogName("requests", 7), func() error { return nil }); why == nil || err != nil {
		t.Errorf("of what is no Parquet: %v, %v", why, err)
	}
}

func TestPackedNames(t *testing.T) {
	if stream, low, high, ok := ParsePackedName(PackedName("requests", 5, 17)); !ok || stream != "requests" || low != 5 || high != 17 {
		t.Errorf("%s %d %d %v", stream, low, high, ok)
	}
	for _, name := range []string{"requests.5.log", "requests.5-17", "requests.05-17.parquet", "requests.-.parquet", "120000-120459.17.parquet", ""} {
		if _, _, _, ok := ParsePackedName(name); ok {
			t.Errorf("%q is taken for a name", name)
		}
	}
}
