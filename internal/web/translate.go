package web

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/language"
)

// translatedKeys are those of sentences in answers. All else is a name, an ID or a figure.
var translatedKeys = []string{"of", "text", "because", "what", "fact", "advice", "why", "notes", "extent", "head", "healthy", "evidence", "chain", "affected", "clocks", "alone", "lines"}

const (
	// translateTime is how long the texts of one answer are translated: what is left then
	// stays English. Nothing that hosts name makes the recorder work for longer.
	translateTime = 300 * time.Millisecond
	mostTexts     = 1 << 20 // bytes of texts that are kept, with their translations
)

// translations keeps what was translated: a page asks for the same again every few seconds.
type translations struct {
	mu    sync.Mutex
	known map[string]string
	bytes int
}

var chinese = translations{known: map[string]string{}}

// translated is an answer in the language that was asked for.
func translated(doc []byte, name string) []byte {
	if name != "zh" {
		return doc
	}
	l, err := language.New(name)
	if err != nil { // a test keeps the catalogue readable
		return doc
	}
	chinese.mu.Lock()
	defer chinese.mu.Unlock()
	end := time.Now().Add(translateTime)
	var out bytes.Buffer
	out.Grow(len(doc))
	key, finding := "", []bool{} // of each open object: it has a cause
	for i := 0; i < len(doc); {
		if doc[i] != '"' {
			switch doc[i] {
			case '{':
				finding = append(finding, false)
			case '}':
				finding = finding[:len(finding)-1]
			}
			out.WriteByte(doc[i])
			i++
			continue
		}
		from := i
		for i++; i < len(doc) && doc[i] != '"'; i++ {
			if doc[i] == '\\' {
				i++
			}
		}
		i++
		text := doc[from:i]
		if i < len(doc) && doc[i] == ':' {
			key = string(text[1 : len(text)-1])
			if key == "cause" {
				finding[len(finding)-1] = true
			}
		} else if slices.Contains(translatedKeys, key) || key == "title" && finding[len(finding)-1] {
			text = chinese.translate(l, text, end)
		}
		out.Write(text)
	}
	return out.Bytes()
}

// translate is a text of JSON in another language.
func (t *translations) translate(l *language.Language, quoted []byte, end time.Time) []byte {
	var english string
	if json.Unmarshal(quoted, &english) != nil {
		return quoted
	}
	text, ok := t.known[english]
	if !ok {
		if time.Now().After(end) {
			return quoted
		}
		text = l.Text(english)
		if t.bytes += len(english) + len(text); t.bytes > mostTexts {
			clear(t.known)
			t.bytes = len(english) + len(text)
		}
		t.known[english] = text
	}
	if text == english {
		return quoted
	}
	b, err := json.Marshal(text)
	if err != nil {
		return quoted
	}
	return b
}
