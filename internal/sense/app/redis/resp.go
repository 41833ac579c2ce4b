package redis

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/slowray/slowray/internal/budget"
)

// reply is one answer in Redis's protocol, RESP2.
type reply struct {
	kind byte // '+', '-', ':', '$', '*'
	text string
	list []reply
}

var (
	errIncomplete = errors.New("incomplete")
	errProtocol   = errors.New("this is no Redis")
)

const (
	maxNesting = 8
	maxItems   = 100_000
)

// parseReply takes one reply from b and gives what follows it.
func parseReply(budget *budget.Budget, b []byte, depth int) (r reply, rest []byte, err error) {
	i := bytes.Index(b, []byte("\r\n"))
	switch {
	case i < 0 && len(b) > 64<<10, depth > maxNesting:
		return r, nil, errProtocol
	case i < 0:
		return r, nil, errIncomplete
	case i == 0:
		return r, nil, errProtocol
	}
	if err := budget.Node(); err != nil {
		return r, nil, err
	}
	r.kind, r.text, rest = b[0], string(b[1:i]), b[i+2:]
	switch r.kind {
	case '+', '-', ':':
		return r, rest, nil
	case '$':
		n, err := strconv.Atoi(r.text)
		switch {
		case err != nil || n > 512<<20:
			return r, nil, errProtocol
		case n < 0:
			r.text = ""
			return r, rest, nil
		case len(rest) < n+2:
			return r, nil, errIncomplete
		}
		if err := budget.Unpack(int64(n)); err != nil {
			return r, nil, err
		}
		r.text = string(rest[:n])
		return r, rest[n+2:], nil
	case '*':
		n, err := strconv.Atoi(r.text)
		if err != nil || n > maxItems {
			return r, nil, errProtocol
		}
		r.text = ""
		for range n {
			var item reply
			if item, rest, err = parseReply(budget, rest, depth+1); err != nil {
				return r, nil, err
			}
			r.list = append(r.list, item)
		}
		return r, rest, nil
	}
	return r, nil, errProtocol
}

// parseReplies takes as many replies as there are whole ones, at most n.
func parseReplies(budget *budget.Budget, b []byte, n int) (list []reply, err error) {
	for len(list) < n && len(b) > 0 {
		r, rest, err := parseReply(budget, b, 0)
		if err != nil {
			return list, err
		}
		list, b = append(list, r), rest
	}
	if len(list) < n {
		return list, errIncomplete
	}
	return list, nil
}
