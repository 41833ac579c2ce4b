package assistant

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// answer is what a tool found. Its lists are in order, the most important first.
type answer struct {
	value any
	// keep is how many items of a list, by its keys, stay as long as anything else
	// can be shortened.
	keep map[string]int
}

// longestText is how many bytes of a text stay where lists alone do not fit.
const longestText = 160

// answers are the lists that are never left out whole.
var answers = map[string]int{"findings": 1, "causes": 1, "requests": 1}

// fit is the JSON of an answer in at most limit bytes: of the list that takes most, the
// last items are left out, until it fits; where that is not enough long texts are cut, and the last
// members left out. left_out says how many of which list, or which member.
func fit(a *answer, limit int) ([]byte, error) {
	all, err := json.Marshal(a.value)
	if err != nil || len(all) <= limit {
		return all, err
	}
	tree, err := decode(json.NewDecoder(bytes.NewReader(all)))
	if err != nil {
		return nil, err
	}
	whole, ok := tree.(*object)
	if !ok {
		return nil, fmt.Errorf("an answer that is no object: %.40s", all) // a bug, not an input
	}
	left := map[string]int{}
	whole.members = append(whole.members, member{"left_out", left})
	fewer := maps.Clone(a.keep)
	for name, n := range fewer {
		fewer[name] = n / 2
	}
	for pass, keep := range []map[string]int{a.keep, fewer, answers} {
		least := 1
		if pass == 2 {
			least = 0
		}
		for {
			out, err := json.Marshal(whole)
			if err != nil || len(out) <= limit {
				return out, err
			}
			l := largest(whole, keep, least)
			if l == nil {
				break
			}
			n := max(len(l.items)-1-len(l.items)/4, keep[l.name], least)
			left[l.name] += len(l.items) - n
			l.set(l.items[:n:n])
		}
	}
	left["bytes of long texts"] = shorten(whole)
	out, err := json.Marshal(whole)
	// Then whole members, the last of which matter least; the last is what was left out.
	for err == nil && len(out) > limit && len(whole.members) > 2 {
		last := len(whole.members) - 2
		left[whole.members[last].key]++
		whole.members = slices.Delete(whole.members, last, last+1)
		out, err = json.Marshal(whole)
	}
	if err == nil && len(out) > limit {
		return nil, fmt.Errorf("the shortest answer has %d bytes: ask with max_tokens %d at least", len(out), (len(out)+bytesOfToken-1)/bytesOfToken)
	}
	return out, err
}

// object is a JSON object whose members stay in order: the verdict comes first.
type object struct{ members []member }

type member struct {
	key   string
	value any
}

// MarshalJSON writes the members in their order.
func (o *object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, m := range o.members {
		b.WriteByte(",{"[btoi(i == 0)])
		for j, v := range []any{m.key, m.value} {
			text, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			b.Write(text)
			if j == 0 {
				b.WriteByte(':')
			}
		}
	}
	if len(o.members) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// decode reads a value: *object, []any, string, json.Number, bool or nil.
func decode(d *json.Decoder) (any, error) {
	d.UseNumber()
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		o := &object{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := decode(d)
			if err != nil {
				return nil, err
			}
			o.members = append(o.members, member{key.(string), v}) // keys of JSON are strings
		}
		_, err = d.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := decode(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	}
	return t, nil
}

// list is a list in an answer that can be made shorter.
type list struct {
	name  string // the keys above it, without indices: "findings.evidence"
	items []any
	bytes int
	set   func([]any)
}

// largest is the list that takes most bytes, of those longer than keep and least say; nil
// where there is none.
func largest(tree *object, keep map[string]int, least int) *list {
	var all []list
	var walk func(name string, v any, set func([]any)) int
	walk = func(name string, v any, set func([]any)) int {
		switch v := v.(type) {
		case *object:
			sum := 2
			for i := range v.members {
				m := &v.members[i]
				sum += len(m.key) + 4 + walk(join(name, m.key), m.value, func(l []any) { m.value = l })
			}
			return sum
		case []any:
			sum := 2
			for i, child := range v {
				sum += 1 + walk(name, child, func(l []any) { v[i] = l })
			}
			if len(v) > max(keep[name], least) {
				all = append(all, list{name, v, sum, set})
			}
			return sum
		case string:
			return len(v) + 2
		case json.Number:
			return len(v)
		}
		return len("false")
	}
	walk("", tree, nil)
	if len(all) == 0 {
		return nil
	}
	l := slices.MaxFunc(all, func(a, b list) int {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.name, b.name))
	})
	return &l
}

func join(name, key string) string {
	if name == "" {
		return key
	}
	return name + "." + key
}

// pasted are the keys of texts that are pasted or asked for again: half of one is worse
// than none.
var pasted = []string{"commands", "persist", "command", "id", "key"}

// shorten cuts long texts, wherever they are, and says by how many bytes.
func shorten(v any) (cut int) {
	short := func(v any) any {
		text, ok := v.(string)
		if !ok || len(text) <= longestText {
			cut += shorten(v)
			return v
		}
		begin := strings.ToValidUTF8(text[:longestText], "")
		cut += len(text) - len(begin)
		return begin + "…"
	}
	switch v := v.(type) {
	case *object:
		for i := range v.members {
			if m := &v.members[i]; !slices.Contains(pasted, m.key) {
				m.value = short(m.value)
			}
		}
	case []any:
		for i := range v {
			v[i] = short(v[i])
		}
	}
	return cut
}
