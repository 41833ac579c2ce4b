package shelltest

import (
	"fmt"
	"reflect"
	"strings"
)

// Mutation is a string from outside twice: with a harmless part and with a hostile
// one in the same place. Harmless and Hostile begin with the same letter, so that
// they are sorted alike.
type Mutation struct {
	Name              string
	Harmless, Hostile string // the part
	// Refused says that a note may stand in the place of a command.
	Refused bool
	put     func(s, part string) string
}

// Put is s with part, Harmless or Hostile, in its place.
func (m *Mutation) Put(s, part string) string { return m.put(s, part) }

// canary is what is run where a hostile part is taken for a command: it makes a
// file. "touch" is the one program that does what it says.
const canary = "touch canary"

const (
	harmless = "aQz7"
	// visible holds what is special to a shell, and can be seen.
	visible = "a b;" + canary + ";$(" + canary + ")`" + canary + "`'" + canary + "';\"&" + canary + "&|" + canary + "|<>()[]{a,b}*?~!!#$HOME=%s\\n\\"
	// unseen acts on a terminal besides, and begins new lines.
	unseen = "a\n" + canary + "\n;$(" + canary + ")\r\x1b]0;x\a\x1b[2J\u202e\u2066\u0085\t'\"\\%d!x z"
)

func whole(s, part string) string {
	if strings.HasPrefix(s, "/") {
		return "/" + part
	}
	return part
}

// inside keeps the directory, the first half of the name and what ends it.
func inside(s, part string) string {
	at := strings.LastIndexByte(s, '/') + 1
	at += (len(s) - at) / 2
	return s[:at] + part + s[at:]
}

// Mutations are the ways a string from outside is made hostile.
func Mutations() []Mutation {
	return []Mutation{
		{Name: "replaced", Harmless: harmless, Hostile: visible, put: whole},
		{Name: "inside", Harmless: harmless, Hostile: visible, put: inside},
		{Name: "unseen", Harmless: harmless, Hostile: unseen, put: inside},
		{Name: "quotes", Harmless: harmless, Hostile: "a\";" + canary + ";\"'", put: inside},
		{Name: "dash", Harmless: harmless, Hostile: "-rf", Refused: true, put: whole},
		{Name: "newline", Harmless: harmless, Hostile: "a\n" + canary + "\n", Refused: true, put: func(s, part string) string { return s + part }},
		{Name: "nul", Harmless: harmless, Hostile: "a\x00;" + canary + ";", Refused: true, put: inside},
	}
}

// Strings lists the strings in a value, keys of maps too, each once, in no order.
func Strings(v any) []string {
	seen := map[string]bool{}
	walk(reflect.ValueOf(v), func(s string) string { seen[s] = true; return s })
	list := make([]string, 0, len(seen))
	for s := range seen {
		if s != "" {
			list = append(list, s)
		}
	}
	return list
}

// Replace gives a copy of a value in which every string is what to makes of it.
// It panics where a type hides strings from it.
func Replace[T any](v T, to func(string) string) T {
	return walk(reflect.ValueOf(&v).Elem(), to).Interface().(T)
}

func walk(v reflect.Value, to func(string) string) reflect.Value {
	switch v.Kind() {
	case reflect.String:
		out := reflect.New(v.Type()).Elem()
		out.SetString(to(v.String()))
		return out
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(walk(v.Elem(), to))
		return out
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		out := reflect.New(v.Type()).Elem()
		out.Set(walk(v.Elem(), to))
		return out
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(walk(v.Index(i), to))
		}
		return out
	case reflect.Array:
		out := reflect.New(v.Type()).Elem()
		for i := range v.Len() {
			out.Index(i).Set(walk(v.Index(i), to))
		}
		return out
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeMapWithSize(v.Type(), v.Len())
		for key, value := range v.Seq2() {
			out.SetMapIndex(walk(key, to), walk(value, to))
		}
		return out
	case reflect.Struct:
		out := reflect.New(v.Type()).Elem()
		out.Set(v)
		for i := range v.NumField() {
			field := v.Type().Field(i)
			switch {
			case field.IsExported():
				out.Field(i).Set(walk(v.Field(i), to))
			case field.Type.Kind() == reflect.String:
				panic(fmt.Sprintf("shelltest: %s.%s is hidden", v.Type(), field.Name))
			}
		}
		return out
	}
	return v
}
