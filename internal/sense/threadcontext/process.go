package threadcontext

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/sense/procmem"
)

// The header of a process context (OTEP 4719, Header Structure): a signature of 8 bytes,
// version and size of the payload of 4 each, when it was published and where the payload
// is of 8 each.
const (
	headerBytes = 32
	signature   = "OTEL_CTX"
	// maxPayload is what is read of a payload at most; those of SDKs take some hundred bytes.
	maxPayload = 64 << 10
	// maxDepth is how deep messages of protobuf are nested down to a key and its value:
	// the payload, its attributes, one of them.
	maxDepth = 4
)

// schemas are the values of threadlocal.schema_version that stand for what is read here.
var schemas = []string{"tlsdesc_v1_dev", "tls_v1_dev", "tls_v1"}

const schemaKey = "threadlocal.schema_version"

// isContext says of a mapping that it is, by its name, a process context: of memory with a
// name (Linux 5.17) or of a memfd.
func isContext(path string) bool {
	for _, name := range []string{"/memfd:", "[anon_shmem:", "[anon:"} {
		if rest, ok := strings.CutPrefix(path, name); ok && strings.HasPrefix(rest, signature) {
			return true
		}
	}
	return false
}

var errChanging = errors.New("its process context is being changed")

// publishes reads the process context at an address: nil where it says that threads publish
// as is read here, ErrNone where it says nothing of threads.
func publishes(p procmem.Process, at uint64) error {
	header := p.Bytes(at, headerBytes)
	if header == nil || string(header[:8]) != signature {
		return ErrNone
	}
	if version := procmem.Half(header, 8); version != 1 && version != 2 {
		return fmt.Errorf("its process context is of version %d", version)
	}
	size, published := procmem.Half(header, 12), procmem.Long(header, 16)
	if published == 0 {
		return errChanging
	}
	if size > maxPayload {
		return fmt.Errorf("its process context has %d bytes, more than %d", size, maxPayload)
	}
	payload := p.Bytes(procmem.Long(header, 24), uint64(size))
	again := p.Bytes(at, headerBytes)
	if payload == nil || again == nil {
		return errors.New("its process context cannot be read")
	}
	if procmem.Long(again, 16) != published {
		return errChanging
	}
	switch schema := schemaOf(payload, maxDepth); {
	case schema == "":
		return ErrNone
	case !slices.Contains(schemas, schema):
		return fmt.Errorf("its threads publish by the schema %.40q, which is not known", schema)
	}
	return nil
}

// schemaOf finds the value of threadlocal.schema_version in a message of protobuf. The
// attribute is a message KeyValue (key = 1, value = 2) whose value is a message AnyValue
// (string_value = 1); in which field it is kept changed between the versions of the payload.
func schemaOf(message []byte, depth int) string {
	if depth == 0 {
		return ""
	}
	key := ""
	for len(message) > 0 {
		number, value, rest, ok := field(message)
		if !ok {
			return ""
		}
		message = rest
		switch {
		case value == nil:
		case number == 1 && string(value) == schemaKey:
			key = schemaKey
		case number == 2 && key != "":
			if n, text, _, ok := field(value); ok && n == 1 {
				return string(text)
			}
			return ""
		default:
			if schema := schemaOf(value, depth-1); schema != "" {
				return schema
			}
		}
	}
	return ""
}

// field is the first field of a message; its value is nil where it is a number.
func field(message []byte) (number uint64, value, rest []byte, ok bool) {
	tag, n := binary.Uvarint(message)
	if n <= 0 {
		return 0, nil, nil, false
	}
	message = message[n:]
	skip := 0
	switch tag & 7 {
	case 0: // a number
		if _, skip = binary.Uvarint(message); skip <= 0 {
			return 0, nil, nil, false
		}
	case 1:
		skip = 8
	case 2: // bytes
		size, n := binary.Uvarint(message)
		if n <= 0 || size > uint64(len(message)-n) {
			return 0, nil, nil, false
		}
		value = message[n : n+int(size) : n+int(size)]
		return tag >> 3, value, message[n+int(size):], true
	case 5:
		skip = 4
	default:
		return 0, nil, nil, false
	}
	if skip > len(message) {
		return 0, nil, nil, false
	}
	return tag >> 3, nil, message[skip:], true
}
