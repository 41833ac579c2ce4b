package language

import (
	"fmt"
	"slices"
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

// parse reads a catalogue of sentences.
func parse(text string) ([]sentence, error) {
	var all []sentence
	err := entries(text, func(english, translation string) error {
		s, err := newSentence(english, translation)
		all = append(all, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// entries reads a catalogue: the English on one line, the translation on the next, after a
// tab; {1}, {2}… are places for names, figures and other sentences. # begins a comment.
func entries(text string, add func(english, translation string) error) error {
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
			return fmt.Errorf("catalogue, line %d: a translation of nothing", n)
		case indented:
			if err := add(english, translation); err != nil {
				return fmt.Errorf("catalogue, line %d: %w", n, err)
			}
			english = ""
		case english != "":
			return fmt.Errorf("catalogue, line %d: %q has no translation", n, english)
		case seen[line]:
			return fmt.Errorf("catalogue, line %d: %q is there twice", n, line)
		default:
			english, seen[line] = line, true
		}
	}
	if english != "" {
		return fmt.Errorf("catalogue, line %d: %q has no translation", n, english)
	}
	return nil
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
		if before == "" && i > 1 {
			return s, fmt.Errorf("%q: nothing stands between %s and %s", english, place(i-1), place(i))
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

// matches gives what stands in the places of the sentence, if text is that sentence: with
// the first places as short as can be, and with the last ones, where that is something else.
func (s *sentence) matches(text string) [][]string {
	last := len(s.literals) - 1
	rest, ok := strings.CutPrefix(text, s.literals[0])
	if !ok || last == 0 || !strings.HasSuffix(rest, s.literals[last]) {
		return nil
	}
	rest = rest[:len(rest)-len(s.literals[last])]
	first, final := make([]string, last), make([]string, last)
	left, right := rest, rest
	for i := 1; i < last; i++ {
		if first[i-1], left, ok = strings.Cut(left, s.literals[i]); !ok {
			return nil
		}
	}
	for i := 1; i < last; i++ { // what was found from the left is there from the right
		at := strings.LastIndex(right, s.literals[last-i])
		final[last-i], right = right[at+len(s.literals[last-i]):], right[:at]
	}
	first[last-1], final[0] = left, right
	if slices.Equal(first, final) {
		return [][]string{first}
	}
	return [][]string{first, final}
}

// fill writes the translation with what stands in its places: with a blank between Chinese
// and a name or figure, and none between Chinese characters or next to their punctuation.
func (s *sentence) fill(places []string) string {
	var out []rune
	write := func(text string) {
		for i, r := range []rune(strings.TrimSpace(text)) {
			if last := len(out) - 1; i == 0 && last >= 0 {
				switch before := out[last]; {
				case before == ' ' && last > 0 && (punctuation(out[last-1]) || punctuation(r) || han(out[last-1]) && han(r)):
					out = out[:last]
				case han(before) && narrow(r), narrow(before) && han(r):
					out = append(out, ' ')
				}
			}
			out = append(out, r)
		}
	}
	blank := func(is bool) {
		if last := len(out) - 1; is && last >= 0 && out[last] != ' ' {
			out = append(out, ' ')
		}
	}
	rest := s.translation
	for rest != "" {
		at := strings.IndexByte(rest, '{')
		if at < 0 {
			at = len(rest)
		}
		write(rest[:at])
		blank(strings.HasSuffix(rest[:at], " "))
		rest = rest[at:]
		for i := range places {
			if after, ok := strings.CutPrefix(rest, place(i+1)); ok {
				write(places[i])
				rest = after
				break
			}
		}
		blank(strings.HasPrefix(rest, " "))
	}
	return string(out)
}

func han(r rune) bool { return unicode.Is(unicode.Han, r) }

// narrow says that a character is part of a name or figure.
func narrow(r rune) bool { return r < unicode.MaxLatin1 && r > ' ' && !strings.ContainsRune("/([]", r) }

// punctuation says that a character is a mark of Chinese, as wide as its characters.
func punctuation(r rune) bool { return strings.ContainsRune("，。；：、（）“”！？", r) }
