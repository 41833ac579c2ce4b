package flame

import (
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// shorter is a name without what tells least: the packages of Go and Java, the
// arguments and template parameters of C++. page/words.js does the same.
func shorter(name string, kind observe.FrameKind) string {
	switch kind {
	case observe.FrameGo:
		return name[strings.LastIndexByte(name, '/')+1:]
	case observe.FrameJava:
		name, _, _ = strings.Cut(name, "(")
		method := strings.LastIndexByte(name, '.')
		if method < 0 {
			return name
		}
		return name[strings.LastIndexByte(name[:method], '.')+1:]
	case observe.FramePHP:
		return name[strings.LastIndexByte(name, '\\')+1:]
	case observe.FrameNative:
		if strings.Contains(name, "operator") { // has brackets and blanks of its own
			return name
		}
		bare := unbracketed(strings.ReplaceAll(name, "(anonymous namespace)::", ""))
		if bare == "" || strings.HasPrefix(bare, "::") || strings.HasPrefix(bare, "[") {
			return name
		}
		return bare[strings.LastIndexByte(bare, ' ')+1:] // without the type that it returns
	}
	return name
}

// unbracketed is a C++ name without all that stands in brackets.
func unbracketed(name string) string {
	depth := 0
	var out strings.Builder
	for _, c := range name {
		switch {
		case c == '<' || c == '(':
			depth++
		case c == '>' || c == ')':
			depth = max(0, depth-1)
		case depth == 0:
			out.WriteRune(c)
		}
	}
	if depth != 0 {
		return name
	}
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(out.String()), " const"))
}

// label is a name in at most so many letters.
func label(name string, kind observe.FrameKind, letters int) string {
	if len(name) > letters {
		name = shorter(name, kind)
	}
	return fit(name, letters)
}
