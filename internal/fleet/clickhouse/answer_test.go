package clickhouse

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// allColumns is an answer with a column of each type that is asked for.
func allColumns() (proto.Results, *proto.ColArr[uint16], *proto.ColArr[uint64]) {
	buckets, counts := new(proto.ColUInt16).Array(), new(proto.ColUInt64).Array()
	return proto.Results{
		{Data: new(proto.ColUInt32)}, {Data: new(proto.ColStr)}, {Data: new(proto.ColUInt16)}, {Data: new(proto.ColInt16)},
		{Data: new(proto.ColUInt64)}, {Data: new(proto.ColInt64)}, {Data: new(proto.ColFloat64)}, {Data: buckets}, {Data: counts},
	}, buckets, counts
}

// input is what ch-go sends for the columns of an answer.
func input(results proto.Results) (in []proto.InputColumn) {
	for _, c := range results {
		in = append(in, proto.InputColumn{Name: c.Name, Data: c.Data.(proto.ColInput)})
	}
	return in
}

func encoded(t testing.TB, results proto.Results, rows int) []byte {
	t.Helper()
	var b proto.Buffer
	if err := (proto.Block{Columns: len(results), Rows: rows}).EncodeRawBlock(&b, 0, input(results)); err != nil {
		t.Fatal(err)
	}
	return b.Buf
}

// someBlock is a block of so many rows in the columns of allColumns.
func someBlock(t testing.TB, rows int) []byte {
	results, buckets, counts := allColumns()
	for i := range results {
		results[i].Name = fmt.Sprint("c", i)
	}
	for i := range rows {
		results[0].Data.(*proto.ColUInt32).Append(uint32(i))
		results[1].Data.(*proto.ColStr).Append(strings.Repeat("é", i%200))
		results[2].Data.(*proto.ColUInt16).Append(uint16(i))
		results[3].Data.(*proto.ColInt16).Append(int16(-i))
		results[4].Data.(*proto.ColUInt64).Append(uint64(i) << 40)
		results[5].Data.(*proto.ColInt64).Append(-int64(i) << 40)
		results[6].Data.(*proto.ColFloat64).Append(float64(i) / 3)
		buckets.Append([]uint16{uint16(i), uint16(i + 1)}[:i%3%2+i%2])
		counts.Append([]uint64{uint64(i), 7}[:i%3%2+i%2])
	}
	return encoded(t, results, rows)
}

func read(b []byte, most int64, results proto.Results, rows func(int)) error {
	in := newAnswerReader(context.Background(), bytes.NewReader(b), most)
	for {
		n, err := in.block(results)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		rows(n)
	}
}

