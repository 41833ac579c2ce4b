package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// Glob lists the paths that match a pattern of glob(3), sorted. A leading dot
// is matched only by a dot, as the shell and glob(3) do it.
func (r Root) Glob(pattern string) ([]string, error) {
	r = r.known()
	parts := strings.Split(strings.Trim(path.Clean("/"+pattern), "/"), "/")
	found := []string{"/"}
	for i, part := range parts {
		var next []string
		for _, dir := range found {
			matched, err := r.globIn(dir, part, i == len(parts)-1)
			if err != nil {
				return nil, err
			}
			next = append(next, matched...)
			if len(next) > maxEntries {
				return nil, fmt.Errorf("glob %s: more than %d paths", Clip(pattern), maxEntries)
			}
		}
		found = next
	}
	sort.Strings(found)
	return found, nil
}

func (r Root) globIn(dir, part string, last bool) ([]string, error) {
	if !HasMeta(part) {
		p := path.Join(dir, part)
		if last {
			if _, err := r.Stat(p); err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					return nil, nil
				}
				return nil, err
			}
		}
		return []string{p}, r.look.b.Node()
	}
	names, err := r.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// glob(3) negates a class with "!", path.Match with "^".
	goPart := strings.ReplaceAll(part, "[!", "[^")
	var out []string
	for _, n := range names {
		if strings.HasPrefix(n, ".") && !strings.HasPrefix(part, ".") {
			continue
		}
		// Matching takes, at the worst, as many steps as both are long.
		if err := r.look.b.Nodes(1 + int64(len(part)*len(n)/matchSteps)); err != nil {
			return nil, err
		}
		ok, err := path.Match(goPart, n)
		if err != nil {
			return nil, fmt.Errorf("glob %s: %w", Clip(part), err)
		}
		if ok {
			out = append(out, path.Join(dir, n))
		}
	}
	return out, nil
}

// matchSteps is how many steps of matching cost as much as one parsed item.
const matchSteps = 256

// HasMeta says whether a path holds characters that glob(3) expands.
func HasMeta(p string) bool { return strings.ContainsAny(p, "*?[") }
