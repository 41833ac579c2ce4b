package language

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Language translates for one reader. Nil is English, and leaves all as it is. It is not
// safe for use by several goroutines at once.
type Language struct {
	sentences []sentence
	byFormat  map[string]*sentence
	known     map[string]reading
	left      int // readings that may still be tried for this text
}

//go:embed zh.txt
var chinese string

var parseChinese = sync.OnceValues(func() ([]sentence, error) { return parse(chinese) })

// Names are the languages that there are.
func Names() []string { return []string{"en", "zh"} }

// New is the language of a name; nil for English.
func New(name string) (*Language, error) {
	switch name {
	case "en":
		return nil, nil
	case "zh":
		sentences, err := parseChinese()
		if err != nil {
			return nil, err
		}
		l := &Language{sentences: sentences, byFormat: map[string]*sentence{}, known: map[string]reading{}}
		for i := range sentences {
			l.byFormat[sentences[i].english] = &sentences[i]
		}
		return l, nil
	}
	return nil, fmt.Errorf("language %q: there are %s", name, strings.Join(Names(), " and "))
}

// OfEnvironment is the name of the language that the environment asks for: of the first
// of these variables that is set (locale(7)).
func OfEnvironment(getenv func(string) string) string {
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		if locale := getenv(name); locale != "" {
			if locale == "zh" || strings.HasPrefix(locale, "zh_") || strings.HasPrefix(locale, "zh.") {
				return "zh"
			}
			break
		}
	}
	return "en"
}

// Sprintf is fmt.Sprintf in this language: format is a sentence of the catalogue, with %s
// in the place of {1}. Arguments that are text are translated as well.
func (l *Language) Sprintf(format string, args ...any) string {
	if l == nil {
		return fmt.Sprintf(format, args...)
	}
	literals, verbs := splitFormat(format)
	s := l.byFormat[numbered(literals)]
	if s == nil || len(verbs) != len(args) {
		return l.Text(fmt.Sprintf(format, args...))
	}
	texts := make([]string, len(args))
	for i, verb := range verbs {
		texts[i] = l.Text(fmt.Sprintf(verb, args[i]))
	}
	return s.fill(texts)
}

// splitFormat takes a format apart into what is printed as it is and its verbs.
func splitFormat(format string) (literals, verbs []string) {
	literal := ""
	for i := 0; i < len(format); i++ {
		switch {
		case format[i] != '%':
			literal += format[i : i+1]
		case strings.HasPrefix(format[i:], "%%"):
			literal += "%"
			i++
		default:
			n := i + 1 + strings.IndexAny(format[i+1:], "sdqvfgx")
			literals, verbs = append(literals, literal), append(verbs, format[i:n+1])
			literal, i = "", n
		}
	}
	return append(literals, literal), verbs
}

// numbered is a sentence as the catalogue writes it.
func numbered(literals []string) string {
	var b strings.Builder
	for i, literal := range literals {
		if i > 0 {
			fmt.Fprintf(&b, "{%d}", i)
		}
		b.WriteString(literal)
	}
	return b.String()
}

// Text translates text: a sentence of the catalogue, or several in a row.
func (l *Language) Text(text string) string {
	if l == nil {
		return text
	}
	lead := len(text) - len(strings.TrimLeft(text, " "))
	tail := len(strings.TrimRight(text, " "))
	if lead >= tail {
		return text
	}
	l.left = mostReadings
	r := l.read(text[lead:tail])
	if l.left <= 0 { // what was read halfway is known wrongly
		clear(l.known)
		return text
	}
	if len(l.known) > mostKnown {
		clear(l.known)
	}
	if r.understood == 0 {
		return text
	}
	return r.text
}

// reading is text in another language, and how many bytes of the original were sentences
// of the catalogue: of several readings the one with most of them is right, and among
// equals several sentences rather than one with others in its places, or else the one whose
// outermost sentence has the most places: that is a sentence, and no name in it.
type reading struct {
	text       string
	understood int
	places     int
}

// separators stand between sentences, and parts of them.
var separators = []struct {
	english, chinese string
	sentences        bool
}{{". ", "。", true}, {"; ", "；", true}, {": ", "：", false}, {", ", "，", false}, {"  ", "  ", true}}

const (
	longest  = 2000 // bytes that are read
	most     = 40   // separators in a text of several sentences
	shortest = 20   // bytes of a sentence that may have English in it, as a name of many words

	// mostReadings is how many parts of one text are read: what others named can be made so
	// that each part of it is a place in many sentences. It then stays English. The longest
	// texts of recorded reports take some hundreds.
	mostReadings = 4000
	mostKnown    = 100_000 // parts, of all texts
)

// grammar is words that no name, figure or setting is made of.
var grammar = strings.Fields("the of is are and to in for its it with or that was were on at by from not no as a an which does has wait waits waiting when than had have")

// IsEnglish says that text is English, or in part: mixed with Chinese, neither is readable.
func IsEnglish(text string) bool {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ' ' || punctuation(r) || han(r) }) {
		if slices.Contains(grammar, strings.Trim(word, ",;:.()")) {
			return true
		}
	}
	return false
}

// english says that nothing of a text was understood, and that it is no name or figure.
func (r *reading) english() bool { return r.understood == 0 && IsEnglish(r.text) }

func (l *Language) read(text string) reading {
	if r, ok := l.known[text]; ok {
		return r
	}
	best := reading{text: text}
	if l.left--; l.left <= 0 {
		return best
	}
	l.known[text] = best // a sentence that is one place for another one ends here
	if len(text) > longest {
		return best
	}
	if s := l.byFormat[text]; s != nil && len(s.literals) == 1 {
		best = reading{text: s.translation, understood: s.weight}
		l.known[text] = best
		return best
	}
	for i := range l.sentences {
		s := &l.sentences[i]
		if s.weak {
			continue
		}
		for _, places := range s.matches(text) {
			r := reading{understood: s.weight, places: len(places)}
			mixed := false
			for j, place := range places {
				inner := l.read(strings.TrimSpace(place))
				mixed = mixed || s.weight < shortest && inner.english()
				places[j] = inner.text
				r.understood += inner.understood
			}
			if mixed {
				continue
			}
			if r.understood > best.understood || r.understood == best.understood && r.places > best.places {
				r.text = s.fill(places)
				best = r
			}
		}
	}
	if parts(text) > most {
		l.known[text] = best
		return best
	}
	for i := range text {
		for _, sep := range separators {
			if !strings.HasPrefix(text[i:], sep.english) {
				continue
			}
			end := i
			if sep.english == ". " {
				end++ // the full stop is part of the sentence
			}
			head, rest := l.read(text[:end]), l.read(text[i+2:])
			if !sep.sentences && (head.english() || rest.english()) {
				continue
			}
			if understood := head.understood + rest.understood; understood > 0 && understood >= best.understood {
				best = reading{understood: understood, text: joined(head, rest, sep.english, sep.chinese)}
			}
		}
	}
	l.known[text] = best
	return best
}

// parts counts what may stand between sentences in a text.
func parts(text string) (n int) {
	for _, sep := range separators {
		n += strings.Count(text, sep.english)
	}
	return n
}

// joined puts two readings one after the other, with the punctuation of the translation
// where there is one on both sides.
func joined(a, b reading, english, chinese string) string {
	switch {
	case english == ". " && a.understood > 0:
		return a.text + b.text
	case english == ". ":
		return a.text + " " + b.text
	case a.understood == 0 && b.understood == 0:
		return a.text + english + b.text
	}
	return a.text + chinese + b.text
}