// What ch-go writes is read as it was, block by block.
func TestAnswerIsReadAsItWasWritten(t *testing.T) {
	sizes := []int{1, 0, 3, valuesAtOnce + 5, 2}
	var all []byte
	for _, n := range sizes {
		all = append(all, someBlock(t, n)...)
	}
	all = append(all, 0, 0) // the end, as the native protocol has it
	results, _, _ := allColumns()
	var got []int
	if err := read(all, maxKept, results, func(n int) {
		got = append(got, n)
		if n == 0 && len(got) == len(sizes)+1 {
			return
		}
		if d := cmp.Diff(someBlock(t, n), encoded(t, results, n)); d != "" {
			t.Errorf("%d rows: %s", n, d)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(append(sizes, 0), got); d != "" {
		t.Error(d)
	}
	// Wherever it breaks off it is no answer, but between two blocks.
	one := someBlock(t, 3)
	for i := 1; i < len(one); i++ {
		results, _, _ := allColumns()
		if err := read(one[:i], maxKept, results, func(int) {}); err == nil {
			t.Fatalf("the first %d bytes of %d are an answer", i, len(one))
		}
	}
}

func varints(list ...uint64) (b []byte) {
	for _, n := range list {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func named(b []byte, name, typ string) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
	return append(binary.AppendUvarint(b, uint64(len(typ))), typ...)
}

// A few bytes that speak of much take no memory for it, and lists that end before they
// begin end nothing else.
func TestAnswersThatSpeakOfMuch(t *testing.T) {
	offsets := func(list ...uint64) (b []byte) {
		for _, n := range list {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		return b
	}
	text := func() proto.ColResult { return new(proto.ColStr) }
	number := func() proto.ColResult { return new(proto.ColUInt64) }
	list := func() proto.ColResult { return new(proto.ColUInt16).Array() }
	for name, x := range map[string]struct {
		column func() proto.ColResult
		answer []byte
	}{
		"columns":                {number, varints(1<<19, 1)},
		"rows of texts":          {text, append(named(varints(1, 99_000_000), "a", "String"), 1, 'x')},
		"rows of numbers":        {number, append(named(varints(1, 99_000_000), "a", "UInt64"), 1, 2, 3)},
		"rows past counting":     {number, named(varints(1, 1<<63), "a", "UInt64")},
		"a text":                 {text, append(named(varints(1, 1), "a", "String"), varints(1<<36)...)},
		"a text past counting":   {text, append(named(varints(1, 1), "a", "String"), varints(1<<63)...)},
		"short texts":            {text, append(named(varints(1, 90_000_000), "a", "String"), 127, 'x')},
		"a name":                 {text, varints(1, 1, 1<<40)},
		"a list":                 {list, append(named(varints(1, 1), "a", "Array(UInt16)"), offsets(99_000_000)...)},
		"a list past counting":   {list, append(named(varints(1, 2), "a", "Array(UInt16)"), append(offsets(1<<63, 1), 1, 0)...)},
		"a list that ends early": {list, append(named(varints(1, 2), "a", "Array(UInt16)"), append(offsets(9, 1), 1, 0)...)},
		"another type":           {number, append(named(varints(1, 1), "a", "Array(UInt64)"), offsets(1, 1)...)},
	} {
		t.Run(name, func(t *testing.T) {
			budgettest.Within(t, len(x.answer), budgettest.Usual, func() {
				if err := read(x.answer, maxKept, proto.Results{{Data: x.column()}}, func(n int) { t.Errorf("%d rows", n) }); err == nil {
					t.Error("is an answer")
				}
			})
		})
	}
}

// lists is an answer of one block whose lists end where they must not.
func lists(t testing.TB) []byte {
	db := mustOpen(t, "clickhouse://h/slowray?dialect=plain")
	a := &askedPiece{seconds: 1, values: make([]proto.ColInt64, len(pointNumbers)), buckets: new(proto.ColUInt16).Array(), counts: new(proto.ColUInt64).Array()}
	_, results := a.question("seconds", span{0, 9}, db.conditions(&fleet.Question{}, "port", nil))
	for i := range results {
		results[i].Name = fmt.Sprint("c", i)
	}
	for i := range 2 {
		for _, c := range results {
			switch v := c.Data.(type) {
			case *proto.ColUInt32:
				v.Append(1)
			case *proto.ColStr:
				v.Append("x")
			case *proto.ColUInt16:
				v.Append(1)
			case *proto.ColInt64:
				v.Append(1)
			case *proto.ColArr[uint16]:
				v.Append([]uint16{1}[i:])
			case *proto.ColArr[uint64]:
				v.Append([]uint64{1}[i:])
			}
		}
	}
	a.buckets.Offsets[0], a.counts.Offsets[0] = 1<<63, 1<<63
	return encoded(t, results, 2)
}

func mustOpen(t testing.TB, url string) *DB {
	t.Helper()
	db, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// Whoever answers at the address of a server does not end this process, whatever is asked.
func TestListsThatEndBeforeTheyBeginEndTheAnswer(t *testing.T) {
	body := string(lists(t))
	address, _ := askedServer(t, func(query string) (int, string) {
		if strings.Contains(query, "FORMAT TabSeparated") {
			return 200, "1\t2\t3\n"
		}
		return 200, body
	})
	db := mustOpen(t, "clickhouse://"+address+"/slowray?dialect=plain")
	err := db.Points(t.Context(), fleet.Question{From: noon, To: noon.Add(time.Minute)}, time.Second, func(*fleet.Point) bool { return true })
	if err == nil || !strings.Contains(err.Error(), "malformed") {
		t.Errorf("%v", err)
	}
}

// endless answers every question with the same rows, for ever.
func endless(t *testing.T, head, row []byte) *DB {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("TabSeparated")) {
			io.WriteString(w, "1\t2\t3\n")
			return
		}
		w.Write(head)
		for b := bytes.Repeat(row, 1000); ; {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	return mustOpen(t, "clickhouse://"+strings.TrimPrefix(srv.URL, "http://")+"/slowray?dialect=plain")
}

// A server that never ends its answer is not followed for ever, and takes no more memory
// than an answer may.
func TestAnswersWithoutAnEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: gigabytes go over the loopback: not with -short")
	}
	oneText := append(varints(11), "hello world"...)
	for name, x := range map[string]struct {
		head, row []byte
		ask       func(context.Context, *DB) error
		want      string
	}{
		"blocks of histories": {nil, append(named(varints(1, 1), "id", "String"), oneText...), func(ctx context.Context, db *DB) error {
			_, err := db.histories(ctx, &fleet.Question{Host: "h"})
			return err
		}, ""}, // the first thousand count
		"one block": {named(varints(1, 1<<27), "id", "String"), oneText, func(ctx context.Context, db *DB) error {
			_, err := db.histories(ctx, &fleet.Question{Host: "h"})
			return err
		}, "budget"},
		"a text": {append(named(varints(1, 1), "id", "String"), varints(1<<27)...), bytes.Repeat([]byte{'x'}, 99), func(ctx context.Context, db *DB) error {
			_, err := db.histories(ctx, &fleet.Question{Host: "h"})
			return err
		}, "budget"},
	} {
		t.Run(name, func(t *testing.T) {
			most := heapDuring(t, func() {
				err := x.ask(t.Context(), endless(t, x.head, x.row))
				if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
					t.Errorf("%v, want %q", err, x.want)
				}
			})
			if most > 700<<20 {
				t.Errorf("%d MB were in use", most>>20)
			}
		})
	}
}

// heapDuring is the most memory in use while f runs, garbage included.
func heapDuring(t *testing.T, f func()) (most uint64) {
	t.Helper()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	f()
	close(done)
	<-ended
	return most
}

// Heads of answers have an end, and what they cost does.
func TestAHeadWithoutAnEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sent := make(chan int, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				n, _ := io.WriteString(c, "HTTP/1.1 200 OK\r\n")
				for line := []byte("X: " + strings.Repeat("x", 1000) + "\r\n"); n < 64<<20; {
					k, err := c.Write(line)
					if n += k; err != nil {
						break
					}
				}
				sent <- n
			}()
		}
	}()
	db := mustOpen(t, "clickhouse://"+l.Addr().String()+"/slowray?dialect=plain")
	if _, err := db.Mark(t.Context(), hostNumber(1), fleet.Requests); err == nil {
		t.Error("it has a mark")
	}
	if n := <-sent; n > 6<<20 { // the kernel's buffers of both ends are some megabytes
		t.Errorf("%d bytes of a head were read", n)
	}
}

