package gateway

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// laneKey is what inserts must have in common to be put together: the server, the
// table with the columns, how the body is written, and who sends it. params are
// parameters of the request as in a URL, without the query ID.
type laneKey struct {
	server, params                string
	user, password, authorization string
}

// piece is a batch of a host.
type piece struct {
	came   time.Time
	host   string // that it came from
	cost   int64  // what was taken of the room for it
	stream string // as in its query ID; "" of none
	body   []byte
	gone   <-chan struct{} // closed when the host does not wait for the answer any more
	done   chan answer
}

// lane is what waits for one insert. It has a goroutine as long as something does.
type lane struct {
	waiting []*piece
	bytes   int
	full    chan struct{} // closed when there is enough for an insert
}

// insertTimeout is how long a server may take for an insert: as long as for one of a
// host itself.
const insertTimeout = time.Minute

// add puts a batch, for which there is room, into its lane.
func (g *Gateway) add(key laneKey, p *piece) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lanes[key]
	if l == nil {
		l = &lane{full: make(chan struct{})}
		g.lanes[key] = l
		go g.run(key, l)
	}
	l.waiting = append(l.waiting, p)
	was := l.bytes
	if l.bytes += len(p.body); was < insertBytes && l.bytes >= insertBytes {
		close(l.full)
	}
	g.stats.Batches++
	if p.stream != "" {
		g.pending[p.stream]++
	}
}

// run makes inserts, one after the other, until nothing waits.
func (g *Gateway) run(key laneKey, l *lane) {
	for {
		timer := time.NewTimer(g.opt.Wait)
		select {
		case <-timer.C:
		case <-l.full:
			timer.Stop()
		}
		pieces, dropped, number := g.take(l, time.Now())
		g.release(dropped)
		for _, p := range dropped {
			p.done <- answer{http.StatusServiceUnavailable, []byte("gateway: " + key.server + " is too slow"), true}
		}
		if len(pieces) > 0 {
			a := g.insert(key, pieces, number)
			// Before the hosts hear of it: who asks then must find nothing here.
			g.release(pieces)
			for _, p := range pieces {
				p.done <- a
			}
		}
		g.mu.Lock()
		if len(l.waiting) == 0 {
			delete(g.lanes, key)
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
	}
}

// take takes what makes an insert off a lane; dropped are batches whose hosts have
// gone, or that came too long ago: hosts ask what is there, and retransmits it.
func (g *Gateway) take(l *lane, now time.Time) (pieces, dropped []*piece, number int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	size, n := 0, 0
	for n < len(l.waiting) && size < insertBytes {
		p := l.waiting[n]
		size += len(p.body)
		n++
		select {
		case <-p.gone:
			dropped = append(dropped, p)
			continue
		default:
		}
		if now.Sub(p.came) < holdTime {
			pieces = append(pieces, p)
		} else {
			dropped = append(dropped, p)
		}
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
	if was := l.bytes; was >= insertBytes {
		if l.full = make(chan struct{}); was-size >= insertBytes {
			close(l.full)
		}
	}
	l.bytes -= size
	g.numbers++
	return pieces, dropped, g.numbers
}

// release forgets batches.
func (g *Gateway) release(pieces []*piece) {
	if len(pieces) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range pieces {
		g.room.give(p.host, p.cost)
		if p.stream == "" {
			continue
		}
		if g.pending[p.stream]--; g.pending[p.stream] == 0 {
			delete(g.pending, p.stream)
		}
	}
	close(g.changed)
	g.changed = make(chan struct{})
}

// insert sends batches as one insert. A body is blocks of FORMAT Native, in LZ4 frames
// or not: several after each other are one too. The server makes one block of them,
// and one part for each day. The rows of a batch are of one day: they are
// there whole or not at all, as without a gateway.
func (g *Gateway) insert(key laneKey, pieces []*piece, number int) answer {
	// Tables lie in the order of histories: so the server has less to sort.
	slices.SortStableFunc(pieces, func(a, b *piece) int { return cmp.Compare(a.stream, b.stream) })
	a, err := g.post(key, QueryPrefix(nameOf(pieces[0].stream))+g.id+"/"+strconv.Itoa(number), pieces)
	if err != nil {
		a = unreached(err)
	}
	g.note(key.server, pieces, a)
	return a
}

// nameOf is the stream's name in what its query IDs begin with.
func nameOf(stream string) string {
	parts := strings.Split(strings.TrimSuffix(stream, "/"), "/")
	return cmp.Or(parts[len(parts)-1], "none")
}

// post sends the bodies of batches as one. They are not copied: what is held is counted
// once.
func (g *Gateway) post(key laneKey, id string, pieces []*piece) (answer, error) {
	size := int64(0)
	for _, p := range pieces {
		size += int64(len(p.body))
	}
	body := func() (io.ReadCloser, error) {
		var readers []io.Reader
		for _, p := range pieces {
			readers = append(readers, bytes.NewReader(p.body))
		}
		return io.NopCloser(io.MultiReader(readers...)), nil
	}
	whole, _ := body()
	if size == 0 {
		whole = http.NoBody // its length is known
	}
	ctx, cancel := context.WithTimeout(context.Background(), insertTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+key.server+"/?"+key.params+"&query_id="+url.QueryEscape(id), whole)
	if err != nil {
		return answer{}, err
	}
	req.ContentLength, req.GetBody = size, body
	for name, value := range map[string]string{"X-ClickHouse-User": key.user, "X-ClickHouse-Key": key.password, "Authorization": key.authorization} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := g.http.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return answer{status: resp.StatusCode, body: text}, err
}

// dataErrors are codes of ClickHouse for what is wrong with the rows of an insert, not
// with the server: one host's fault may be all others' (src/Common/ErrorCodes.cpp).
var dataErrors = []int{6, 10, 16, 27, 33, 40, 53, 117, 246, 271}

// note counts an insert, says when a server begins to fail and when it works again,
// and lets batches go alone that failed together.
func (g *Gateway) note(server string, pieces []*piece, a answer) {
	g.mu.Lock()
	g.stats.Inserts++
	failed := a.status != http.StatusOK
	if failed {
		g.stats.Failed++
		if len(pieces) > 1 && slices.Contains(dataErrors, codeOf(a.body)) {
			now := time.Now()
			maps.DeleteFunc(g.alone, func(_ string, until time.Time) bool { return now.After(until) })
			for _, p := range pieces {
				// Also the address: who calls itself something else each time stays alone.
				for _, name := range []string{p.stream, p.host} {
					if name != "" && len(g.alone) < maxAlone {
						g.alone[name] = now.Add(aloneFor)
					}
				}
			}
		}
	}
	news := failed != g.failing[server]
	g.failing[server] = failed
	g.mu.Unlock()
	if news {
		what := "takes inserts again"
		if failed {
			text, _, _ := bytes.Cut(a.body, []byte("\n"))
			what = fmt.Sprintf("refuses inserts: %.300s", text)
		}
		g.opt.Say(server + ": " + what)
	}
}

// codeOf is the code of an error's text, "Code: 33, …"; 0 of others.
func codeOf(text []byte) int {
	rest, ok := strings.CutPrefix(string(text[:min(len(text), 40)]), "Code: ")
	if !ok {
		return 0
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	code, _ := strconv.Atoi(rest[:max(end, 0)])
	return code
}
