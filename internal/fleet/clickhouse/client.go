package clickhouse

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/gateway"
	"github.com/slowray/slowray/internal/printable"
)

// Limits of what is waited for and read.
const (
	dialTimeout   = 5 * time.Second
	insertTimeout = time.Minute
	queryTimeout  = 2 * time.Minute
	maxMessage    = 4 << 10  // bytes of a server's message
	maxHeader     = 64 << 10 // bytes of the head of an answer
)

// client speaks the HTTP interface.
type client struct {
	cfg      *Config
	http     *http.Client
	part     part
	gateways gateways
}

func newClient(cfg *Config) *client {
	dialer := &net.Dialer{Timeout: dialTimeout}
	proxy := http.ProxyFromEnvironment
	if len(cfg.Gateways) > 0 {
		proxy = func(r *http.Request) (*url.URL, error) {
			return &url.URL{Scheme: "http", Host: gatewayOf(r.Context())}, nil
		}
	}
	return &client{cfg: cfg, gateways: gateways{list: cfg.Gateways}, http: &http.Client{
		Transport: &http.Transport{
			Proxy: proxy, DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTimeout,
			MaxIdleConnsPerHost: 8, IdleConnTimeout: 20 * time.Second, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		},
		// A password goes to the server that was named, and to no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// serverError is what a server answered.
type serverError struct {
	server string
	code   int // of ClickHouse, 0 when there is none
	status int // of HTTP
	text   string
	before bool // the server has not seen the request
}

func (e *serverError) Error() string { return e.server + ": " + e.text }

// Is says that a proxy has refused a body for its size: ClickHouse itself knows no such
// bound, and answers with a code.
func (e *serverError) Is(target error) bool {
	return target == fleet.ErrTooLarge && e.status == http.StatusRequestEntityTooLarge && e.code == 0
}

// Codes of ClickHouse (src/Common/ErrorCodes.cpp).
const (
	codeUnknownTable    = 60
	codeUnknownDatabase = 81
	codeReadOnly        = 242 // a replica without its keeper: it has taken nothing
	codeTimeout         = 209 // of a connection to another server
	codeNetwork         = 210 // the same: refused, or reset
	codeNoShard         = 279 // no replica of a shard is reached
)

// permanentCodes are errors that trying again does not fix: a table, database,
// column, function or type that is missing or another, a syntax that is not
// understood, a user or password that is wrong, rights that are missing.
var permanentCodes = map[int]bool{
	codeUnknownTable: true, codeUnknownDatabase: true, 10: true, 16: true, 43: true, 46: true, 47: true, 50: true, 53: true, 62: true, 70: true,
	115: true, 164: true, 192: true, 193: true, 194: true, 195: true, 291: true, 497: true, 516: true,
}

// do sends a query with a body to one server, and gives what it answers to read.
func (c *client) do(ctx context.Context, server string, params url.Values, body []byte, read func(io.Reader) error) error {
	return c.gateways.each(ctx, func(ctx context.Context) error { return c.post(ctx, server, "/", params, body, read) })
}

func (c *client) post(ctx context.Context, server, path string, params url.Values, body []byte, read func(io.Reader) error) error {
	return c.request(ctx, http.MethodPost, server, path+"?"+params.Encode(), bytes.NewReader(body), read)
}

// request asks one server, and gives what it answers to read. Where there are gateways ctx
// tells by which of them.
func (c *client) request(ctx context.Context, method, server, path string, body io.Reader, read func(io.Reader) error) error {
	scheme := "http"
	if c.cfg.Secure {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, method, scheme+"://"+server+path, body)
	if err != nil {
		return fleet.Permanent(fmt.Errorf("%s: malformed address", server))
	}
	if c.cfg.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.token)
	}
	if c.cfg.User != "" {
		req.Header.Set("X-ClickHouse-User", c.cfg.User)
	}
	if c.cfg.password != "" {
		req.Header.Set("X-ClickHouse-Key", c.cfg.password)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var wrapped *url.Error // it would show the whole query
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		var certificate *tls.CertificateVerificationError
		if errors.As(err, &certificate) {
			err = fleet.Permanent(err)
		}
		return fmt.Errorf("%s: %w", server, err)
	}
	defer func() {
		io.CopyN(io.Discard, resp.Body, maxMessage) // so that the connection can be used again
		resp.Body.Close()
	}()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
		return failure(server, resp.StatusCode, string(text), resp.Header.Get(gateway.NotBegunHeader) != "")
	}
	if read == nil {
		return nil
	}
	if err := read(resp.Body); err != nil {
		return fmt.Errorf("%s: %w", server, err)
	}
	return nil
}

