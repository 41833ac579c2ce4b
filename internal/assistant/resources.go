package assistant

import (
	"context"
	"io/fs"
	"path"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slowray/slowray/docs"
)

// scheme begins the address of a page of the docs.
const scheme = "slowray://docs/"

// addResources offers the pages of the docs.
func addResources(m *mcp.Server) {
	_ = fs.WalkDir(docs.Pages, ".", func(name string, d fs.DirEntry, err error) error { // embedded: it cannot fail
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(docs.Pages, name)
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(string(text), "\n")
		m.AddResource(&mcp.Resource{URI: scheme + name, Name: strings.TrimSuffix(path.Base(name), ".md"), Title: strings.TrimSpace(strings.TrimLeft(first, "# ")),
			MIMEType: "text/markdown", Size: int64(len(text))},
			func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: scheme + name, MIMEType: "text/markdown", Text: string(text)}}}, nil
			})
		return nil
	})
}
