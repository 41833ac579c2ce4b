package language

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

//go:embed zh-page.txt
var chinesePage string

// pages are the catalogues of the pages by the name of their language.
var pages = sync.OnceValues(func() (map[string]map[string]string, error) {
	words, err := parsePage(chinesePage)
	return map[string]map[string]string{"zh": words}, err
})

// Pages are the words of the pages of package web, by language and English sentence, whose
// places are {1}, {2}…. English is not among them: the pages have it.
func Pages() (map[string]map[string]string, error) { return pages() }

// parsePage reads a catalogue whose sentences are looked up whole: places may stand next to
// each other in it.
func parsePage(text string) (map[string]string, error) {
	words := map[string]string{}
	err := entries(text, func(english, translation string) error {
		for i := 1; i < 10; i++ {
			if n, m := strings.Count(english, place(i)), strings.Count(translation, place(i)); n != m || n > 1 {
				return fmt.Errorf("%q: %s is there %d times in the English, and %d times in the translation", english, place(i), n, m)
			}
		}
		words[english] = translation
		return nil
	})
	return words, err
}