// failure makes an error of a server's message, in one line and without what such
// messages have around them.
func failure(server string, status int, text string, before bool) error {
	e := &serverError{server: server, status: status, before: before}
	if rest, ok := strings.CutPrefix(strings.TrimSpace(text), "Code: "); ok {
		digits, _, _ := strings.Cut(rest, ".")
		digits, _, _ = strings.Cut(digits, ",")
		e.code, _ = strconv.Atoi(digits)
	}
	text, _, _ = strings.Cut(text, ", Stack trace")
	text, _, _ = strings.Cut(text, ", e.what() =")
	text, log, _ := strings.Cut(text, "\n")
	if e.code == codeNoShard {
		text = strings.TrimSuffix(strings.TrimSpace(text), "Log:") + firstReason(log)
	}
	text = strings.TrimSpace(strings.ReplaceAll(text, "e.displayText() = ", ""))
	text = strings.ReplaceAll(text, "DB::Exception: ", "")
	if len(text) > 500 {
		text = strings.ToValidUTF8(text[:500], "") + "…"
	}
	if text == "" {
		text = http.StatusText(status)
	}
	e.text = printable.Text(text)
	if permanentCodes[e.code] || e.code == 0 && status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests {
		return fleet.Permanent(e)
	}
	return e
}

// firstReason is why the first of several tries failed, as a server lists them after the
// line of the error: "Code: 210. DB::NetException: Connection refused (ch-2:9000), e.what() …".
func firstReason(log string) string {
	for line := range strings.Lines(log) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "Code: ")
		if !ok {
			continue
		}
		if _, text, ok := strings.Cut(rest, "Exception: "); ok {
			rest = text
		}
		rest, _, _ = strings.Cut(rest, ", e.what() =")
		return strings.TrimSpace(rest)
	}
	return ""
}

// codeOf is the code of a server's error, 0 when it has none.
func codeOf(err error) int {
	var e *serverError
	if errors.As(err, &e) {
		return e.code
	}
	return 0
}

// notBegun says whether a query can not have reached the server.
func notBegun(err error) bool {
	var e *serverError
	if errors.As(err, &e) {
		return e.before
	}
	var op *net.OpError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") || errors.Is(err, syscall.ECONNREFUSED)
}

func (c *client) params() url.Values { return url.Values{"database": {c.cfg.Database}} }

// exec runs a statement on one server, in a database or in none.
func (c *client) exec(ctx context.Context, server, database, statement string) error {
	return c.execAs(ctx, server, database, "", statement)
}

// execAs is exec under a query ID, "" of the server's choice.
func (c *client) execAs(ctx context.Context, server, database, queryID, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	params := url.Values{}
	if database != "" {
		params.Set("database", database)
	}
	if queryID != "" {
		params.Set("query_id", queryID)
	}
	return c.do(ctx, server, params, []byte(statement), nil)
}

// wholeRows is how many rows are few: they are sent with all columns to a gateway,
// which puts them together with those of other hosts.
const wholeRows = 4096

// insert sends rows. A present server (from 26.2 on) would otherwise put inserts together
// by itself: then a batch is no part of its own, and goes on unseen when its
// connection is gone.
func (c *client) insert(ctx context.Context, server string, d Dialect, queryID string, b *block) error {
	b.whole = len(c.cfg.Gateways) > 0 && b.rows <= wholeRows
	body, columns, err := b.encode(c.cfg.Compress)
	if err != nil {
		return err
	}
	params := c.params()
	params.Set("query", "INSERT INTO "+b.table+" ("+names(columns...)+") FORMAT Native")
	if queryID != "" {
		params.Set("query_id", queryID)
	}
	if c.cfg.Compress {
		params.Set("decompress", "1")
	}
	if d == Modern {
		params.Set("async_insert", "0")
	}
	ctx, cancel := context.WithTimeout(ctx, insertTimeout)
	defer cancel()
	return c.do(ctx, server, params, body, func(r io.Reader) error {
		// A server that took rows says nothing. What is in between, and answers 200 for
		// it, has not stored them.
		text, err := io.ReadAll(io.LimitReader(r, maxMessage))
		if err == nil && len(text) > 0 {
			line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
			err = fleet.Permanent(fmt.Errorf("answers an insert with %.60q: that is not ClickHouse's HTTP interface", line))
		}
		return err
	})
}

// query asks one server for an answer of at most so many bytes, and calls rows for each
// block of it, whose values are then in the columns of results; false ends it.
// What is no answer of ClickHouse is an error, whatever it is.
func (c *client) query(ctx context.Context, server string, d Dialect, most int64, statement string, results proto.Results, rows func(n int) bool) error {
	return c.inPart(ctx, func(skip url.Values) error { return c.ask(ctx, server, most, statement, results, rows, skip) })
}

// ask is query once, with what a part of an answer takes. No row was given to rows when a
// server answers with an error.
func (c *client) ask(ctx context.Context, server string, most int64, statement string, results proto.Results, rows func(n int) bool, skip url.Values) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	params := c.params()
	maps.Copy(params, skip)
	// The status then tells of every error, also of one in the midst of the answer.
	params.Set("wait_end_of_query", "1")
	return c.do(ctx, server, params, []byte(statement+" FORMAT Native"), func(r io.Reader) error {
		in := newAnswerReader(ctx, r, most)
		for {
			n, err := in.block(results)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("answer: %w", err)
			}
			if n > 0 && !rows(n) {
				return nil
			}
		}
	})
}
