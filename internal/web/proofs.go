package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/safefile"
)

// Bounds of what is read of proofs.
const (
	maxProofs     = 100
	maxProofBytes = 4 << 20
)

// proofs lists the documents of slowray prove, and those of slowray tune, that
// were kept, newest first.
func (s *server) proofs(context.Context, *query) (answer, error) {
	list, tunes, lost := []map[string]any{}, []map[string]any{}, losses{}
	out := func() (answer, error) {
		return jsonAnswer(map[string]any{"proofs": list, "tunes": tunes, "losses": lost})
	}
	if s.opt.Proofs == "" {
		return out()
	}
	root, err := safefile.OpenRoot(s.opt.Proofs)
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
		if len(list)+len(tunes) == maxProofs {
			lost.add("older proofs are left out", int64(len(files)-maxProofs))
			break
		}
		data, err := safefile.ReadRegular(root, f.name, maxProofBytes)
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
		doc["at"] = unix(f.at)
		switch { // something else may be kept there
		case strings.HasPrefix(schema, "slowray.prove/"):
			list = append(list, doc)
		case strings.HasPrefix(schema, "slowray.tune/"):
			tunes = append(tunes, doc)
		}
	}
	lost.add("proofs could not be read", int64(damaged))
	return out()
}
