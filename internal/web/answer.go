package web

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/slowray/slowray/internal/observe"
)

// answer is what is sent: one of value (as JSON), table (as CSV) and body.
type answer struct {
	value    any
	table    *table
	body     []byte
	kind     string // Content-Type of body
	file     string // name to save a body or a table as; "" shows it
	policy   string // Content-Security-Policy, where it is not that of the page
	embedded bool   // may stand in a frame of the page
}

func jsonAnswer(v any) (answer, error) { return answer{value: v}, nil }

const (
	typeJSON = "application/json; charset=utf-8"
	typeCSV  = "text/csv; charset=utf-8"
)

func (a *answer) write(w http.ResponseWriter, r *http.Request, turn *turn) {
	body, kind := a.body, a.kind
	switch {
	case a.table != nil:
		body, kind = a.table.csv(), typeCSV
	case a.value != nil:
		text, err := json.Marshal(a.value)
		if err != nil { // a number that JSON does not know
			writeError(w, http.StatusInternalServerError, "the answer cannot be written: "+err.Error())
			return
		}
		body, kind = append(harmless(translated(text, r.URL.Query().Get("lang"))), '\n'), typeJSON
	}
	h := w.Header()
	h.Add("Vary", "Accept-Encoding")
	packed := len(body) >= smallest && acceptsGzip(r)
	if packed {
		body = zipped(body)
	}
	if !turn.made(w, len(body)) {
		h.Set("Retry-After", "10")
		writeError(w, http.StatusServiceUnavailable, "others are too slow to take their answers: ask for less")
		return
	}
	if packed {
		h.Set("Content-Encoding", "gzip")
	}
	if a.file != "" {
		h.Set("Content-Disposition", `attachment; filename="`+a.file+`"`)
	}
	if a.policy != "" {
		h.Set("Content-Security-Policy", a.policy)
	}
	if a.embedded {
		h.Set("X-Frame-Options", "SAMEORIGIN")
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		w.Write(body)
	}
}

// writeError answers with what is wrong.
func writeError(w http.ResponseWriter, status int, text string) {
	body, _ := json.Marshal(map[string]string{"error": clip(text, 500)})
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(status)
	w.Write(append(harmless(body), '\n'))
}

// smallest is the answer that is worth packing, in bytes.
const smallest = 2 << 10

var packers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return z
}}

// zipped packs a body.
func zipped(body []byte) []byte {
	var packed bytes.Buffer
	z := packers.Get().(*gzip.Writer)
	z.Reset(&packed)
	z.Write(body)
	z.Close()
	packers.Put(z)
	return packed.Bytes()
}

func acceptsGzip(r *http.Request) bool {
	for _, c := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(c), ";")
		if strings.EqualFold(name, "gzip") {
			return strings.ReplaceAll(weight, " ", "") != "q=0"
		}
	}
	return false
}

// figures are numbers for a chart: what is not a number is null, and no more
// than four digits count.
type figures []float64

// MarshalJSON writes the list.
func (f figures) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 2+7*len(f))
	b = append(b, '[')
	for i, x := range f {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendFigure(b, x)
	}
	return append(b, ']'), nil
}

// figure is one such number.
type figure float64

// MarshalJSON writes the number.
func (f figure) MarshalJSON() ([]byte, error) { return appendFigure(nil, float64(f)), nil }

func appendFigure(b []byte, x float64) []byte {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return append(b, "null"...)
	}
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.AppendInt(b, int64(x), 10)
	}
	if math.Abs(x) >= 1000 {
		return strconv.AppendFloat(b, x, 'f', 0, 64)
	}
	return strconv.AppendFloat(b, x, 'g', 4, 64)
}

// nothing is the figure of what there is none of.
var nothing = math.NaN()

// some is a list of nothings to be filled in.
func some(n int) figures {
	f := make(figures, n)
	for i := range f {
		f[i] = nothing
	}
	return f
}

// losses are what an answer lacks.
type losses []observe.Loss

func (l *losses) add(what string, count int64) {
	if count > 0 {
		*l = append(*l, observe.Loss{What: what, Count: count})
	}
}
