package language

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// sentence is one entry of a catalogue.
type sentence struct {
	english     string
	translation string
	literals    []string // what stands around its places
	weight      int      // bytes of them
	weak        bool     // too little to know it by: only Sprintf uses it
}

// leastLetters is how many letters a sentence needs to be known by.
const leastLetters = 4

// parse reads a catalogue: the English on one line, the translation on the next, after a
// tab; {1}, {2}… are places for names, figures and other sentences. # begins a comment.
func parse(text string) ([]sentence, error) {
	var all []sentence
	seen := map[string]bool{}
	english := ""
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		translation, indented := strings.CutPrefix(line, "\t")
		switch {
		case line == "" || line[0] == '#':
		case indented && english == "":
			return nil, fmt.Errorf("catalogue, line %d: a translation of nothing", n)
		case indented:
			s, err := newSentence(english, translation)
			if err != nil {
				return nil, fmt.Errorf("catalogue, line %d: %w", n, err)
			}
			all, english = append(all, s), ""
		case english != "":
			return nil, fmt.Errorf("catalogue, line %d: %q has no translation", n, english)
		case seen[line]:
			return nil, fmt.Errorf("catalogue, line %d: %q is there twice", n, line)
		default:
			english, seen[line] = line, true
		}
	}
	if english != "" {
		return nil, fmt.Errorf("catalogue, line %d: %q has no translation", n, english)
	}
	return all, nil
}

func newSentence(english, translation string) (sentence, error) {
	s := sentence{english: english, translation: translation}
	rest := english
	for i := 1; ; i++ {
		before, after, found := strings.Cut(rest, place(i))
		s.literals = append(s.literals, before)
		if !found {
			break
		}
		if strings.Count(translation, place(i)) != 1 {
			return s, fmt.Errorf("%q: %s is there once in the English, and %d times in the translation", english, place(i), strings.Count(translation, place(i)))
		}
		rest = after
	}
	if n := strings.Count(translation, "{"); n != len(s.literals)-1 {
		return s, fmt.Errorf("%q: the translation has %d places, the English %d", english, n, len(s.literals)-1)
	}
	letters := 0
	for _, literal := range s.literals {
		s.weight += len(literal)
		for _, c := range literal {
			if unicode.IsLetter(c) {
				letters++
			}
		}
	}
	s.weak = len(s.literals) > 1 && letters < leastLetters
	return s, nil
}

func place(n int) string { return "{" + strconv.Itoa(n) + "}" }

// match gives what stands in the places of the sentence, if text is that sentence.
func (s *sentence) match(text string) ([]string, bool) {
	last := len(s.literals) - 1
	if last == 0 {
		return nil, text == s.english
	}
	rest, ok := strings.CutPrefix(text, s.literals[0])
	if !ok || !strings.HasSuffix(rest, s.literals[last]) {
		return nil, false
	}
	rest = rest[:len(rest)-len(s.literals[last])]
	places := make([]string, 0, last)
	for _, literal := range s.literals[1:last] {
		before, after, found := strings.Cut(rest, literal)
		if !found {
			return nil, false
		}
		places, rest = append(places, before), after
	}
	return append(places, rest), true
}

// fill writes the translation with what stands in its places.
func (s *sentence) fill(places []string) string {
	text := s.translation
	pairs := make([]string, 0, 2*len(places))
	for i, p := range places {
		pairs = append(pairs, place(i+1), p)
	}
	return tidy(strings.NewReplacer(pairs...).Replace(text))
}

// tidy takes blanks away that Chinese has not: between its characters, and next to its
// punctuation.
func tidy(text string) string {
	runes := []rune(text)
	out := make([]rune, 0, len(runes))
	for i, r := range runes {
		if r == ' ' && i > 0 && i+1 < len(runes) {
			before, after := runes[i-1], runes[i+1]
			if punctuation(before) || punctuation(after) || unicode.Is(unicode.Han, before) && unicode.Is(unicode.Han, after) {
				continue
			}
		}
		out = append(out, r)
	}
	return string(out)
}

// punctuation says that a character is a mark of Chinese, as wide as its characters.
func punctuation(r rune) bool { return strings.ContainsRune("，。；：、（）“”！？", r) }
