package packets

import (
	"bytes"
	"slices"
)

// methods are those of HTTP/1 that services are asked with (RFC 9110, RFC 5789).
var methods = []string{"GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"}

const maxLabel = 128

// askedFor is method and path of a request in HTTP/1, without its query; empty
// when it is none.
func askedFor(payload []byte) string {
	method, rest, ok := bytes.Cut(payload[:min(len(payload), 2*maxLabel)], []byte(" "))
	if !ok || !slices.Contains(methods, string(method)) {
		return ""
	}
	end := bytes.IndexAny(rest, " ?\r\n")
	if end < 0 {
		end = len(rest)
	}
	label := string(method) + " " + string(rest[:end])
	return label[:min(len(label), maxLabel)]
}

// httpStatus is the status of an answer in HTTP/1, 0 when it is none.
func httpStatus(payload []byte) int {
	if len(payload) < 12 || !bytes.HasPrefix(payload, []byte("HTTP/1.")) || payload[8] != ' ' {
		return 0
	}
	status := 0
	for _, d := range payload[9:12] {
		if d < '0' || d > '9' {
			return 0
		}
		status = status*10 + int(d-'0')
	}
	if status < 100 || status > 599 {
		return 0
	}
	return status
}
