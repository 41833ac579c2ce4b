package request

import (
	"bytes"
	"strconv"
)

// Protocols, as in enum proto (internal/bpf/headers/connection.h).
const (
	protoSealed   = 1
	protoHTTP1    = 3
	protoRedis    = 4
	protoMySQL    = 5
	protoPostgres = 6
)

// labelBytes is how much of a request's first bytes a label is made of.
const labelBytes = 40

// cut marks a label that was longer.
const cut = "…"

// label is what a person calls the request that begins with these bytes: method
// and path, command, or statement. It is empty for a protocol that is not
// known. Query strings and Redis values are left out: they hold secrets.
func label(proto uint8, first []byte) string {
	whole := len(first) < labelBytes
	switch proto {
	case protoHTTP1:
		return labelHTTP(first)
	case protoRedis:
		return labelRedis(first)
	case protoMySQL:
		if len(first) < 6 || first[4] != 3 && first[4] != 22 { // COM_QUERY, COM_STMT_PREPARE
			return mysqlCommand(first)
		}
		return statement(first[5:], whole)
	case protoPostgres:
		if len(first) < 6 {
			return ""
		}
		text := first[5:]
		if first[0] == 'P' { // Parse: the statement's name comes first
			_, text, _ = bytes.Cut(text, []byte{0})
		} else if first[0] != 'Q' {
			return ""
		}
		return statement(text, whole)
	}
	return ""
}

func labelHTTP(first []byte) string {
	method, rest, ok := bytes.Cut(first, []byte{' '})
	if !ok {
		return ""
	}
	end := bytes.IndexAny(rest, " ?\r\n")
	if end < 0 {
		return string(method) + " " + string(rest) + cut
	}
	return string(method) + " " + string(rest[:end])
}

// labelRedis is the command's name and key, out of "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".
func labelRedis(first []byte) string {
	_, rest, ok := bytes.Cut(first, []byte("\r\n"))
	if !ok {
		return ""
	}
	text := ""
	for n := 0; n < 2 && len(rest) > 0 && rest[0] == '$'; n++ {
		size, after, ok := bytes.Cut(rest[1:], []byte("\r\n"))
		if !ok {
			break
		}
		length, err := strconv.Atoi(string(size))
		if err != nil || length < 0 {
			break
		}
		if n > 0 {
			text += " "
		}
		if length > len(after) {
			return text + string(after) + cut
		}
		text += string(after[:length])
		rest = bytes.TrimPrefix(after[length:], []byte("\r\n"))
	}
	return text
}

// mysqlCommand names the commands without a statement.
func mysqlCommand(first []byte) string {
	if len(first) < 5 {
		return ""
	}
	switch first[4] {
	case 1:
		return "COM_QUIT"
	case 2:
		return "COM_INIT_DB"
	case 14:
		return "COM_PING"
	case 23:
		return "COM_STMT_EXECUTE"
	case 25:
		return "COM_STMT_CLOSE"
	}
	return "COM_" + strconv.Itoa(int(first[4]))
}

// statement ends at a NUL or where the recorded bytes end.
func statement(text []byte, whole bool) string {
	if i := bytes.IndexByte(text, 0); i >= 0 {
		return string(text[:i])
	}
	if whole {
		return string(text)
	}
	return string(text) + cut
}