// A redirect is not followed: a password goes to the server that was named.
func TestNoRedirectIsFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was followed") }))
	defer elsewhere.Close()
	srv := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer srv.Close()
	db := mustOpen(t, "clickhouse://"+strings.TrimPrefix(srv.URL, "http://")+"/slowray?dialect=plain")
	if _, err := db.Mark(t.Context(), hostNumber(1), fleet.Requests); err == nil || !strings.Contains(err.Error(), "Redirect") {
		t.Errorf("%v", err)
	}
}

// FuzzAnswer reads blocks from whoever answers. What is taken for an answer is what
// ch-go would have written for the same values.
func FuzzAnswer(f *testing.F) {
	f.Add(someBlock(f, 3))
	f.Add(append(someBlock(f, 0), 0, 0))
	f.Add(append(someBlock(f, 1), someBlock(f, 2)...))
	results, _, _ := allColumns()
	f.Add(encoded(f, results, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		// A text of a byte has a position of 16; a block begins with a buffer.
		budgettest.Within(t, len(b), budgettest.Cost{PerByte: 128, Fixed: 1 << 20, CPU: time.Second}, func() {
			results, buckets, counts := allColumns()
			_ = read(b, maxKept, results, func(n int) { // most bytes are no answer
				if n == 0 {
					return
				}
				for _, c := range results {
					if c.Data.Rows() != n {
						t.Fatalf("%s has %d rows of %d", c.Name, c.Data.Rows(), n)
					}
				}
				var h observe.Histogram
				for i := range n {
					addBuckets(&h, buckets, counts, i)
				}
			})
		})
		again, _, _ := allColumns()
		in := newAnswerReader(context.Background(), bytes.NewReader(b), maxKept)
		n, err := in.block(again)
		if err != nil || n == 0 {
			return
		}
		written := encoded(t, again, n)
		if len(written) > len(b) {
			t.Fatalf("%d bytes were read of %d", len(written), len(b))
		}
		third, _, _ := allColumns()
		if m, err := newAnswerReader(context.Background(), bytes.NewReader(written), maxKept).block(third); err != nil || m != n || !bytes.Equal(encoded(t, third, m), written) {
			t.Fatalf("read again: %d rows of %d, %v", m, n, err)
		}
	})
}

