// Package docs holds the pages of the documentation, for programs that read them.
package docs

import "embed"

// Pages are the pages, by their path below this directory.
//
//go:embed *.md howto/*.md
var Pages embed.FS
