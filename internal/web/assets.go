package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/slowray/slowray/internal/language"
	"github.com/slowray/slowray/internal/web/page"
)

// assetTypes are the files that are served; a system's own list of types would
// differ from host to host.
var assetTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon",
	".woff2": "font/woff2", ".json": "application/json", ".webmanifest": "application/manifest+json", ".txt": "text/plain; charset=utf-8",
}

// asset is a file of the page, ready to be sent.
type asset struct {
	kind   string
	tag    string // ETag
	body   []byte
	packed func() []byte // nil where packing does not help; packed when it is first asked for
}

// assets are the files of the page by the path under which they are served.
// They are in memory: no path of a request reaches a file system.
type assets map[string]asset

// newAssets reads the files of a page: that of a host ("index.html") or of the fleet
// ("fleet.html"). The other's is not there.
func newAssets(index string) (assets, error) {
	all := assets{}
	err := fs.WalkDir(page.Files, ".", func(name string, d fs.DirEntry, err error) error {
		kind, known := assetTypes[path.Ext(name)]
		if err != nil || d.IsDir() || !known || path.Ext(name) == ".html" && name != index {
			return err
		}
		body, err := fs.ReadFile(page.Files, name)
		if err != nil {
			return err
		}
		if name == index {
			name = ""
		}
		all["/"+name] = newAsset(kind, body)
		return nil
	})
	if err != nil {
		return nil, err
	}
	pages, err := language.Pages()
	for name, words := range pages {
		body, _ := json.Marshal(words)
		all["/assets/"+name+".json"] = newAsset(assetTypes[".json"], body)
	}
	if _, ok := all["/"]; !ok && err == nil {
		err = errors.New("the page has no " + index)
	}
	return all, err
}

func newAsset(kind string, body []byte) asset {
	sum := sha256.Sum256(body)
	return asset{kind: kind, body: body, tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`, packed: sync.OnceValue(func() []byte {
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		z.Write(body)
		z.Close()
		if b.Len() >= len(body)*9/10 {
			return nil
		}
		return b.Bytes()
	})}
}

// ServeHTTP sends a file. It is kept by browsers, which ask each time whether it
// is still the same: a new slowray must not be shown an old page.
func (a assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := a[r.URL.Path]
	if !ok {
		writeError(w, http.StatusNotFound, "there is no such page")
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.tag)
	h.Set("Cache-Control", "no-cache")
	h.Add("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("If-None-Match"), f.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := f.body
	if acceptsGzip(r) {
		if packed := f.packed(); packed != nil {
			h.Set("Content-Encoding", "gzip")
			body = packed
		}
	}
	if r.Method != http.MethodHead {
		w.Write(body)
	}
}