// FuzzMessage reads what a server says is wrong: one line of bounded length, whatever it is.
func FuzzMessage(f *testing.F) {
	f.Add(500, "Code: 60, e.displayText() = DB::Exception: Table slowray.requests doesn't exist., Stack trace:\n\n0. x", true)
	f.Add(200, "Code: 279. DB::NetException: All connection tries failed. Log:\n\nCode: 210. DB::NetException: Connection refused (ch-2:9000), e.what() = x\n", false)
	f.Add(413, "<html>\r\n<head><title>413 Request Entity Too Large</title>", false)
	f.Add(401, "\x1b[31m\xff", false)
	f.Fuzz(func(t *testing.T, status int, text string, before bool) {
		budgettest.Within(t, len(text), budgettest.Usual, func() {
			err := failure("h:1", status, text, before)
			if said := err.Error(); len(said) > 4096 || strings.ContainsAny(said, "\n\r\x1b\x00") {
				t.Errorf("%q", said)
			}
			codeOf(err)
			Advice(err)
			_ = fleet.Temporary(err)
		})
	})
}

// FuzzSmall reads small answers: each row has all its columns, and put together they
// are the answer.
func FuzzSmall(f *testing.F) {
	f.Add("1\t2\t3\n4\t5\t6\n", 3)
	f.Add("12", 1)
	f.Add("a\\tb\n\n", 1)
	f.Fuzz(func(t *testing.T, text string, columns int) {
		columns = min(max(columns, 1), 100)
		budgettest.Within(t, len(text), budgettest.Usual, func() {
			rows, err := parseSmall(text, columns)
			if err != nil {
				return
			}
			var b strings.Builder
			for _, row := range rows {
				if len(row) != columns {
					t.Fatalf("%q has %d columns of %d", row, len(row), columns)
				}
				b.WriteString(strings.Join(row, "\t") + "\n")
			}
			if b.String() != text {
				t.Errorf("%q was read as %q", text, b.String())
			}
		})
	})
}

// FuzzEventDocument makes rows of the documents of events: all columns have as many.
func FuzzEventDocument(f *testing.F) {
	f.Add([]byte(`{"endpoints":[{"host":"a","service":"s","side":"called","addr":"10.0.0.1","port":80,"signal":"p99","value":1.5,"expected":0.2,"p":1e-9}]}`))
	f.Add([]byte(`{"endpoints":[{"port":70000},{}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		budgettest.Within(t, len(document), budgettest.Usual, func() {
			b, c, _ := newBlock("anomalies", anomalyDefs)
			addAnomalies(b, c, document, 1, 1)
			if b.rows == 0 {
				return
			}
			if _, _, err := b.encode(false); err != nil {
				t.Fatal(err)
			}
			for _, c := range b.columns {
				if c.width > 0 && len(c.b) != 0 && len(c.b) != c.width*b.rows {
					t.Errorf("%s has %d bytes for %d rows", c.name, len(c.b), b.rows)
				}
			}
		})
	})
}

// FuzzHost reads what is known of a host: what was written is read as it was, and what
// is none of it is nothing.
func FuzzHost(f *testing.F) {
	f.Add([]byte(`{"rack":"r1"}`), []byte(`{"nginx":{"version":"1"}}`), "10.0.0.7,::1", "rack", "r\x00\n")
	f.Add([]byte(`{"a":1}`), []byte(`[]`), "", "", "")
	f.Add([]byte(`{"a":"b","a":`), []byte(`null`), ",", "\xff", "\\")
	f.Add([]byte("0"), []byte("0"), "0", "\xd6", "\x80") // not valid each, valid together
	f.Fuzz(func(t *testing.T, labels, programs []byte, addresses, name, value string) {
		budgettest.Within(t, len(labels)+len(programs)+len(addresses), budgettest.Cost{PerByte: 256, Fixed: 1 << 20, CPU: time.Second}, func() {
			var h fleet.Host
			parseKnown(&h, labels, programs, addresses)
			if len(h.Labels) > 0 && !json.Valid(labels) || len(h.Programs) > 0 && !json.Valid(programs) {
				t.Errorf("%s, %s: %+v", labels, programs, h)
			}
			want := fleet.Host{Name: "a", Labels: map[string]string{name: value}, Addresses: []string{"10.0.0.1"}}
			b, err := helloRow("hosts", &want, noon)
			if err != nil {
				t.Fatal(err)
			}
			var got fleet.Host
			text := func(i int) []byte { // the one row of a column of texts: its length and the text
				c := b.columns[i].b
				n, size := binary.Uvarint(c)
				return c[size : size+int(n)]
			}
			at := map[string]int{}
			for i, c := range b.columns {
				at[c.name] = i
			}
			parseKnown(&got, text(at["labels"]), text(at["programs"]), string(text(at["addresses"])))
			if len(got.Labels) != 1 || utf8.ValidString(name) && utf8.ValidString(value) && got.Labels[name] != value || got.Addresses[0] != "10.0.0.1" {
				t.Errorf("%+v was written, and %+v read", want, got)
			}
		})
	})
}
