package store

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
)

// cpuTime is what this process has used so far, its garbage collector included.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// samples are enough different requests for all to look different.
func samples(n int) []Request {
	tr := newTraffic(1)
	list := make([]Request, n)
	for i := range list {
		tr.next(&list[i], 0)
	}
	return list
}

// BenchmarkAddRequest is what the recorder waits for.
func BenchmarkAddRequest(b *testing.B) {
	c := &clock{t: noon}
	s := openAt(b, b.TempDir(), Options{}, c)
	list := samples(1024)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		r := &list[n%len(list)]
		r.StartNS = noon.UnixNano() + int64(n)*1e6
		s.AddRequest(r)
		if n++; n%50_000 == 0 {
			b.StopTimer()
			must(b, s.Sync())
			b.StartTimer()
		}
	}
}

// BenchmarkStoreRequests is all that a stored request costs, until it is in the file
// of its hour: CPU time and bytes on disk. A thousand come in a second.
func BenchmarkStoreRequests(b *testing.B) {
	const rate = 1000
	list := samples(1 << 14)
	var cpu time.Duration
	var bytes, sys float64
	rows := 0
	for b.Loop() {
		b.StopTimer()
		c := &clock{t: noon}
		s := openAt(b, b.TempDir(), Options{MaxBytes: 1 << 40}, c)
		began := cpuTime(b)
		b.StartTimer()
		for sec := range 600 {
			c.set(noon.Add(time.Duration(sec) * time.Second))
			at := c.now().UnixNano()
			for i := range rate {
				r := &list[(sec*977+i)%len(list)]
				r.StartNS = at + int64(i)*(1e9/rate) - int64(i%7)*3e6
				s.AddRequest(r)
				rows++
			}
			must(b, s.Sync())
		}
		c.set(noon.Add(time.Hour))
		must(b, s.Sync())
		must(b, s.Close())
		b.StopTimer()
		cpu += cpuTime(b) - began
		if st := s.Stats(); st.Dropped > 0 {
			b.Fatalf("%d requests were dropped", st.Dropped)
		}
		bytes += float64(s.Stats().Bytes)
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		sys = float64(m.Sys)
		b.StartTimer()
	}
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(rows), "cpu-ns/request")
	b.ReportMetric(bytes/float64(rows), "B/request")
	b.ReportMetric(sys/(1<<20), "MB-memory")
}

// BenchmarkHourOfRequests is the p99 of an hour in which a thousand requests a
// second were stored.
func BenchmarkHourOfRequests(b *testing.B) {
	dir := b.TempDir()
	list := samples(1 << 14)
	var text Words
	const rows = 3_600_000
	seg := segment{kind: kindRequests, first: noon.Unix(), last: noon.Unix() + 3599, low: 1, high: 12}
	must(b, publish(homeAt(b, dir), &seg, func(w *parquet.GenericWriter[requestRow]) error {
		return writeRows(w, rowLot, func(yield func(*requestRow) bool) {
			var row requestRow
			for i := range rows {
				r := stored(list[i%len(list)])
				r.StartNS = noon.UnixNano() + int64(i)*1e6
				if row.set(&r, &text); !yield(&row) {
					return
				}
			}
		})
	}))
	r, err := OpenReader(dir)
	must(b, err)
	q := Query{From: noon, To: noon.Add(time.Hour)}
	b.Run("p99", func(b *testing.B) {
		for b.Loop() {
			h, err := r.Totals(q)
			if err != nil || h.Count() < rows || h.Quantile(0.99) < 1e6 {
				b.Fatalf("%d requests, %v", h.Count(), err)
			}
		}
	})
	b.Run("p99-of-one-service", func(b *testing.B) {
		q := q
		q.Comm = "svc-3"
		for b.Loop() {
			if h, err := r.Totals(q); err != nil || h.Count() == 0 || h.Quantile(0.99) < 1e6 {
				b.Fatal(err)
			}
		}
	})
	b.Run("slowest-100", func(b *testing.B) {
		for b.Loop() {
			if list, err := r.Slowest(q, 100); err != nil || len(list) != 100 {
				b.Fatal(err)
			}
		}
	})
	b.Run("all-columns", func(b *testing.B) {
		for b.Loop() {
			n := 0
			must(b, r.Requests(q, func(*Request) bool { n++; return true }))
			if n != rows {
				b.Fatal(n)
			}
		}
	})
}

