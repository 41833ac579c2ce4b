package flame

import (
	"io"
	"testing"

	"github.com/chromedp/cdproto/emulation"
)

func TestTmp(t *testing.T) {
	b := open(t, 1280, 800, func(w io.Writer) error { return HTML(w, &shop().Stacks, Options{}) })
	b.look("shop")
	b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
	b.look("shop-dark")
	b.do(emulation.SetDeviceMetricsOverride(390, 844, 2, true))
	b.look("shop-phone")
	b = open(t, 1280, 800, func(w io.Writer) error { return DiffHTML(w, Diff(&shop().Stacks, &later().Stacks), Options{}) })
	b.look("diff")
	b = open(t, 1280, 800, func(w io.Writer) error { return HTML(w, &many(50000).Stacks, Options{}) })
	b.look("many")
	b = open(t, 1280, 800, func(w io.Writer) error { return HTML(w, nil, Options{}) })
	b.look("empty")
}
