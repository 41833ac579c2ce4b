package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// Bounds of what is read of proofs.
const (
	maxProofs     = 100
	maxProofBytes = 4 << 20
)

// proofs lists the documents of slowray prove and tune that were kept, newest
// first.
func (s *server) proofs(context.Context, *query) (answer, error) {
	list, lost := []map[string]any{}, losses{}
	out := func() (answer, error) { return jsonAnswer(map[string]any{"proofs": list, "losses": lost}) }
	if s.opt.Proofs == "" {
		return out()
	}
	root, err := os.OpenRoot(s.opt.Proofs) // no link leads out of it
	if errors.Is(err, fs.ErrNotExist) {
		return out()
	}
	if err != nil {
		return answer{}, err
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return answer{}, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return answer{}, err
	}
	type file struct {
		name string
		at   time.Time
	}
	var files []file
	for _, e := range entries {
		if st, err := e.Info(); err == nil && st.Mode().IsRegular() && strings.HasSuffix(e.Name(), ".json") && st.Size() <= maxProofBytes {
			files = append(files, file{e.Name(), st.ModTime()})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(b.at.Compare(a.at), strings.Compare(b.name, a.name)) })
	damaged := 0
	for _, f := range files {
		if len(list) == maxProofs {
			lost.add("older proofs are left out", int64(len(files)-maxProofs))
			break
		}
		data, err := root.ReadFile(f.name)
		if err != nil {
			damaged++
			continue
		}
		var doc map[string]any
		if json.Unmarshal(data, &doc) != nil {
			damaged++
			continue
		}
		schema, _ := doc["schema"].(string)
		if !strings.HasPrefix(schema, "slowray.prove/") && !strings.HasPrefix(schema, "slowray.tune/") {
			continue // something else that is kept there
		}
		doc["at"] = unix(f.at)
		list = append(list, doc)
	}
	lost.add("proofs could not be read", int64(damaged))
	return out()
}
