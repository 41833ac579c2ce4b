package clickhouse

import (
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/schema"
	"github.com/slowray/slowray/internal/store"
)

// hostPart are the columns before the others.
type hostPart struct {
	host, history, position, batch, day, time, service, start *column
}

func newHostPart(c map[string]*column) hostPart {
	return hostPart{c["host"], c["history"], c["position"], c["batch"], c["day"], c["time"], c["service"], c["start_us"]}
}

func (h *hostPart) put(row int, b *fleet.Batch, p fleet.Position, startUS int64, service string) {
	h.host.putText(row, b.Host.Name)
	h.history.putText(row, b.Host.ID)
	h.position.put64(row, uint64(p))
	h.batch.put64(row, uint64(b.First))
	h.day.put16(row, uint16(min(max(b.Day, 0), 1<<16-1)))
	h.time.put32(row, uint32(min(max(startUS/1e6, 0), 1<<32-1)))
	h.service.putText(row, service)
	h.start.put64(row, uint64(startUS))
}

// requestRows collects requests.
type requestRows struct {
	*block
	hostPart
	words  words
	values []*column // by requestFields
}

func newRequestRows(table string) *requestRows {
	b, c, _ := newBlock(table, requestDefs)
	r := &requestRows{block: b, hostPart: newHostPart(c)}
	for i := range requestFields {
		r.values = append(r.values, c[requestFields[i].Name])
	}
	return r
}

// add appends a request. It allocates nothing but when its columns grow, and when an
// address or a service is seen for the first time.
func (w *requestRows) add(b *fleet.Batch, p fleet.Position, r *store.Request) {
	row := w.rows
	w.hostPart.put(row, b, p, r.StartNS/1000, w.words.service(r.Side, &r.Process, int(r.Local.Port())))
	for i, c := range w.values {
		switch f := &requestFields[i]; f.Kind {
		case schema.Text:
			c.putText(row, f.Text(r))
		case schema.Addr:
			c.putText(row, w.words.Addr(f.Addr(r)))
		case schema.Flags:
			c.putText(row, w.words.FlagNames(r.Flags))
		default:
			if v := f.Value(r); v != 0 || c.used {
				c.put(row, uint64(v))
			}
		}
	}
	w.rows++
}
