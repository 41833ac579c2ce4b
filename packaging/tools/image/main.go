// Command image writes an OCI image layout: for each architecture one image with nothing
// in it but slowray, and an index of them. The same binaries give the same bytes.
//
//	SOURCE_DATE_EPOCH=N image DIR NAME:TAG COMMIT LICENSE ARCH=BINARY ...
package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if len(os.Args) < 6 {
		fmt.Fprintln(os.Stderr, "usage: image DIR NAME:TAG COMMIT LICENSE ARCH=BINARY ...")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5:]); err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

func write(dir, name, commit, license string, binaries []string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	made := time.Unix(seconds, 0).UTC()
	_, tag, tagged := strings.Cut(name, ":")
	if !tagged {
		return fmt.Errorf("%s has no tag", name)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range binaries {
		arch, binary, _ := strings.Cut(b, "=")
		image, err := imageOf(binary, license, arch, made, map[string]string{
			"org.opencontainers.image.title":    "slowray",
			"org.opencontainers.image.version":  tag,
			"org.opencontainers.image.revision": commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
		})
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// containerd takes the whole name from the first, skopeo and podman the tag from the
	// second.
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          name,
		"org.opencontainers.image.ref.name": tag,
	}))
}

// imageOf is slowray in a root directory that has no shell and no library.
func imageOf(binary, license, arch string, made time.Time, labels map[string]string) (v1.Image, error) {
	files, err := root(binary, license, made)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: made}, CreatedBy: "make image"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: made}
	config.Config = v1.Config{Entrypoint: []string{"/usr/bin/slowray"}, Env: []string{"PATH=/usr/bin"}, Labels: labels}
	return mutate.ConfigFile(image, config)
}

// root is a tar of the files.
func root(binary, license string, made time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		mode int64
		from string // empty: a directory
	}{
		{"tmp/", 0o1777, ""},
		{"usr/", 0o755, ""},
		{"usr/bin/", 0o755, ""},
		{"usr/bin/slowray", 0o755, binary},
		{"usr/share/", 0o755, ""},
		{"usr/share/doc/", 0o755, ""},
		{"usr/share/doc/slowray/", 0o755, ""},
		{"usr/share/doc/slowray/LICENSE", 0o644, license},
	} {
		h := &tar.Header{Name: f.name, Mode: f.mode, ModTime: made, Typeflag: tar.TypeDir}
		var data []byte
		if f.from != "" {
			var err error
			if data, err = os.ReadFile(f.from); err != nil {
				return nil, err
			}
			h.Typeflag, h.Size = tar.TypeReg, int64(len(data))
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