// BenchmarkDay is what a page needs to show a day of 50 endpoints: points for a
// line each, and the sums. 4.3 million seconds are behind it.
func BenchmarkDay(b *testing.B) {
	dir := b.TempDir()
	tr := newTraffic(1)
	var rows []*secondRow
	for svc := range 50 {
		// Five minutes of 20 requests a second.
		sec := tr.second(svc%8, noon.Unix(), 6000)
		sec.Endpoint.Port = 8000 + svc
		row := new(secondRow)
		row.set(&sec, 300)
		rows = append(rows, row)
	}
	var bytes int64
	for hour := range 24 {
		seg := segment{kind: kindMinutes5, low: uint64(hour), high: uint64(hour)}
		seg.first = noon.Unix() + int64(hour)*3600
		seg.last = seg.first + 3300
		must(b, publish(homeAt(b, dir), &seg, func(w *parquet.GenericWriter[secondRow]) error {
			return writeRows(w, rowLot, func(yield func(*secondRow) bool) {
				for five := range 12 {
					for _, row := range rows {
						row.At = (seg.first + int64(five)*300) * 1e6
						if !yield(row) {
							return
						}
					}
				}
			})
		}))
		bytes += seg.bytes
	}
	b.Logf("%.1f MB for a day in rows of five minutes", float64(bytes)/1e6)
	r, err := OpenReader(dir)
	must(b, err)
	q := Query{From: noon, To: noon.Add(24 * time.Hour)}
	b.Run("points", func(b *testing.B) {
		for b.Loop() {
			n := 0
			must(b, r.Points(q, 288*time.Second, func(sec *Second) bool {
				if sec.Endpoint.Total.Quantile(0.99) == 0 {
					b.Fatal("no p99")
				}
				n++
				return true
			}))
			if n != 24*12*50 {
				b.Fatal(n)
			}
		}
	})
	b.Run("endpoints", func(b *testing.B) {
		for b.Loop() {
			if list, err := r.Endpoints(q); err != nil || len(list) != 50 {
				b.Fatal(len(list), err)
			}
		}
	})
	b.Run("endpoints-parts", func(b *testing.B) {
		q := q
		q.PartHists = true
		for b.Loop() {
			if list, err := r.Endpoints(q); err != nil || len(list) != 50 {
				b.Fatal(len(list), err)
			}
		}
	})
}

// BenchmarkStoreSeconds is all that the sums of one endpoint and second cost, until
// they and the sums of ten seconds and five minutes are in the files of their hour.
// Fifty come in a second, each of 20 requests.
func BenchmarkStoreSeconds(b *testing.B) {
	const endpoints, length = 50, 600
	tr := newTraffic(1)
	var list []Second
	for i := range 10 * endpoints {
		sec := tr.second(i%8, 0, 20)
		sec.Endpoint.Port = 8000 + i%endpoints
		list = append(list, sec)
	}
	var cpu time.Duration
	bytes := map[kind]int64{}
	rows := 0
	for b.Loop() {
		b.StopTimer()
		c := &clock{t: noon}
		s := openAt(b, b.TempDir(), Options{MaxBytes: 1 << 40}, c)
		began := cpuTime(b)
		b.StartTimer()
		for i := range length {
			c.set(noon.Add(time.Duration(i) * time.Second))
			for k := range endpoints {
				sec := &list[(i%10)*endpoints+k]
				sec.At = c.now().Unix()
				s.AddSecond(sec)
				rows++
			}
			must(b, s.Sync())
		}
		c.set(noon.Add(time.Hour))
		must(b, s.Close())
		b.StopTimer()
		cpu += cpuTime(b) - began
		stock, _, err := inventory(s.home.Load().Root)
		must(b, err)
		for k, files := range stock {
			for _, f := range files {
				bytes[k] += f.bytes
			}
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(cpu.Microseconds())/float64(rows), "cpu-µs/second-row")
	for k, n := range bytes {
		b.ReportMetric(float64(n)*float64(widthOf(k))/float64(rows), "B/row-of-"+string(k))
	}
}

// BenchmarkAddSecond is what the sums of one endpoint and second cost until they
// are in the log.
func BenchmarkAddSecond(b *testing.B) {
	c := &clock{t: noon}
	s := openAt(b, b.TempDir(), Options{}, c)
	sec := newTraffic(1).second(1, noon.Unix(), 50)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		s.AddSecond(&sec)
		if n++; n%1000 == 0 {
			b.StopTimer()
			must(b, s.Sync())
			b.StartTimer()
		}
	}
}
